//===- SliceProgram.cpp - Slices of a model, compiled and run -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Calibration/SliceProgram.h"

#include "HostProgram.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Support/Threads.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <deque>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using numerics::ConstMatrix;
using numerics::Matrix;

Result<Buffer> calibration::allocateMemory(int64_t bytes) {
  return Buffer::allocate(bytes, "calibration", "use fewer or shorter samples");
}

//===----------------------------------------------------------------------===//
// SliceCompiler
//===----------------------------------------------------------------------===//

Result<SliceCompiler> SliceCompiler::create(const EngineOptions &options) {
  SliceCompiler compiler;
  compiler.settings = options;
  Result<std::string> isa = runtime::selectIsa(options.isa, {{"avx2", ""}, {"avx512vnni", ""}},
                                               runtime::CpuFeatures::host(), "calibration");
  if (!isa)
    return Unexpected(isa.error());
  compiler.settings.isa = *isa;
  Result<int32_t> threads = chooseThreads(options.threads);
  if (!threads)
    return Unexpected(threads.error());
  compiler.settings.threads = static_cast<unsigned>(*threads);
  if (options.length < 1 || options.maxRows < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "sequences of {} tokens in chunks of {}: expected at least 1", options.length,
                     options.maxRows);
  compiler.settings.maxRows = std::min(options.maxRows, options.length);
  return compiler;
}

SliceCompiler::SliceCompiler(SliceCompiler &&) noexcept = default;
SliceCompiler::~SliceCompiler() = default;

void SliceCompiler::getDependentDialects(DialectRegistry &registry) {
  HostProgram::getDependentDialects(registry);
}

FailureOr<SliceProgram> SliceCompiler::compile(const Slice &slice) {
  FailureOr<OutlinedSlice> outlined = outline(slice, settings.length);
  if (failed(outlined))
    return failure();
  Location loc = slice.inputs.front().getLoc();
  size_t arguments = 8 + slice.inputs.size() + slice.outputs.size();
  if (arguments > HostProgram::kMaxArguments)
    return emitError(loc) << "a slice of " << slice.inputs.size() << " inputs and "
                          << slice.outputs.size() << " outputs has too many arguments";

  std::string text;
  llvm::raw_string_ostream stream(text);
  outlined->module->print(stream);
  std::shared_ptr<const HostProgram> &code = cache[text];
  if (!code) {
    auto compiled = HostProgram::compile(*outlined->module, settings.isa, settings.maxRows);
    if (failed(compiled)) {
      cache.erase(text);
      return failure();
    }
    code = *compiled;
  }

  SliceProgram program;
  program.program = code;
  program.workspace = workspace;
  program.options = settings;
  llvm::append_range(program.inputTypes, ValueRange(slice.inputs).getTypes());
  llvm::append_range(program.outputTypes, ValueRange(slice.outputs).getTypes());
  outlined->module = {};
  program.slice = std::move(*outlined);
  Result<Buffer> memory = allocateMemory(program.slice.weightBytes);
  if (!memory)
    return emitError(loc) << memory.error().message;
  program.weightMemory = std::move(*memory);

  auto grow = [&](Buffer &buffer, int64_t bytes) -> LogicalResult {
    if (buffer.size() >= bytes)
      return success();
    buffer = Buffer(); // not both at once
    Result<Buffer> larger = allocateMemory(bytes);
    if (!larger)
      return emitError(loc) << larger.error().message;
    buffer = std::move(*larger);
    return success();
  };
  int64_t capacity = llvm::alignTo(settings.length, cpu::kCacheBlock);
  if (failed(grow(workspace->arena,
                  code->arenaBytes + settings.threads * code->arenaBytesPerThread)) ||
      failed(grow(workspace->cache, capacity * code->cacheBytesPerToken)))
    return failure();
  return program;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Matrix SliceProgram::view(const SliceWeight &weight) const {
  float *data = reinterpret_cast<float *>(weightMemory.data() + weight.offset);
  int64_t rows = weight.type.getRank() == 1 ? 1 : weight.type.getDimSize(0);
  return {data, rows, weight.type.getNumElements() / rows};
}

LogicalResult SliceProgram::load(const ModelConstants &constants) {
  for (const SliceWeight &weight : slice.weights)
    if (failed(constants.read(weight.value, weight.global,
                              std::span(view(weight).data, weight.type.getNumElements()))))
      return failure();
  for (const SliceWeight &weight : slice.weights)
    constants.source().release(weight.global);
  return success();
}

Matrix SliceProgram::weight(StringRef global) {
  for (const SliceWeight &weight : slice.weights)
    if (weight.global == global)
      return view(weight);
  return {};
}

Result<void> SliceProgram::setWeight(StringRef global, ConstMatrix values) {
  bool found = false;
  for (const SliceWeight &weight : slice.weights) {
    if (weight.global != global)
      continue;
    found = true;
    Matrix place = view(weight);
    if (place.rows != values.rows || place.columns != values.columns)
      return makeError(ErrorCode::InvalidArgument, "weight '{}' is {}x{}, found {}x{}",
                       weight.global, place.rows, place.columns, values.rows, values.columns);
    for (int64_t row = 0; row < values.rows; ++row)
      std::copy_n(values.row(row), values.columns, place.row(row));
  }
  if (!found)
    return makeError(ErrorCode::NotFound, "the slice reads no weight '{}'", global.str());
  return {};
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

static int64_t columnsOf(Type type) { return cast<RankedTensorType>(type).getDimSize(1); }
static bool isTokens(Type type) { return cast<RankedTensorType>(type).getRank() == 1; }

/// The number of tokens.
Result<int64_t> SliceProgram::check(ArrayRef<ConstMatrix> inputs, ArrayRef<Matrix> outputs,
                                    std::span<const int32_t> tokens) const {
  size_t expected = llvm::count_if(inputTypes, [](Type type) { return !isTokens(type); });
  if (inputs.size() != expected || outputs.size() != outputTypes.size())
    return makeError(ErrorCode::InvalidArgument,
                     "the slice has {} inputs and {} outputs, found {} and {}", expected,
                     outputTypes.size(), inputs.size(), outputs.size());
  int64_t rows = inputs.empty() ? static_cast<int64_t>(tokens.size()) : inputs.front().rows;
  if (rows < 1 || rows > options.length)
    return makeError(ErrorCode::InvalidArgument, "a sequence of {} tokens, expected 1 to {}", rows,
                     options.length);
  auto checkShape = [&](ConstMatrix matrix, Type type) -> Result<void> {
    if (matrix.rows == rows && matrix.columns == columnsOf(type))
      return {};
    return makeError(ErrorCode::InvalidArgument, "expected activations of {}x{}, found {}x{}", rows,
                     columnsOf(type), matrix.rows, matrix.columns);
  };
  size_t next = 0;
  for (Type type : inputTypes) {
    if (!isTokens(type)) {
      if (auto ok = checkShape(inputs[next++], type); !ok)
        return Unexpected(ok.error());
    } else if (static_cast<int64_t>(tokens.size()) != rows) {
      return makeError(ErrorCode::InvalidArgument, "expected {} tokens, found {}", rows,
                       tokens.size());
    }
  }
  for (auto [output, type] : llvm::zip_equal(outputs, outputTypes))
    if (auto ok = checkShape(output, type); !ok)
      return Unexpected(ok.error());
  return rows;
}

namespace {
/// What the compiled code hands back with every observed chunk.
struct ObserverContext {
  ArrayRef<Observation> observations;
  Observer observer;
  int64_t position;
};
} // namespace

static void observe(void *context, int64_t index, const float *data, int64_t rows, int64_t columns,
                    int64_t stride) {
  auto *self = static_cast<ObserverContext *>(context);
  if (self->observer)
    self->observer(self->observations[index], self->position,
                   ConstMatrix(data, rows, columns, stride));
}

Result<void> SliceProgram::run(ArrayRef<ConstMatrix> inputs, ArrayRef<Matrix> outputs,
                               Observer observer, std::span<const int32_t> tokens) {
  Result<int64_t> length = check(inputs, outputs, tokens);
  if (!length)
    return Unexpected(length.error());
  using runtime::MemRef;
  // The cache is divided by its size, so each program sees as much as it was planned for.
  int64_t capacity = llvm::alignTo(options.length, cpu::kCacheBlock);
  auto weights = runtime::memRef1D(weightMemory.data<int8_t>(), weightMemory.size());
  auto arena = runtime::memRef1D(workspace->arena.data<int8_t>(), workspace->arena.size());
  auto cache =
      runtime::memRef1D(workspace->cache.data<int8_t>(), capacity * program->cacheBytesPerToken);
  ObserverContext context{slice.observations, observer, 0};
  for (int64_t position = 0; position < *length; position += options.maxRows) {
    int64_t count = std::min(options.maxRows, *length - position);
    context.position = position;
    std::deque<MemRef<float, 2>> matrices; // which the arguments point into
    std::deque<MemRef<int32_t, 1>> vectors;
    SmallVector<uintptr_t> arguments;
    auto pass = [&](const void *pointer) {
      arguments.push_back(reinterpret_cast<uintptr_t>(pointer));
    };
    auto passRows = [&](ConstMatrix rows) {
      float *data = const_cast<float *>(rows.row(position)); // an input is only read
      matrices.push_back({data, data, 0, {count, rows.columns}, {rows.stride, 1}});
      pass(&matrices.back());
    };
    pass(&weights);
    pass(&arena);
    pass(&cache);
    size_t next = 0;
    for (Type type : inputTypes) {
      if (!isTokens(type)) {
        passRows(inputs[next++]);
        continue;
      }
      vectors.push_back(runtime::memRef1D(const_cast<int32_t *>(tokens.data()) + position, count));
      pass(&vectors.back());
    }
    for (bool isPosition : slice.indices)
      arguments.push_back(isPosition ? position : 0);
    arguments.push_back(options.threads);
    if (!slice.observations.empty()) {
      pass(reinterpret_cast<const void *>(&observe));
      pass(&context);
    }
    for (Matrix output : outputs)
      passRows(output);
    if (auto done = program->call(arguments, static_cast<int32_t>(options.threads)); !done)
      return done;
  }
  return {};
}
