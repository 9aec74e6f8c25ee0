//===- SimtRunner.cpp - GPU kernels compiled and simulated ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include "easyquant/Emit/EmitPTX.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;

namespace easyquant::gpu {

struct KernelLibrary::State {
  explicit State(const Chip &chip) : chip(chip) {
    DialectRegistry registry;
    registerKernelDialects(registry);
    registerTranslations(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = ModuleOp::create(UnknownLoc::get(&context));
    OpBuilder b(module->getBodyRegion());
    kernels = mlir::gpu::GPUModuleOp::create(b, module->getLoc(), "kernels");
    setTarget(kernels, chip);
  }

  const Chip &chip;
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  mlir::gpu::GPUModuleOp kernels;
  std::string ptx;
  std::shared_ptr<const simt::Module> parsed;
};

KernelLibrary::KernelLibrary(ChipId id) : state(std::make_unique<State>(chip(id))) {}
KernelLibrary::~KernelLibrary() = default;
const Chip &KernelLibrary::target() const { return state->chip; }

mlir::gpu::GPUModuleOp KernelLibrary::kernels() { return state->kernels; }

AttentionLaunches KernelLibrary::add(const AttentionSpec &spec) {
  auto launches = attentionLaunches(spec, state->chip);
  if (!launches) {
    ADD_FAILURE() << launches.error().message;
    return {};
  }
  getOrEmit(kernels(), spec, *launches);
  return *launches;
}

eq_sequence sequenceOf(int64_t rows, int64_t position, int64_t firstRow) {
  eq_sequence sequence = {};
  sequence.first_row = static_cast<int32_t>(firstRow);
  sequence.rows = static_cast<int32_t>(rows);
  sequence.position = sequence.held = static_cast<int32_t>(position);
  return sequence;
}

static std::vector<formats::RowPlace> rowPlacesOf(const std::vector<eq_sequence> &step) {
  std::vector<formats::RowPlace> places;
  for (int32_t number = 0; number < std::ssize(step); ++number)
    for (int32_t row = 0; row < step[number].rows; ++row)
      places.push_back({number, step[number].position + row});
  return places;
}

StepInput::StepInput(simt::Device &device, std::vector<eq_sequence> own)
    : step(std::move(own)), sequences(device, step, "sequences"),
      rowPlaces(device, rowPlacesOf(step), "row places") {}

static std::vector<formats::Piece> listOf(const formats::PieceCut &cut,
                                          const std::vector<eq_sequence> &step, int64_t &places) {
  std::vector<formats::Piece> pieces;
  places = formats::listPieces(cut, step, pieces);
  const auto count = static_cast<int32_t>(pieces.size());
  pieces.insert(pieces.begin(), {count, 0, 0, 0, 0, 0, 0, 0});
  return pieces;
}

PieceInput::PieceInput(simt::Device &device, const formats::PieceCut &cut,
                       const std::vector<eq_sequence> &step)
    : pieces(device, listOf(cut, step, places), "pieces") {}

const std::string &KernelLibrary::ptx() {
  if (!state->ptx.empty())
    return state->ptx;
  EXPECT_TRUE(succeeded(verify(*state->module)));
  PassManager pm(&state->context);
  buildLowerToNVVMPipeline(pm);
  EXPECT_TRUE(succeeded(pm.run(*state->module)));
  auto text = emitPTX(state->kernels, state->chip);
  EXPECT_TRUE(succeeded(text));
  return state->ptx = *text;
}

std::shared_ptr<const simt::Module> KernelLibrary::module() {
  if (!state->parsed) {
    auto parsed = simt::Module::parse(ptx(), "kernels.ptx");
    if (!parsed) {
      ADD_FAILURE() << parsed.error().message;
      std::abort();
    }
    state->parsed = *parsed;
  }
  return state->parsed;
}

simt::Statistics run(simt::Device &device, KernelLibrary &library, const Description &kernel,
                     int64_t rows, const std::map<std::string, Argument> &arguments,
                     simt::Checks checks, bool backwards) {
  simt::Arguments values;
  size_t used = 0;
  for (const Parameter &parameter : kernel.parameters) {
    if (parameter.name == "rows") {
      values.add(static_cast<int32_t>(rows));
      continue;
    }
    auto it = arguments.find(parameter.name);
    if (it == arguments.end()) {
      ADD_FAILURE() << kernel.name << ": no argument for " << parameter.name;
      return {};
    }
    ++used;
    std::visit([&](auto value) { values.add(value); }, it->second.value);
  }
  EXPECT_EQ(used, arguments.size()) << kernel.name << " was given arguments that it has not";
  simt::LaunchOptions options;
  options.grid = kernel.gridFor(rows);
  options.block = {kernel.threads, 1, 1};
  options.dynamicSharedBytes = static_cast<uint32_t>(kernel.sharedBytes);
  options.checks = checks;
  options.backwards = backwards;
  options.maxInstructions = 100'000'000; // a test that fails shall not hang
  auto report = simt::launch(device, library.module(), kernel.name, options, values);
  if (!report) {
    ADD_FAILURE() << report.error().message;
    return {};
  }
  EXPECT_TRUE(report->completed);
  for (const simt::Finding &finding : report->findings)
    ADD_FAILURE() << kernel.name << ": " << finding.message;
  return report->statistics;
}

uint64_t expectSmoothCopies(const simt::Statistics &statistics) {
  for (const auto &[kind, traffic] : statistics.traffic) {
    if (kind.starts_with("shared"))
      EXPECT_EQ(traffic.conflicts, 0u) << kind;
    EXPECT_FALSE(kind.starts_with("local"));
  }
  uint64_t copied = 0, sectors = 0;
  for (const simt::InstructionStatistics &i : statistics.instructions)
    if (i.text.starts_with("cp.async.cg")) {
      copied += i.bytes;
      sectors += i.sectors;
    }
  EXPECT_LE(sectors * 32, copied);
  return copied;
}

static const llvm::fltSemantics &semantics(Float type) {
  return type == Float::F16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat();
}
uint16_t toHalf(float value, Float type) {
  llvm::APFloat x(value);
  bool lossy;
  x.convert(semantics(type), llvm::APFloat::rmNearestTiesToEven, &lossy);
  return static_cast<uint16_t>(x.bitcastToAPInt().getZExtValue());
}
float fromHalf(uint16_t bits, Float type) {
  llvm::APFloat x(semantics(type), llvm::APInt(16, bits));
  bool lossy;
  x.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &lossy);
  return x.convertToFloat();
}

} // namespace easyquant::gpu
