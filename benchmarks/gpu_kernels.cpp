//===- gpu_kernels.cpp - Kernels to be timed, with all a launch needs -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "gpu_kernels.h"

#include "easyquant/Codegen/GPU/WeightOnly.h"
#include "easyquant/Emit/Assemble.h"
#include "easyquant/Emit/EmitPTX.h"
#include "easyquant/Numerics/FragmentPacking.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <nlohmann/json.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

using namespace easyquant;
using namespace easyquant::gpu;
using nlohmann::json;

namespace {

//===- Arguments ----------------------------------------------------------===//

/// What memory is filled with before a launch: random values, small positive ones (scales), zeros,
/// or nothing, which is for what the kernel writes.
enum class Fill { Random, Scale, Zero, None };

/// The argument of one parameter: memory, or a number.
struct Argument {
  std::string type = {}; ///< i8, u8, i32, f32, f16 or bf16
  int64_t count = 0;
  Fill fill = Fill::Random;
  bool rotated = false; ///< of ever other memory when timed, so that it comes from no cache
  bool scratch = false; ///< not counted: no kernel has to move it
  int64_t value = 0;    ///< of a number

  int64_t bytes() const {
    return count * (type == "i8" || type == "u8" ? 1 : type == "bf16" || type == "f16" ? 2 : 4);
  }
};
using Arguments = std::map<std::string, Argument>;

Argument number(int64_t value) { return {.value = value}; }

const char *nameOf(Fill fill) {
  switch (fill) {
  case Fill::Random:
    return "random";
  case Fill::Scale:
    return "scale";
  case Fill::Zero:
    return "zero";
  case Fill::None:
    return "none";
  }
  __builtin_unreachable();
}

/// A kernel on so many rows.
struct Case {
  Description kernel;
  int64_t rows = 0;
  Arguments arguments;
};

json toJson(const Case &c) {
  json grid = json::array(), arguments = json::array();
  for (const Extent &extent : c.kernel.grid)
    grid.push_back({extent.factor, extent.rowsPerBlock});
  int64_t bytes = 0;
  for (const Parameter &parameter : c.kernel.parameters) {
    json entry = {{"name", parameter.name}};
    if (parameter.name == "rows") {
      entry["value"] = c.rows;
    } else {
      const Argument &argument = c.arguments.at(parameter.name);
      if (parameter.kind == Parameter::Pointer) {
        entry.update({{"type", argument.type},
                      {"count", argument.count},
                      {"fill", nameOf(argument.fill)},
                      {"rotated", argument.rotated},
                      {"written", parameter.written}});
        bytes += argument.scratch ? 0 : argument.bytes();
      } else {
        entry["value"] = argument.value;
      }
    }
    arguments.push_back(std::move(entry));
  }
  return {{"rows", c.rows},
          {"bytes", bytes},
          {"arguments", std::move(arguments)},
          {"kernel",
           {{"name", c.kernel.name},
            {"grid", std::move(grid)},
            {"threads", c.kernel.threads},
            {"shared_bytes", c.kernel.sharedBytes}}}};
}

//===- What is compiled ---------------------------------------------------===//

/// The kernels of one layer: one module.
struct Layer {
  std::string family;
  int64_t n = 0, k = 0; ///< n is 0 for operations on rows of k columns
  json facts;           ///< what the checks have to know
  std::vector<Case> cases;
  std::function<void(mlir::gpu::GPUModuleOp)> emit;

  std::string name() const {
    return n ? fmt::format("{}_{}x{}", family, n, k) : fmt::format("{}_{}", family, k);
  }
};

/// Weights of one kind, on activations of one kind.
struct Linear {
  const char *family;
  bool integer;
  int bits;
  int64_t group;
  ScaleFormat scales;

  numerics::FragmentOrder order() const {
    return integer ? numerics::FragmentOrder::M16N8K32 : numerics::FragmentOrder::M16N8K16;
  }
};

template <typename Spec> Spec specOf(const Linear &linear, int64_t n, int64_t k) {
  Spec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = linear.bits;
  spec.groupSize = linear.group;
  spec.scales = linear.scales;
  spec.output = Float::BF16;
  return spec;
}

/// Its packed weights. What these benchmarks ask for there are fragments of.
Arguments weightsOf(const Linear &linear, int64_t n, int64_t k) {
  auto granularity = linear.group ? numerics::Granularity::Group : numerics::Granularity::Channel;
  numerics::Scheme scheme{linear.bits, true, granularity, linear.group};
  scheme.scales = linear.scales;
  auto layout = *numerics::fragmentLayout(scheme, linear.order(), n, k);
  int64_t scales = layout.bytes(numerics::WeightTensor::Scales) / scaleBytes(linear.scales);
  return {{"w", {"u8", layout.bytes(numerics::WeightTensor::Codes), Fill::Random, true}},
          {"wscales", {numerics::toString(linear.scales), scales, Fill::Scale, true}}};
}

/// What the checks have to know.
json factsOf(const Linear &linear) {
  return {{"bits", linear.bits},
          {"group_size", linear.group},
          {"order", linear.integer ? "m16n8k32" : "m16n8k16"}};
}

/// Emits the kernels for so many rows each.
template <typename Spec, typename Kernel>
auto emitterOf(const Spec &spec, const std::vector<Kernel> &kernels,
               const std::vector<int64_t> &rows, const Chip &chip) {
  return [=](mlir::gpu::GPUModuleOp module) {
    for (int64_t m : rows)
      getOrEmit(module, spec, kernelFor(kernels, m));
  };
}

/// Scratch memory of kernels whose blocks share K.
template <typename Kernel> void addScratch(Arguments &arguments, const Kernel &kernel, int64_t m) {
  arguments["partials"] = {
      .type = "u8", .count = kernel.partialBytes(m), .fill = Fill::None, .scratch = true};
  arguments["counters"] = {
      .type = "i32", .count = kernel.counterCount(m), .fill = Fill::Zero, .scratch = true};
}

Layer integerLinear(const Linear &linear, int64_t n, int64_t k, const std::vector<int64_t> &rows,
                    const Chip &chip) {
  auto spec = specOf<LinearSpec>(linear, n, k);
  std::vector<LinearKernel> kernels = linearKernels(spec, chip);
  Layer layer{linear.family, n, k, factsOf(linear), {}, {}};
  for (int64_t m : rows) {
    Arguments arguments = weightsOf(linear, n, k);
    arguments["codes"] = {"i8", m * paddedColumns(k)};
    arguments["scales"] = {"f32", m, Fill::Scale};
    arguments["y"] = {"bf16", m * n, Fill::None};
    arguments["y_stride"] = number(n);
    addScratch(arguments, kernelFor(kernels, m), m);
    layer.cases.push_back({kernelFor(kernels, m).description, m, std::move(arguments)});
  }
  layer.emit = emitterOf(spec, kernels, rows, chip);
  return layer;
}

Layer floatLinear(const Linear &linear, int64_t n, int64_t k, const std::vector<int64_t> &rows,
                  const Chip &chip) {
  auto spec = specOf<WeightOnlySpec>(linear, n, k);
  std::vector<WeightOnlyKernel> kernels = weightOnlyKernels(spec, chip);
  const int64_t stride = (k + 7) / 8 * 8;
  Layer layer{linear.family, n, k, factsOf(linear), {}, {}};
  for (int64_t m : rows) {
    const WeightOnlyKernel &kernel = kernelFor(kernels, m);
    Arguments arguments;
    if (spec.isFloat())
      arguments["w"] = {"bf16", numerics::floatFragmentBytes(n, k) / 2, Fill::Random, true};
    else
      arguments = weightsOf(linear, n, k);
    arguments["x"] = {"bf16", m * stride};
    arguments["x_stride"] = number(stride);
    arguments["y"] = {"bf16", m * n, Fill::None};
    arguments["y_stride"] = number(n);
    addScratch(arguments, kernel, m);
    layer.cases.push_back({kernel.description, m, std::move(arguments)});
  }
  layer.emit = emitterOf(spec, kernels, rows, chip);
  return layer;
}

Layer rowOperation(const std::string &family, RowOp op, int64_t columns,
                   const std::vector<int64_t> &rows, const Chip &chip) {
  RowSpec spec;
  spec.op = op;
  spec.columns = columns;
  spec.constant = 1e-5;
  spec.quantization = RowQuantization::Dynamic;
  Layer layer{family, 0, columns, {{"epsilon", spec.constant}}, {}, {}};
  for (int64_t m : rows)
    layer.cases.push_back({describe(spec),
                           m,
                           {{"x", {"f32", m * columns, Fill::Random, true}},
                            {"x_stride", number(columns)},
                            {"weight", {"f32", columns}},
                            {"codes", {"i8", m * paddedColumns(columns), Fill::None, true}},
                            {"scales", {"f32", m, Fill::None, true}}}});
  layer.emit = [=](mlir::gpu::GPUModuleOp module) { getOrEmit(module, spec, chip); };
  return layer;
}

constexpr Linear kLinears[] = {
    {"w8a8", true, 8, 0, ScaleFormat::F32},         {"w4a8", true, 4, 128, ScaleFormat::F32},
    {"w4a8_f16", true, 4, 128, ScaleFormat::F16},   {"w2a8_f16", true, 2, 128, ScaleFormat::F16},
    {"w8a16", false, 8, 0, ScaleFormat::F32},       {"w4a16", false, 4, 128, ScaleFormat::F32},
    {"w4a16_f16", false, 4, 128, ScaleFormat::F16}, {"w3a16", false, 3, 128, ScaleFormat::F32},
    {"w2a16", false, 2, 128, ScaleFormat::F32},     {"bf16", false, 16, 0, ScaleFormat::F32},
};
struct RowFamily {
  const char *family;
  RowOp op;
};
constexpr RowFamily kRowOps[] = {{"quantize", RowOp::Quantize},
                                 {"rms_norm_quantize", RowOp::RmsNorm}};

//===- Compiling ----------------------------------------------------------===//

Result<std::string> ptxOf(const Layer &layer, const Chip &chip) {
  mlir::DialectRegistry registry;
  registerKernelDialects(registry);
  registerTranslations(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  mlir::OpBuilder b(module->getBodyRegion());
  auto kernels = mlir::gpu::GPUModuleOp::create(b, module->getLoc(), "kernels");
  setTarget(kernels, chip);
  layer.emit(kernels);
  mlir::PassManager pm(&context);
  buildLowerToNVVMPipeline(pm);
  if (mlir::succeeded(mlir::verify(*module)) && mlir::succeeded(pm.run(*module)))
    if (auto ptx = emitPTX(kernels, chip); mlir::succeeded(ptx))
      return std::move(*ptx);
  return makeError(ErrorCode::Unsupported, "{}: no PTX for {}; the reason stands above",
                   layer.name(), chip.name);
}

Result<void> write(const std::filesystem::path &path, const std::string &bytes) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << bytes << std::flush))
    return makeError(ErrorCode::IO, "{}: cannot be written; check the folder and the free space",
                     path.string());
  return {};
}

Result<void> compile(const Layer &layer, const Chip &chip, const Assembler *assembler,
                     const std::filesystem::path &folder) {
  auto ptx = ptxOf(layer, chip);
  if (!ptx)
    return Unexpected(ptx.error());
  if (auto written = write(folder / (layer.name() + ".ptx"), *ptx); !written || !assembler)
    return written;
  auto cubin = assembler->assemble(*ptx, std::string(chip.name));
  if (!cubin)
    return Unexpected(cubin.error());
  auto fatbin = assembler->makeFatbin({std::move(*cubin)}, "", "");
  if (!fatbin)
    return Unexpected(fatbin.error());
  return write(folder / (layer.name() + ".fatbin"), *fatbin);
}

Result<std::vector<Layer>> layersOf(const bench::GPUKernelOptions &options, const Chip &chip) {
  std::vector<Layer> layers;
  std::set<int64_t> columns;
  auto wanted = [&](const char *family) {
    return std::ranges::find(options.families, family) != options.families.end();
  };
  for (const std::string &shape : options.shapes) {
    long long n = 0, k = 0;
    int end = 0;
    // Groups are of 128 columns: K is to consist of whole ones.
    if (std::sscanf(shape.c_str(), "%lldx%lld%n", &n, &k, &end) != 2 || end != std::ssize(shape) ||
        n < 1 || k < 128 || k % 128 != 0)
      return makeError(ErrorCode::InvalidArgument,
                       "--shapes: found {}; expected NxK, K a multiple of 128, as 4096x11008",
                       shape);
    columns.insert(k);
    for (const Linear &linear : kLinears)
      if (wanted(linear.family))
        layers.push_back(
            (linear.integer ? integerLinear : floatLinear)(linear, n, k, options.rows, chip));
  }
  for (const RowFamily &row : kRowOps)
    if (wanted(row.family))
      for (int64_t k : columns)
        layers.push_back(rowOperation(row.family, row.op, k, options.rows, chip));
  return layers;
}

} // namespace

std::vector<std::string> bench::allKernelFamilies() {
  std::vector<std::string> names;
  for (const Linear &linear : kLinears)
    names.push_back(linear.family);
  for (const RowFamily &row : kRowOps)
    names.push_back(row.family);
  return names;
}

Result<void> bench::prepareGPUKernels(const GPUKernelOptions &options) {
  auto chip = findChip(options.chip);
  if (!chip)
    return Unexpected(chip.error());
  auto layers = layersOf(options, *chip);
  if (!layers)
    return Unexpected(layers.error());
  Result<Assembler> assembler = Assembler::find();
  if (!assembler && !options.ptxOnly)
    fmt::print(stderr, "warning: PTX only: {}\n", assembler.error().message);
  const bool machineCode = assembler && !options.ptxOnly;
  std::error_code error;
  std::filesystem::create_directories(options.out, error);

  std::vector<Result<void>> results(layers->size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < options.jobs; ++i)
    workers.emplace_back([&] {
      for (size_t at = next++; at < layers->size(); at = next++)
        results[at] =
            compile((*layers)[at], *chip, machineCode ? &*assembler : nullptr, options.out);
    });
  for (std::thread &worker : workers)
    worker.join();
  for (const Result<void> &result : results)
    if (!result)
      return result;

  json cases = json::array();
  for (const Layer &layer : *layers)
    for (const Case &c : layer.cases) {
      json entry = toJson(c);
      entry.update({{"family", layer.family},
                    {"n", layer.n},
                    {"k", layer.k},
                    {"facts", layer.facts},
                    {"module", layer.name()},
                    {"operations", 2 * c.rows * layer.n * layer.k}});
      cases.push_back(std::move(entry));
    }
  json document = {
      {"chip", chip->name}, {"machine_code", machineCode}, {"cases", std::move(cases)}};
  return write(options.out / "cases.json", document.dump() + "\n");
}
