//===- OnnxModel.cpp - A quantized module as an ONNX model ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OnnxModel.h"

#include "easyquant/Formats/Codecs/OnnxWeight.h"
#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Support/Version.h"
#include "easyquant/Support/WriteFile.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using formats::OnnxType;
using formats::OnnxWeight;
using numerics::Scheme;

static constexpr const char *kModelFile = "model.onnx", *kDataFile = "model.onnx.data";
/// Floats that are in memory at a time.
static constexpr int64_t kBlockFloats = int64_t(1) << 20;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// What the activation of a gate gives; not of a clamped one, which changes up, too.
static std::string activated(OnnxBuilder &b, const std::string &x, lm::GluActivation activation) {
  switch (activation) {
  case lm::GluActivation::Silu:
    return b.silu(x);
  case lm::GluActivation::GeluTanh:
    return b.gelu(x, lm::GeluApproximation::Tanh);
  case lm::GluActivation::None:
    return x;
  case lm::GluActivation::Sigmoid:
    return b.add("Sigmoid", {x});
  case lm::GluActivation::Clamped:
    break;
  }
  llvm_unreachable("clamped gates are refused before");
}

/// The module of the checkpoint that an op belongs to.
static std::string placeOf(Operation *op) {
  if (auto linear = dyn_cast<equant::LinearOp>(op))
    if (!linear.getSites().empty())
      return cast<StringAttr>(linear.getSites()[0]).str();
  if (auto linear = dyn_cast<lm::LinearOp>(op))
    return linear.getSite().str();
  if (auto name = dyn_cast<NameLoc>(op->getLoc()))
    return name.getName().str();
  return "model";
}

FailureOr<OnnxModel::Name> OnnxModel::valueOf(Operation *op, Value operand, const Scope &values) {
  if (auto known = values.find(operand); known != values.end())
    return known->second;
  return op->emitOpError("reads what is no activation of the model, which ONNX models have not");
}

FailureOr<OnnxModel::Name> OnnxModel::constantOf(Operation *op, Value operand, int ropeColumn) {
  const FloatConstant *constant = floatOf.lookup({op, operand});
  if (!constant)
    return op->emitOpError("reads what is no constant of the model");
  auto [known, isNew] = declaredAs.try_emplace({constant, ropeColumn});
  if (!isNew)
    return known->second;
  std::string name = constant->parts.front().global;
  std::vector<int64_t> shape(constant->type.getShape());
  if (constant->rope) {
    name = ropeColumn == 0 ? "rope.cosines" : "rope.sines";
    shape.pop_back();
  }
  contents.push_back({.floats = constant, .ropeColumn = ropeColumn});
  return known->second = b.graph.declare(std::move(name), OnnxType::Float, std::move(shape));
}

//===----------------------------------------------------------------------===//
// Quantized linears
//===----------------------------------------------------------------------===//

FailureOr<const OnnxModel::StoredWeight *> OnnxModel::storedWeight(equant::LinearOp op) {
  const ConstantWeight *weight = weightOf.lookup(op);
  if (!weight)
    return op.emitOpError("reads what is no weight of the model");
  const std::string name = placeOf(op);
  auto fail = [&](const Error &error) {
    return emitError(op.getLoc()) << "site '" << name << "': " << error.message;
  };
  auto site = checkpointSite(format, name, weight->rows, weight->columns, weight->scheme,
                             op.getInputSchemeAttr(), /*isKept=*/false);
  if (!site)
    return fail(site.error());
  if (auto ok = formats::checkOpset(opset, site->site); !ok)
    return fail(ok.error());
  if (FloatAttr scale = op.getInputScaleAttr())
    site->site.inputScale = scale.getValue().convertToFloat();
  if (IntegerAttr zeroPoint = op.getInputZeroPointAttr())
    site->site.inputZeroPoint = static_cast<int32_t>(zeroPoint.getInt());
  least = std::max(least, formats::leastOpset(site->site));
  return &stored.emplace_back(weight, std::move(*site));
}

/// The weight, dequantized.
OnnxModel::Name OnnxModel::addWeight(const StoredWeight &weight) {
  const formats::QuantizedSite &site = weight.site.site;
  const OnnxWeight form(site.weight, site.rows, site.columns);
  std::vector<Name> operands;
  for (const formats::CodecTensor &tensor : weight.site.codec->tensors()) {
    const bool isCodes = tensor.part == numerics::WeightTensor::Codes;
    const bool isScales = tensor.part == numerics::WeightTensor::Scales;
    operands.push_back(b.graph.declare(site.name + "." + tensor.name,
                                       isScales ? OnnxType::Float : form.type,
                                       isCodes ? form.codes : form.scales));
    contents.push_back({.stored = &weight, .tensor = tensor});
  }
  formats::OnnxAttributes attributes = {{"axis", form.axis}};
  if (form.blockSize != 0)
    attributes["block_size"] = form.blockSize;
  return b.add("DequantizeLinear", operands, attributes);
}

/// One scale a row of x: the largest magnitude over the largest code, as definition 2 of
/// Numerics/Quantize.h has it, but that rows below kMinAbsMax are not all 0.
OnnxModel::Name OnnxModel::dynamicScale(const Name &x, const Scheme &input) {
  Name largest =
      b.add("ReduceMax", {b.add("Abs", {x}), b.integers({-1})}, {{"keepdims", int64_t(0)}});
  largest = b.add("Max", {largest, b.real(numerics::kMinAbsMax)});
  return b.add("Div", {largest, b.real(numerics::codeValues(input).greatest)});
}

/// The activation as its codes give it back. Linears that read the same one with the same scale
/// share it.
OnnxModel::Name OnnxModel::quantizedInput(const Name &x, const formats::QuantizedSite &site) {
  const Scheme &input = *site.input;
  const std::string key = fmt::format("{} {} {} {}", x, numerics::toString(input), site.inputScale,
                                      site.inputZeroPoint);
  if (auto known = inputOf.find(key); known != inputOf.end())
    return known->second;
  const OnnxType type = formats::onnxInputType(input);
  Name rows = input.groupSize ? b.reshape(x, {-1, input.groupSize}) : x;
  std::vector<Name> operands;
  formats::OnnxAttributes quantize, dequantize;
  if (input.dynamic) {
    operands = {dynamicScale(rows, input)};
    dequantize = {{"axis", int64_t(0)}};
    quantize = {{"axis", int64_t(0)}, {"output_dtype", static_cast<int64_t>(type)}};
  } else {
    const auto zeroPoint =
        static_cast<char>(static_cast<uint8_t>(site.inputZeroPoint + formats::offsetOf(type)));
    // Codes end at -127, where QuantizeLinear knows -128. Those of FP8 saturate; but ONNX Runtime
    // would move a QuantizeLinear before operators that take no FP8.
    if (input.symmetric)
      rows = b.add("Max", {rows, b.real(numerics::codeValues(input).least * site.inputScale)});
    operands = {b.real(site.inputScale),
                b.graph.constant(b.scope + ".input_zero_point", type, {}, {zeroPoint})};
  }
  auto with = [&](Name first) {
    std::vector<Name> all = {std::move(first)};
    all.insert(all.end(), operands.begin(), operands.end());
    return all;
  };
  Name codes = b.add("QuantizeLinear", with(rows), quantize);
  Name back = b.add("DequantizeLinear", with(codes), dequantize);
  if (input.groupSize)
    back = b.reshape(back, {-1, site.columns});
  return inputOf[key] = back;
}

LogicalResult OnnxModel::addLinear(equant::LinearOp op, Scope &values) {
  FailureOr<Name> x = valueOf(op, op.getInput(), values);
  FailureOr<const StoredWeight *> weight = storedWeight(op);
  if (failed(x) || failed(weight))
    return failure();
  Name bias;
  if (op.getBias()) {
    FailureOr<Name> constant = constantOf(op, op.getBias());
    if (failed(constant))
      return failure();
    bias = *constant;
  }
  const formats::QuantizedSite &site = (*weight)->site.site;
  auto [dequantized, isNew] = dequantizedOf.try_emplace((*weight)->weight);
  if (isNew)
    dequantized->second = addWeight(**weight);
  const bool isRows = OnnxWeight(site.weight, site.rows, site.columns).isRows;
  const Name input = site.input ? quantizedInput(*x, site) : *x;
  // ONNX Runtime multiplies codes by QGemm, and would round a bias in it.
  const bool isApart = site.input && !bias.empty();
  const Name sums = b.linear(input, dequantized->second, isRows, isApart ? Name() : bias);
  values[op] = isApart ? b.add("Add", {sums, bias}) : sums;
  return success();
}

/// Blocks of columns times the matrix of Numerics/Hadamard.h.
OnnxModel::Name OnnxModel::rotated(const Name &x, HadamardOp op) {
  const int64_t block = op.getBlockAttr().getInt();
  const int64_t columns = op.getInput().getType().getDimSize(1);
  Name &matrix = hadamardOf[block];
  if (matrix.empty()) {
    matrix = b.graph.declare("hadamard." + std::to_string(block), OnnxType::Float, {block, block});
    contents.push_back({.hadamard = block});
  }
  return b.reshape(b.add("MatMul", {b.reshape(x, {-1, block}), matrix}), {-1, columns});
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

LogicalResult OnnxModel::addOp(Operation *op, Scope &values) {
  b.scope = placeOf(op);
  // The activation or constant that an operand is; "" after a diagnostic.
  bool isFailed = false;
  auto take = [&](FailureOr<Name> name) {
    isFailed |= failed(name);
    return failed(name) ? Name() : *name;
  };
  auto value = [&](Value operand) { return take(valueOf(op, operand, values)); };
  auto constant = [&](Value operand, int column = 0) {
    return take(operand ? constantOf(op, operand, column) : Name());
  };
  auto columns = [](Value x) { return cast<RankedTensorType>(x.getType()).getDimSize(1); };
  std::optional<Name> result =
      llvm::TypeSwitch<Operation *, std::optional<Name>>(op)
          .Case([&](lm::EmbeddingOp e) -> std::optional<Name> {
            if (e.getSharded())
              return std::nullopt;
            return b.embedding(constant(e.getTable()), b.tokens());
          })
          .Case([&](lm::PositionEmbeddingOp e) {
            return b.add("Add",
                         {value(e.getInput()), b.embedding(constant(e.getTable()), b.positions())});
          })
          .Case([&](lm::LinearOp linear) {
            return b.linear(value(linear.getInput()), constant(linear.getWeight()), /*isRows=*/true,
                            constant(linear.getBias()));
          })
          .Case([&](lm::RmsNormOp norm) {
            return b.rmsNorm(value(norm.getInput()), constant(norm.getWeight()),
                             norm.getEpsilon().convertToDouble());
          })
          .Case([&](lm::HeadRmsNormOp norm) {
            const Name heads = b.reshape(value(norm.getInput()), {-1, norm.columnsOfHead()});
            return b.reshape(
                b.rmsNorm(heads, constant(norm.getWeight()), norm.getEpsilon().convertToDouble()),
                {-1, columns(norm.getInput())});
          })
          .Case([&](lm::LayerNormOp norm) {
            return b.layerNorm(value(norm.getInput()), constant(norm.getWeight()),
                               constant(norm.getBias()), norm.getEpsilon().convertToDouble());
          })
          .Case([&](lm::RopeOp rope) {
            const auto headDim = static_cast<int64_t>(rope.getHeadDim());
            return b.rope(value(rope.getInput()), constant(rope.getTable(), 0),
                          constant(rope.getTable(), 1), columns(rope.getInput()) / headDim, headDim,
                          lm::rotatedDims(rope.getTable()));
          })
          .Case([&](lm::AttentionOp attention) -> std::optional<Name> {
            if (attention.getSinkLogits() ||
                !cachedLayers.insert(static_cast<int64_t>(attention.getLayer())).second)
              return std::nullopt;
            return b.attention(value(attention.getQuery()), value(attention.getKey()),
                               value(attention.getValue()), attention);
          })
          .Case([&](lm::GluOp gate) -> std::optional<Name> {
            if (gate.getActivation() == lm::GluActivation::Clamped)
              return std::nullopt;
            const Name x = value(gate.getGate());
            return b.add("Mul", {activated(b, x, gate.getActivation()), value(gate.getUp())});
          })
          .Case([&](lm::MultiplyOp product) {
            return b.multiply(value(product.getInput()), product.getFactor().convertToDouble());
          })
          .Case([&](lm::SoftCapOp cap) {
            return b.softCap(value(cap.getInput()), cap.getBound().convertToDouble());
          })
          .Case([&](lm::GeluOp gelu) {
            return b.gelu(value(gelu.getInput()), gelu.getApproximate());
          })
          .Case([&](lm::AddOp sum) {
            return b.add("Add", {value(sum.getLhs()), value(sum.getRhs())});
          })
          // All logits go out.
          .Case([&](lm::RowsOp rows) { return value(rows.getInput()); })
          .Case([&](HadamardOp rotation) { return rotated(value(rotation.getInput()), rotation); })
          .Default([](Operation *) { return std::nullopt; });
  if (isFailed)
    return failure();
  if (!result)
    return op->emitOpError("has no form in ONNX models, which keep floats of each layer from step "
                           "to step and nothing else; compile an artifact instead");
  for (Value output : op->getResults())
    values[output] = *result;
  return success();
}

LogicalResult OnnxModel::addCall(func::CallOp call, Scope &values) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
  if (!callee || callee.isExternal())
    return call.emitOpError("calls no function of the module");
  Scope inner;
  for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), callee.getArguments()))
    if (auto known = values.find(operand); known != values.end())
      inner[argument] = known->second;
  SmallVector<Name> results;
  if (failed(addFunction(callee, std::move(inner), results, /*isLayer=*/true)))
    return failure();
  for (auto [result, name] : llvm::zip_equal(call.getResults(), results))
    values[result] = name;
  return success();
}

/// Does the op make constants alone? Who reads them has them from ModelWeights.
static bool makesConstants(Operation *op) {
  return op->getNumResults() > 0 &&
         llvm::none_of(op->getResultTypes(), [](Type type) { return lm::isActivationType(type); });
}

LogicalResult OnnxModel::addFunction(func::FuncOp function, Scope values,
                                     SmallVectorImpl<Name> &results, bool isLayer) {
  for (Operation &op : function.front()) {
    if (auto call = dyn_cast<func::CallOp>(op)) {
      if (isLayer)
        return call.emitOpError("is in a layer; expected calls of layers alone");
      if (failed(addCall(call, values)))
        return failure();
    } else if (auto linear = dyn_cast<equant::LinearOp>(op)) {
      b.scope = placeOf(linear);
      if (failed(addLinear(linear, values)))
        return failure();
    } else if (auto split = dyn_cast<lm::SplitOp>(op)) {
      b.scope = placeOf(split);
      FailureOr<Name> x = valueOf(split, split.getInput(), values);
      if (failed(x))
        return failure();
      std::vector<int64_t> widths;
      for (Value output : split.getOutputs())
        widths.push_back(cast<RankedTensorType>(output.getType()).getDimSize(1));
      for (auto [output, name] : llvm::zip_equal(split.getOutputs(), b.split(*x, widths)))
        values[output] = name;
    } else if (auto done = dyn_cast<func::ReturnOp>(op)) {
      for (Value operand : done.getOperands()) {
        FailureOr<Name> name = valueOf(done, operand, values);
        if (failed(name))
          return failure();
        results.push_back(*name);
      }
    } else if (!makesConstants(&op) && failed(addOp(&op, values))) {
      return failure();
    }
  }
  return success();
}

LogicalResult OnnxModel::build(ModuleOp module, const ConstantReader &reader) {
  if (opset)
    if (auto known = formats::checkOpset(*opset); !known)
      return module.emitError() << known.error().message;
  if (failed(weights.collect(module, /*rank=*/0)) || failed(weights.check(module, reader)))
    return failure();
  for (const WeightUse &use : weights.uses()) {
    if (!isa<equant::LinearOp>(use.op))
      return emitError(use.op->getLoc())
             << "site '" << use.weight->parts.front().site << "': " << whyNoEmbedding(format);
    weightOf[use.op] = use.weight;
  }
  for (const FloatConstant &constant : weights.floats())
    for (OpOperand *operand : constant.readers)
      floatOf[{operand->getOwner(), operand->get()}] = &constant;
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  if (!forward || forward.isExternal() || forward.getNumResults() != 1)
    return module.emitError() << "has no function @forward of one result, the logits";
  b.begin();
  SmallVector<Name> results;
  if (failed(addFunction(forward, Scope(), results, /*isLayer=*/false)))
    return failure();
  b.finish(results.front(), cast<RankedTensorType>(forward.getResultTypes()[0]).getDimSize(1));
  return success();
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Result<void> OnnxModel::writeRope(const Content &content, const formats::OnnxGraph::Take &take) {
  const numerics::RopeParams &params = *content.floats->rope;
  const int64_t positions = content.floats->type.getDimSize(0), step = kBlockFloats / params.dims;
  std::vector<float> column;
  for (int64_t first = 0; first < positions; first += step) {
    auto table = numerics::ropeTable(params, std::min(step, positions - first), first);
    if (!table)
      return Unexpected(table.error());
    column.clear();
    for (size_t i = content.ropeColumn; i < table->size(); i += 2)
      column.push_back((*table)[i]);
    if (auto done = take(std::as_bytes(std::span(column))); !done)
      return done;
  }
  return {};
}

Result<void> OnnxModel::writeFloats(const Content &content, const ConstantReader &reader,
                                    const formats::OnnxGraph::Take &take) {
  std::vector<float> piece;
  for (const ConstantTensor &part : content.floats->parts) {
    const int64_t rows = part.shape.front(), columns = part.columns();
    const int64_t step = std::clamp<int64_t>(kBlockFloats / columns, 1, rows);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      piece.resize(count * columns);
      if (auto done = reader.readRows(part, row, count, piece); !done)
        return makeError(done.error().code, "site '{}': {}", content.floats->site,
                         done.error().message);
      if (auto done = take(std::as_bytes(std::span(piece))); !done)
        return done;
    }
  }
  return {};
}

static Result<void> writeHadamard(int64_t block, const formats::OnnxGraph::Take &take) {
  std::vector<float> matrix(static_cast<size_t>(block * block));
  for (int64_t i = 0; i < block; ++i) {
    matrix[i * block + i] = 1;
    numerics::rotateConstant(std::span(matrix).subspan(i * block, block), block);
  }
  return take(std::as_bytes(std::span(matrix)));
}

Result<void> OnnxModel::write(const std::filesystem::path &folder, const ConstantReader &reader,
                              unsigned threads, llvm::function_ref<void(int64_t)> progress) {
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  const StoredWeight *current = nullptr;
  numerics::PackedWeight packed;
  auto writeWeight = [&](const Content &content,
                         const formats::OnnxGraph::Take &take) -> Result<void> {
    const formats::WeightCodec &codec = *content.stored->site.codec;
    if (current != content.stored) {
      const numerics::WeightLayout *layout = &codec;
      Result<EvaluatedWeight> evaluated = evaluate(*content.stored->weight, layout, reader, pool);
      if (!evaluated)
        return Unexpected(evaluated.error());
      packed = std::move(evaluated->packed.front());
      current = content.stored;
    }
    Result<std::vector<uint8_t>> bytes = codec.take(content.tensor, packed);
    return bytes ? take(std::as_bytes(std::span(*bytes))) : Unexpected(bytes.error());
  };
  int64_t written = 0;
  auto read = [&](const formats::OnnxGraph::Constant &,
                  const formats::OnnxGraph::Take &take) -> Result<void> {
    const Content &content = contents[written];
    Result<void> done = content.hadamard       ? writeHadamard(content.hadamard, take)
                        : content.stored       ? writeWeight(content, take)
                        : content.floats->rope ? writeRope(content, take)
                                               : writeFloats(content, reader, take);
    progress(++written);
    return done;
  };
  if (auto done = b.graph.writeConstants(folder / kDataFile, read); !done)
    return done;
  return writeFile(folder / kModelFile,
                   b.graph.model(opset.value_or(least), EASYQUANT_VERSION,
                                 reader.source().config().architecture->name, kDataFile));
}
