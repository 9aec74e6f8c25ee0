//===- CompiledSubgraph.cpp - Subgraphs of a model, compiled and run ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/CompiledSubgraph.h"

#include "HostOperations.h"
#include "HostProgram.h"

#include "easyquant/Formats/Step.h"
#include "easyquant/Support/Threads.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

Result<Buffer> execution::allocateMemory(int64_t bytes) {
  return Buffer::allocate(bytes, "calibration", "use fewer or shorter samples");
}

//===----------------------------------------------------------------------===//
// SubgraphCompiler
//===----------------------------------------------------------------------===//

Result<SubgraphCompiler> SubgraphCompiler::create(const EngineOptions &options) {
  SubgraphCompiler compiler;
  compiler.settings = options;
  Result<std::string> isa = HostProgram::chooseIsa(options.isa, "calibration");
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

SubgraphCompiler::SubgraphCompiler(SubgraphCompiler &&) noexcept = default;
SubgraphCompiler::~SubgraphCompiler() = default;

void SubgraphCompiler::getDependentDialects(DialectRegistry &registry) {
  HostProgram::getDependentDialects(registry);
}

FailureOr<CompiledSubgraph> SubgraphCompiler::compile(const Subgraph &subgraph) {
  FailureOr<OutlinedSubgraph> outlined = outline(subgraph, settings.length);
  if (failed(outlined))
    return failure();
  Location loc = subgraph.inputs.front().getLoc();
  size_t arguments = 10 + subgraph.inputs.size() + subgraph.outputs.size();
  if (arguments > HostProgram::kMaxArguments)
    return emitError(loc) << "a subgraph of " << subgraph.inputs.size() << " inputs and "
                          << subgraph.outputs.size() << " outputs has too many arguments";

  EngineOptions options = settings;
  if (outlined->isWhole)
    options.maxRows = options.length;
  std::string text;
  llvm::raw_string_ostream stream(text);
  outlined->module->print(stream);
  std::shared_ptr<const HostProgram> &code = cache[text];
  if (!code) {
    auto compiled = HostProgram::compile(*outlined->module, options.isa, options.maxRows);
    if (failed(compiled)) {
      cache.erase(text);
      return failure();
    }
    code = *compiled;
  }

  CompiledSubgraph program;
  program.program = code;
  program.workspace = workspace;
  program.options = options;
  llvm::append_range(program.inputTypes, ValueRange(subgraph.inputs).getTypes());
  llvm::append_range(program.outputTypes, ValueRange(subgraph.outputs).getTypes());
  outlined->module = {};
  program.subgraph = std::move(*outlined);
  Result<Buffer> memory = allocateMemory(program.subgraph.weightBytes);
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
  if (failed(grow(workspace->arena,
                  code->arenaBytes + settings.threads * code->arenaBytesPerThread)) ||
      failed(grow(workspace->cache, code->cache.pagesOf(options.length) * code->cache.pageBytes)))
    return failure();
  return program;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Matrix CompiledSubgraph::view(const SubgraphWeight &weight) const {
  float *data = reinterpret_cast<float *>(weightMemory.data() + weight.offset);
  int64_t rows = weight.type.getRank() == 1 ? 1 : weight.type.getDimSize(0);
  return {data, rows, weight.type.getNumElements() / rows};
}

int64_t CompiledSubgraph::multiplications() const {
  int64_t count = 0;
  for (const SubgraphWeight &weight : subgraph.weights)
    if (weight.type.getRank() == 2 && !weight.isEmbedding)
      count += weight.type.getNumElements();
  return count;
}

LogicalResult CompiledSubgraph::load(const ModelConstants &constants) {
  for (const SubgraphWeight &weight : subgraph.weights)
    if (failed(constants.read(weight.value, weight.global,
                              std::span(view(weight).data, weight.type.getNumElements()))))
      return failure();
  for (const SubgraphWeight &weight : subgraph.weights)
    constants.source().release(weight.global);
  return success();
}

Matrix CompiledSubgraph::weight(StringRef global) {
  for (const SubgraphWeight &weight : subgraph.weights)
    if (weight.global == global)
      return view(weight);
  return {};
}

void CompiledSubgraph::roundInput(size_t number, equant::SchemeAttr scheme) {
  for (HostCall &call : subgraph.calls)
    if (call.rounding == static_cast<int64_t>(number))
      call.operation = roundingBy(scheme);
}

Result<void> CompiledSubgraph::setWeight(StringRef global, ConstMatrix values) {
  bool found = false;
  for (const SubgraphWeight &weight : subgraph.weights) {
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
    return makeError(ErrorCode::NotFound, "the subgraph reads no weight '{}'", global.str());
  return {};
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

static int64_t columnsOf(Type type) { return cast<RankedTensorType>(type).getShape().back(); }
/// Tokens, or the gradient of a vector.
static bool isVector(Type type) { return cast<RankedTensorType>(type).getRank() == 1; }
/// The gradient of a weight.
static bool isStatic(Type type) { return cast<RankedTensorType>(type).hasStaticShape(); }

/// The number of tokens.
Result<int64_t> CompiledSubgraph::check(ArrayRef<ConstMatrix> inputs, ArrayRef<Matrix> outputs,
                                        std::span<const int32_t> tokens) const {
  size_t expected = llvm::count_if(inputTypes, [](Type type) { return !isVector(type); });
  if (inputs.size() != expected || outputs.size() != outputTypes.size())
    return makeError(ErrorCode::InvalidArgument,
                     "the subgraph has {} inputs and {} outputs, found {} and {}", expected,
                     outputTypes.size(), inputs.size(), outputs.size());
  int64_t rows = inputs.empty() ? static_cast<int64_t>(tokens.size()) : inputs.front().rows;
  if (rows < 1 || rows > options.length)
    return makeError(ErrorCode::InvalidArgument, "a sequence of {} tokens, expected 1 to {}", rows,
                     options.length);
  auto checkShape = [&](ConstMatrix matrix, Type type) -> Result<void> {
    const int64_t expected = !isStatic(type)  ? rows
                             : isVector(type) ? 1
                                              : cast<RankedTensorType>(type).getDimSize(0);
    if (matrix.rows == expected && matrix.columns == columnsOf(type))
      return {};
    return makeError(ErrorCode::InvalidArgument, "expected {} of {}x{}, found {}x{}",
                     isStatic(type) ? "a gradient" : "activations", expected, columnsOf(type),
                     matrix.rows, matrix.columns);
  };
  size_t next = 0;
  for (Type type : inputTypes) {
    if (!isVector(type)) {
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
/// What the compiled code hands back with every call.
struct HostContext {
  const OutlinedSubgraph &subgraph;
  Observer observer;
  int64_t position;
  unsigned threads;
};
} // namespace

static std::span<const int32_t> integersOf(const HostOperand &operand) {
  return {static_cast<const int32_t *>(operand.data), static_cast<size_t>(operand.columns)};
}

static void callHost(void *context, int64_t index, const HostOperand *operands) {
  auto *self = static_cast<HostContext *>(context);
  const HostCall &call = self->subgraph.calls[index];
  if (call.operation)
    return call.operation(operands, self->threads);
  if (!self->observer)
    return;
  const Observation &observation = self->subgraph.observations[call.observation];
  ObservedRows seen{ConstMatrix(static_cast<const float *>(operands->data), operands->rows,
                                operands->columns, operands->stride),
                    self->position};
  if (observation.experts > 0) {
    seen.order = integersOf(operands[1]);
    seen.offsets = integersOf(operands[2]);
  }
  self->observer(observation, seen);
}

Result<void> CompiledSubgraph::run(ArrayRef<ConstMatrix> inputs, ArrayRef<Matrix> outputs,
                                   Observer observer, std::span<const int32_t> tokens) {
  Result<int64_t> length = check(inputs, outputs, tokens);
  if (!length)
    return Unexpected(length.error());
  auto weights = memRef1D(weightMemory.data<int8_t>(), weightMemory.size());
  auto arena = memRef1D(workspace->arena.data<int8_t>(), workspace->arena.size());
  auto cache = memRef1D(workspace->cache.data<int8_t>(), workspace->cache.size());
  std::vector<int64_t> table;
  for (int64_t page = 0; page < program->cache.pagesOf(*length); ++page)
    table.push_back(page * program->cache.pageBytes);
  auto pages = memRef1D(table.data(), std::ssize(table));
  // A sequence begins with zeros, and a step reads the slot that the one before it has written.
  const int64_t values = subgraph.recurrentValues;
  Result<Buffer> state =
      values == 0 ? Buffer() : allocateMemory(2 * values * static_cast<int64_t>(sizeof(float)));
  if (!state)
    return Unexpected(state.error());
  auto *slots = state->data<float>();
  MemRef<float, 2> recurrent{slots, slots, 0, {2, values}, {values, 1}};
  HostContext context{subgraph, observer, 0, options.threads};
  for (int64_t position = 0; position < *length; position += options.maxRows) {
    int64_t count = std::min(options.maxRows, *length - position);
    context.position = position;
    std::deque<MemRef<float, 2>> matrices; // which the arguments point into
    std::deque<MemRef<float, 1>> vectors;
    std::deque<MemRef<int32_t, 1>> tokenVectors;
    SmallVector<uintptr_t> arguments;
    auto pass = [&](const void *pointer) {
      arguments.push_back(reinterpret_cast<uintptr_t>(pointer));
    };
    auto passMatrix = [&](ConstMatrix rows) {
      float *data = const_cast<float *>(rows.data); // an input is only read
      matrices.push_back({data, data, 0, {rows.rows, rows.columns}, {rows.stride, 1}});
      pass(&matrices.back());
    };
    auto passRows = [&](ConstMatrix rows) { passMatrix(rows.middleRows(position, count)); };
    pass(&weights);
    pass(&arena);
    pass(&cache);
    pass(&pages);
    size_t next = 0;
    for (Type type : inputTypes) {
      if (!isVector(type)) {
        passRows(inputs[next++]);
        continue;
      }
      tokenVectors.push_back(memRef1D(const_cast<int32_t *>(tokens.data()) + position, count));
      pass(&tokenVectors.back());
    }
    eq_sequence sequence = {};
    sequence.rows = static_cast<int32_t>(count);
    sequence.position = sequence.held = static_cast<int32_t>(position);
    sequence.capacity = static_cast<int32_t>(*length);
    sequence.next_slot = static_cast<int32_t>(position / options.maxRows % 2);
    sequence.slot = 1 - sequence.next_slot;
    auto *fields = reinterpret_cast<int32_t *>(&sequence);
    MemRef<int32_t, 2> batch{fields, fields, 0, {1, EQ_SEQUENCE_FIELDS}, {EQ_SEQUENCE_FIELDS, 1}};
    std::vector<int32_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    auto allRows = memRef1D(numbers.data(), count);
    for (StepArgument argument : subgraph.arguments)
      pass(argument == StepArgument::Batch       ? static_cast<const void *>(&batch)
           : argument == StepArgument::Recurrent ? static_cast<const void *>(&recurrent)
                                                 : static_cast<const void *>(&allRows));
    arguments.push_back(options.threads);
    if (!subgraph.calls.empty()) {
      pass(reinterpret_cast<const void *>(&callHost));
      pass(&context);
    }
    for (auto [output, type] : llvm::zip_equal(outputs, outputTypes)) {
      if (!isStatic(type)) {
        passRows(output);
      } else if (isVector(type)) {
        vectors.push_back(memRef1D(output.data, output.columns));
        pass(&vectors.back());
      } else {
        passMatrix(output);
      }
    }
    if (auto done = program->call(arguments, static_cast<int32_t>(options.threads)); !done)
      return done;
  }
  return {};
}
