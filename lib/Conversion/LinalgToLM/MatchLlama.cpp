//===- MatchLlama.cpp - LLaMA in upstream ops -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the logits back to the tokens. Each function takes a value, checks that it is what its name
// says, and gives what that is computed from. Reshapes lie between most ops; shapes are checked
// where they decide what elements are: at products, transpositions and tables.
//
//===----------------------------------------------------------------------===//

#include "MatchLlama.h"

#include "Elementwise.h"

#include "easyquant/Conversion/EquantToLinalg/CompiledModule.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;

/// The mask has a float for each pair of them.
static constexpr int64_t kMostTokens = 32768;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static bool hasShape(Value value, ArrayRef<int64_t> shape) {
  return typeOf(value).getShape() == shape;
}
static bool isNear(double found, double wanted) {
  return std::fabs(found - wanted) <= 1e-6 * std::fabs(wanted);
}

/// Loops of these dialects on static shapes end, and write nowhere else.
static bool followsFromConstants(Operation *op) {
  auto isFree = [](Operation *inner) {
    return isa_and_present<linalg::LinalgDialect, arith::ArithDialect, math::MathDialect,
                           tensor::TensorDialect>(inner->getDialect()) ||
           isa<cf::AssertOp>(inner);
  };
  auto isArgument = [](Value operand) {
    auto argument = dyn_cast<BlockArgument>(operand);
    return argument && isa<func::FuncOp>(argument.getOwner()->getParentOp());
  };
  return !op->walk([&](Operation *inner) {
              return WalkResult(
                  failure(!isFree(inner) || llvm::any_of(inner->getOperands(), isArgument)));
            }).wasInterrupted();
}

/// What constants alone decide: one of them, or what the ops behind it give as they run here.
static FailureOr<std::vector<float>> valuesOf(Value value) {
  if (auto constant = ModuleConstant::match(value)) {
    Result<std::vector<float>> values = constant->read(ParameterFiles());
    if (!values)
      return emitError(value.getLoc()) << values.error().message;
    return std::move(*values);
  }
  llvm::SetVector<Operation *> ops;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.filter = [](Operation *op) { return !isa<func::FuncOp>(op); };
  const bool isKnown = value.getDefiningOp() && succeeded(getBackwardSlice(value, &ops, options));
  if (!isKnown || !llvm::all_of(ops, followsFromConstants))
    return emitError(value.getLoc())
           << "a table that depends on the tokens, or on ops beside linalg, arith, math and "
              "tensor, "
              "has no place in a LLaMA: expected one that constants decide";
  OwningOpRef<ModuleOp> module = ModuleOp::create(value.getLoc());
  OpBuilder builder(module->getContext());
  auto function = func::FuncOp::create(value.getLoc(), "table", builder.getFunctionType({}, {}));
  module->push_back(function);
  builder.setInsertionPointToStart(function.addEntryBlock());
  IRMapping mapping;
  for (Operation *op : ops) // in an order in which values come before their uses
    builder.clone(*op, mapping);
  CompiledModule::addObserver(builder, value.getLoc(), *module, 0, mapping.lookup(value));
  func::ReturnOp::create(builder, value.getLoc());
  FailureOr<CompiledModule> program = CompiledModule::compile(*module, "table");
  if (failed(program))
    return emitError(value.getLoc()) << "the table cannot be computed here; expected a constant";
  std::vector<float> values;
  Result<void> done = program->run(
      {}, [&](int64_t, std::span<const float> seen) { values.assign(seen.begin(), seen.end()); });
  if (!done)
    return emitError(value.getLoc()) << done.error().message;
  return values;
}

namespace {
using Terms = std::array<Term, 2>;

class Matcher {
public:
  explicit Matcher(int64_t tokens) : tokens(tokens) {}
  FailureOr<FoundModel> run(Value tokenIds, Value logits);

private:
  using Layer = std::map<std::string, FoundWeight>;

  LogicalResult fail(Value at, const Twine &expected);
  FailureOr<Value> linear(Value y, const std::string &name);
  FailureOr<Value> norm(Value y, const std::string &name);
  FailureOr<Value> residual(Value y, const std::string &projection, const std::string &gain,
                            FailureOr<Value> (Matcher::*inner)(Value));
  FailureOr<Value> gated(Value y);
  FailureOr<Value> attention(Value y);
  FailureOr<Value> softmax(Value y);
  FailureOr<Value> masked(Value y);
  FailureOr<Value> shared(Value y);
  FailureOr<Value> heads(Value y, int64_t count, const std::string &name);
  FailureOr<Value> rotated(Value y);
  FailureOr<Value> block(Value y);
  bool isEmbedding(Value y);
  LogicalResult embedding(Value y, Value tokenIds);
  LogicalResult keep(Value y, const std::string &name, Value constant, bool isTransposed = false);
  FailureOr<std::vector<float>> table(Value constant, ArrayRef<int64_t> shape);
  LogicalResult findTheta(Value y);

  template <typename Op> std::optional<Terms> arithmetic(Value y) {
    std::optional<Elementwise> of = Elementwise::match(reshaped(y));
    return of ? binary<Op>(*of) : std::nullopt;
  }
  /// The same, the terms as they pass, in either order where that is one to the op.
  template <typename Op, typename First, typename Second>
  std::optional<Terms> inOrder(Value y, First isFirst, Second isSecond) {
    std::optional<Terms> terms = arithmetic<Op>(y);
    constexpr bool isFree = Op::template hasTrait<OpTrait::IsCommutative>();
    if (isFree && terms && !(isFirst((*terms)[0]) && isSecond((*terms)[1])))
      std::swap((*terms)[0], (*terms)[1]);
    if (terms && isFirst((*terms)[0]) && isSecond((*terms)[1]))
      return terms;
    return {};
  }

  const int64_t tokens;
  FoundModel model;
  formats::ModelConfig &config = model.config;
  Layer layer;
  std::optional<double> normEpsilon;
  std::vector<float> cosines, sines;
};
} // namespace

static bool isWhole(const Term &term) { return term.isWhole(); }
static bool isOfRows(const Term &term) { return term.isOfRows(); }
static bool isVector(const Term &term) { return term.isOfLast(1); }
static bool isTable(const Term &term) { return term.isOfLast(2); }
static bool isNumber(const Term &term) { return !term.tensor; }

LogicalResult Matcher::fail(Value at, const Twine &expected) {
  at = reshaped(at);
  InFlightDiagnostic diagnostic = emitError(at.getLoc());
  if (Operation *op = at.getDefiningOp())
    diagnostic << "'" << op->getName() << "' op, which gives " << at.getType() << ",";
  else
    diagnostic << "an argument, " << at.getType() << ",";
  return diagnostic << " has no place in a LLaMA: expected " << expected;
}

LogicalResult Matcher::keep(Value y, const std::string &name, Value constant, bool isTransposed) {
  auto found = constant ? ModuleConstant::match(constant) : std::nullopt;
  if (!found || !ModuleConstant::isReadable(typeOf(constant).getElementType()))
    return fail(y, "a constant of f32, f16 or bf16 as its factor, '" + name + "'");
  layer.insert_or_assign(
      name,
      FoundWeight{*found, SmallVector<int64_t, 2>(typeOf(constant).getShape()), isTransposed});
  return success();
}

FailureOr<std::vector<float>> Matcher::table(Value constant, ArrayRef<int64_t> shape) {
  // Before it there may be dimensions of one step.
  const ArrayRef<int64_t> extents =
      typeOf(constant).getShape().drop_while([](int64_t extent) { return extent == 1; });
  if (extents != shape || !typeOf(constant).getElementType().isF32())
    return fail(constant, "a table of f32, a row for each token");
  return valuesOf(constant);
}

//===----------------------------------------------------------------------===//
// Linears and norms
//===----------------------------------------------------------------------===//

FailureOr<Value> Matcher::linear(Value y, const std::string &name) {
  auto product = reshaped(y).getDefiningOp<linalg::MatmulOp>();
  if (!product || product.hasUserDefinedMaps())
    return fail(y, "linalg.matmul of '" + name + "'");
  auto fill = product.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>();
  if (!fill || numberOf(fill.value()) != 0)
    return fail(y, "linalg.matmul of '" + name + "' whose sums begin at 0");
  Value input = product.getDpsInputOperand(0)->get();
  Value weight = product.getDpsInputOperand(1)->get();
  if (typeOf(input).getDimSize(0) != tokens)
    return fail(y, "a product of " + Twine(tokens) + " rows, one for each token");
  if (failed(keep(y, name, weight, /*isTransposed=*/true)))
    return failure();
  return reshaped(input);
}

/// x / sqrt(mean(x²) + epsilon) times the gain.
FailureOr<Value> Matcher::norm(Value y, const std::string &name) {
  auto gained = inOrder<arith::MulFOp>(y, isWhole, isVector);
  if (!gained)
    return fail(y, "RMSNorm times its gain, '" + name + "'");
  if (failed(keep(y, name, (*gained)[1].tensor)))
    return failure();
  Value normed = (*gained)[0].tensor;
  auto scaled = inOrder<arith::MulFOp>(normed, isWhole, isOfRows);
  if (!scaled)
    return fail(normed, "rows over their root mean squares");
  Value input = (*scaled)[0].tensor, inverse = (*scaled)[1].tensor;
  std::optional<Elementwise> root = Elementwise::match(reshaped(inverse));
  std::optional<Term> square = root ? unary<math::RsqrtOp>(*root) : std::nullopt;
  auto above = square ? inOrder<arith::AddFOp>(square->tensor, isWhole, isNumber) : std::nullopt;
  if (!above)
    return fail(inverse, "1 / sqrt(mean of squares + epsilon)");
  const double epsilon = (*above)[1].number;
  if (normEpsilon.value_or(epsilon) != epsilon)
    return fail(inverse, "the epsilon of the other norms, " + std::to_string(*normEpsilon));
  normEpsilon = epsilon;

  const int64_t columns = typeOf(input).getShape().back();
  Value mean = (*above)[0].tensor;
  auto quotient = inOrder<arith::DivFOp>(mean, isWhole, isNumber);
  auto product = inOrder<arith::MulFOp>(mean, isWhole, isNumber);
  Value sum = quotient && (*quotient)[1].number == columns             ? (*quotient)[0].tensor
              : product && isNear((*product)[1].number, 1.0 / columns) ? (*product)[0].tensor
                                                                       : Value();
  Value squares = sum ? summedOverLast(reshaped(sum)) : Value();
  if (!squares)
    return fail(mean, "the mean over " + Twine(columns) + " columns");
  auto products = arithmetic<arith::MulFOp>(squares);
  auto powers = inOrder<math::PowFOp>(squares, isWhole, isNumber);
  powers = powers ? powers : inOrder<math::FPowIOp>(squares, isWhole, isNumber);
  auto isInput = [&](const Term &term) {
    return term.isWhole() && reshaped(term.tensor) == reshaped(input);
  };
  const bool areProducts = products && isInput((*products)[0]) && isInput((*products)[1]);
  const bool arePowers = powers && isInput((*powers)[0]) && (*powers)[1].number == 2;
  if (!areProducts && !arePowers)
    return fail(squares, "squares of what the norm reads");
  return reshaped(input);
}

/// x + linear(inner(norm(x))); gives x.
FailureOr<Value> Matcher::residual(Value y, const std::string &projection, const std::string &gain,
                                   FailureOr<Value> (Matcher::*inner)(Value)) {
  auto isProduct = [](const Term &term) {
    return term.isWhole() && reshaped(term.tensor).getDefiningOp<linalg::MatmulOp>();
  };
  auto terms = inOrder<arith::AddFOp>(y, isWhole, isProduct);
  if (!terms)
    return fail(y, "the sum of a residual and '" + projection + "'");
  FailureOr<Value> x = linear((*terms)[1].tensor, projection);
  x = failed(x) ? x : (this->*inner)(*x);
  x = failed(x) ? x : norm(*x, gain);
  if (succeeded(x) && *x != reshaped((*terms)[0].tensor))
    return fail(*x, "the residual that '" + projection + "' is added to, read by '" + gain + "'");
  return x;
}

/// silu(gate) times up; gives what both read.
FailureOr<Value> Matcher::gated(Value y) {
  auto gateOf = [&](const Term &silu) {
    auto terms = silu.isWhole() ? arithmetic<arith::MulFOp>(silu.tensor) : std::nullopt;
    for (int i : {0, 1})
      if (Value x = terms ? sigmoidOf(reshaped((*terms)[i].tensor)) : Value();
          x && reshaped(x) == reshaped((*terms)[1 - i].tensor))
        return x;
    return Value();
  };
  auto isSilu = [&](const Term &term) { return bool(gateOf(term)); };
  auto terms = inOrder<arith::MulFOp>(y, isSilu, isWhole);
  if (!terms)
    return fail(y, "silu of the gate times another linear");
  FailureOr<Value> ofGate = linear(gateOf((*terms)[0]), "mlp.gate_proj.weight");
  FailureOr<Value> ofUp =
      failed(ofGate) ? ofGate : linear((*terms)[1].tensor, "mlp.up_proj.weight");
  if (succeeded(ofUp) && *ofUp != *ofGate)
    return fail((*terms)[1].tensor, "a linear that reads what the gate reads");
  return ofUp;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// e^(x - max) over its sum, row by row.
FailureOr<Value> Matcher::softmax(Value y) {
  auto quotient = inOrder<arith::DivFOp>(y, isWhole, isOfRows);
  Value powers = quotient ? reshaped((*quotient)[0].tensor) : Value();
  if (!quotient || reshaped(summedOverLast(reshaped((*quotient)[1].tensor))) != powers)
    return fail(y, "softmax: powers of e over the sums of their rows");
  std::optional<Elementwise> of = Elementwise::match(powers);
  std::optional<Term> power = of ? unary<math::ExpOp>(*of) : std::nullopt;
  auto difference = power ? inOrder<arith::SubFOp>(power->tensor, isWhole, isOfRows) : std::nullopt;
  Value scores = difference ? reshaped((*difference)[0].tensor) : Value();
  if (!difference || reshaped(largestOfLast(reshaped((*difference)[1].tensor))) != scores)
    return fail(powers, "softmax: e to the scores less the largest of their rows");
  return scores;
}

/// Scaled scores plus the causal mask; gives the products.
FailureOr<Value> Matcher::masked(Value y) {
  auto sum = inOrder<arith::AddFOp>(y, isWhole, isTable);
  if (!sum)
    return fail(y, "scores plus a mask");
  auto mask = table((*sum)[1].tensor, {tokens, tokens});
  if (failed(mask))
    return failure();
  for (int64_t row = 0; row < tokens; ++row)
    for (int64_t column = 0; column < tokens; ++column)
      if (const float value = (*mask)[row * tokens + column];
          column <= row ? value != 0 : !(value <= -1e4f))
        return fail((*sum)[1].tensor,
                    "a causal mask: 0 up to the token, -1e4 or less behind it; found " +
                        std::to_string(value) + " at " + Twine(row) + ", " + Twine(column));
  Value scaled = (*sum)[0].tensor;
  const double root = std::sqrt(static_cast<double>(config.headDim));
  auto quotient = inOrder<arith::DivFOp>(scaled, isWhole, isNumber);
  auto product = inOrder<arith::MulFOp>(scaled, isWhole, isNumber);
  if (quotient && isNear((*quotient)[1].number, root))
    return reshaped((*quotient)[0].tensor);
  if (product && isNear((*product)[1].number, 1 / root))
    return reshaped((*product)[0].tensor);
  return fail(scaled, "products over sqrt(" + Twine(config.headDim) + "), the dimension of a head");
}

/// Heads of k or v that several heads of q share.
FailureOr<Value> Matcher::shared(Value y) {
  y = reshaped(y);
  Value repeated = repeatedAlong(y, 2);
  const ArrayRef<int64_t> extents = typeOf(y).getShape();
  int64_t heads = config.numHeads;
  if (repeated && extents.size() == 5 && extents[1] > 0) {
    heads = extents[1];
    if (!hasShape(y, {1, heads, config.numHeads / heads, tokens, config.headDim}))
      return fail(y, Twine(config.numHeads) + " heads of which as many share one of k and v each");
    y = reshaped(repeated);
  }
  if (config.numKVHeads != 0 && config.numKVHeads != heads)
    return fail(y, "the number of heads of k and v that others have, " + Twine(config.numKVHeads));
  config.numKVHeads = heads;
  return y;
}

/// A linear whose columns are heads: tokens x heads x headDim, transposed to heads x tokens.
FailureOr<Value> Matcher::heads(Value y, int64_t count, const std::string &name) {
  auto transpose = reshaped(y).getDefiningOp<linalg::TransposeOp>();
  if (!transpose || transpose.getPermutation() != ArrayRef<int64_t>{0, 2, 1, 3} ||
      !hasShape(transpose.getInput(), {1, tokens, count, config.headDim}))
    return fail(y, "the columns of '" + name + "' as " + Twine(count) + " heads of " +
                       Twine(config.headDim) + ", before tokens");
  return linear(transpose.getInput(), name);
}

/// x cos + (-second half, first half) sin
FailureOr<Value> Matcher::rotated(Value y) {
  const int64_t half = config.headDim / 2;
  auto sum = arithmetic<arith::AddFOp>(y);
  for (int i : {0, 1}) {
    auto straight = sum ? inOrder<arith::MulFOp>((*sum)[i].tensor, isWhole, isTable) : std::nullopt;
    auto turned =
        sum ? inOrder<arith::MulFOp>((*sum)[1 - i].tensor, isWhole, isTable) : std::nullopt;
    auto concat =
        turned ? (*turned)[0].tensor.getDefiningOp<tensor::ConcatOp>() : tensor::ConcatOp();
    Value x = straight ? reshaped((*straight)[0].tensor) : Value();
    if (!concat || !x || typeOf(x).getRank() != 4)
      continue;
    const ArrayRef<int64_t> shape = typeOf(x).getShape();
    auto isPart = [&](Value part, int64_t first) {
      auto slice = part.getDefiningOp<tensor::ExtractSliceOp>();
      return slice && reshaped(slice.getSource()) == x && hasShape(slice.getSource(), shape) &&
             llvm::all_of(slice.getStaticStrides(), [](int64_t stride) { return stride == 1; }) &&
             slice.getStaticOffsets() == ArrayRef<int64_t>{0, 0, 0, first} &&
             slice.getStaticSizes() == ArrayRef<int64_t>{1, shape[1], tokens, half};
    };
    std::optional<Elementwise> negative = Elementwise::match(concat.getInputs().front());
    std::optional<Term> behind = negative ? unary<arith::NegFOp>(*negative) : std::nullopt;
    if (concat.getDim() != 3 || concat.getInputs().size() != 2 || !behind || !behind->isWhole() ||
        !isPart(behind->tensor, half) || !isPart(concat.getInputs().back(), 0))
      return fail(concat.getResult(),
                  "the second half of each head, negative, before the first one");
    auto cos = table((*straight)[1].tensor, {tokens, config.headDim});
    auto sin = failed(cos) ? cos : table((*turned)[1].tensor, {tokens, config.headDim});
    if (failed(sin))
      return failure();
    if (cosines.empty()) {
      cosines = std::move(*cos);
      sines = std::move(*sin);
      if (failed(findTheta(y)))
        return failure();
    } else if (*cos != cosines || *sin != sines) {
      return fail(y, "the table of rotations that others have");
    }
    return x;
  }
  return fail(y,
              "rotary positions: heads times cosines, and halves that change places times sines");
}

/// The angle of pair i at position p is p theta^(-2i / headDim).
LogicalResult Matcher::findTheta(Value y) {
  const int64_t half = config.headDim / 2, width = config.headDim;
  const auto isTable = [&](double theta) {
    for (int64_t p = 0; p < tokens; ++p)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = p * std::pow(theta, -2.0 * static_cast<double>(i % half) / width);
        const double bound = 1e-6 * (1 + p); // the angle is rounded to f32
        if (std::fabs(cosines[p * width + i] - std::cos(angle)) > bound ||
            std::fabs(sines[p * width + i] - std::sin(angle)) > bound)
          return false;
      }
    return true;
  };
  double theta = 10000;
  if (half > 1) {
    const double angle = std::atan2(sines[width + half - 1], cosines[width + half - 1]);
    theta = std::pow(angle, -static_cast<double>(width) / (2 * (half - 1)));
  }
  if (!std::isfinite(theta) || theta < 1)
    theta = 10000;
  // A model says 10000 or 500000; what is found has the error of f32.
  const double unit = std::pow(10, std::floor(std::log10(theta)) - 4);
  for (double candidate : {std::round(theta / unit) * unit, theta})
    if (isTable(candidate)) {
      config.rope.theta = candidate;
      return success();
    }
  return fail(y, "a table of cosines and sines of p theta^(-2i/" + Twine(width) +
                     "), rotary positions without scaling");
}

/// The heads of softmax(q kᵀ / sqrt(headDim) + mask) v, side by side; gives what q, k and v read.
FailureOr<Value> Matcher::attention(Value y) {
  auto transpose = reshaped(y).getDefiningOp<linalg::TransposeOp>();
  if (!transpose || transpose.getPermutation() != ArrayRef<int64_t>{0, 2, 1, 3})
    return fail(y, "the heads of attention, transposed to lie behind tokens");
  const ArrayRef<int64_t> shape = typeOf(transpose.getInput()).getShape();
  if (shape[0] != 1 || shape[2] != tokens ||
      (config.numHeads != 0 && (config.numHeads != shape[1] || config.headDim != shape[3])) ||
      shape[3] % 2 != 0)
    return fail(transpose.getInput(),
                "attention of one sequence of " + Twine(tokens) + " tokens, alike in all layers");
  config.numHeads = shape[1];
  config.headDim = config.rope.dims = shape[3];
  config.attentionScale = 1.0 / std::sqrt(static_cast<double>(config.headDim));
  auto product = [&](Value of, ArrayRef<int64_t> lhs) -> linalg::BatchMatmulOp {
    auto op = reshaped(of).getDefiningOp<linalg::BatchMatmulOp>();
    auto fill =
        op ? op.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>() : linalg::FillOp();
    const bool isPlain = fill && !op.hasUserDefinedMaps() && numberOf(fill.value()) == 0 &&
                         hasShape(op.getDpsInputOperand(0)->get(), lhs);
    return isPlain ? op : linalg::BatchMatmulOp();
  };
  linalg::BatchMatmulOp ofValues = product(transpose.getInput(), {config.numHeads, tokens, tokens});
  if (!ofValues)
    return fail(transpose.getInput(), "linalg.batch_matmul of probabilities and v");
  FailureOr<Value> v = shared(ofValues.getDpsInputOperand(1)->get());
  FailureOr<Value> scores = failed(v) ? v : softmax(ofValues.getDpsInputOperand(0)->get());
  FailureOr<Value> products = failed(scores) ? scores : masked(*scores);
  if (failed(products))
    return failure();
  linalg::BatchMatmulOp ofKeys = product(*products, {config.numHeads, tokens, config.headDim});
  if (!ofKeys)
    return fail(*products, "linalg.batch_matmul of q and the transpose of k");
  Value keys = reshaped(ofKeys.getDpsInputOperand(1)->get());
  auto turned = keys.getDefiningOp<linalg::TransposeOp>();
  if (!turned || turned.getPermutation() != ArrayRef<int64_t>{0, 1, 3, 2} ||
      !hasShape(turned.getInput(), {1, config.numHeads, tokens, config.headDim}))
    return fail(keys, "k, its last two dimensions transposed");

  FailureOr<Value> x = heads(*v, config.numKVHeads, "self_attn.v_proj.weight");
  FailureOr<Value> k = failed(x) ? x : shared(turned.getInput());
  FailureOr<Value> straightK = failed(k) ? k : rotated(*k);
  FailureOr<Value> straightQ =
      failed(straightK) ? straightK : rotated(ofKeys.getDpsInputOperand(0)->get());
  if (failed(straightQ))
    return failure();
  for (auto [of, count, name] :
       {std::tuple(*straightK, config.numKVHeads, "self_attn.k_proj.weight"),
        std::tuple(*straightQ, config.numHeads, "self_attn.q_proj.weight")}) {
    FailureOr<Value> read = heads(of, count, name);
    if (failed(read))
      return failure();
    if (*read != *x)
      return fail(of, "a linear that reads what v reads");
  }
  return x;
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

/// Reads a constant at rows that tokens name: the body extracts [index of the token, column].
bool Matcher::isEmbedding(Value y) {
  std::optional<Elementwise> of = Elementwise::match(reshaped(y));
  auto extract = of ? of->yielded.getDefiningOp<tensor::ExtractOp>() : tensor::ExtractOp();
  return extract && extract.getIndices().size() == 2;
}

LogicalResult Matcher::embedding(Value y, Value tokenIds) {
  Elementwise of = *Elementwise::match(reshaped(y));
  auto extract = of.yielded.getDefiningOp<tensor::ExtractOp>();
  auto column = extract.getIndices()[1].getDefiningOp<linalg::IndexOp>();
  auto row = extract.getIndices()[0].getDefiningOp<arith::IndexCastOp>();
  std::optional<Term> token = row ? of.term(row.getIn()) : std::nullopt;
  if (!token || !token->isOfRows() || reshaped(token->tensor) != tokenIds || !column ||
      static_cast<int64_t>(column.getDim()) != std::ssize(of.extents) - 1)
    return fail(y, "the rows of a constant that the tokens name");
  return keep(y, "embed_tokens.weight", extract.getTensor());
}

/// A layer; gives the residual that it reads.
FailureOr<Value> Matcher::block(Value y) {
  FailureOr<Value> middle =
      residual(y, "mlp.down_proj.weight", "post_attention_layernorm.weight", &Matcher::gated);
  return failed(middle) ? middle
                        : residual(*middle, "self_attn.o_proj.weight", "input_layernorm.weight",
                                   &Matcher::attention);
}

FailureOr<FoundModel> Matcher::run(Value tokenIds, Value logits) {
  FailureOr<Value> x = linear(logits, "lm_head.weight");
  x = failed(x) ? x : norm(*x, "model.norm.weight");
  if (failed(x))
    return failure();
  Layer outside = std::move(layer);
  std::vector<Layer> layers; // from the last one
  while (!isEmbedding(*x)) {
    layer.clear();
    x = block(*x);
    if (failed(x))
      return failure();
    layers.push_back(std::move(layer));
  }
  layer.clear();
  if (failed(embedding(*x, tokenIds)))
    return failure();
  if (layers.empty())
    return fail(*x, "at least one layer before the last norm");

  model.weights = std::move(outside);
  model.weights.merge(Layer{{"model.embed_tokens.weight", layer.at("embed_tokens.weight")}});
  for (auto [index, of] : llvm::enumerate(llvm::reverse(layers)))
    for (const auto &[name, weight] : of)
      model.weights.insert({"model.layers." + std::to_string(index) + "." + name, weight});
  const FoundWeight &head = model.weights.at("lm_head.weight");
  const FoundWeight &rows = model.weights.at("model.embed_tokens.weight");
  config.architecture = formats::findArchitecture("llama");
  config.vocabSize = rows.shape[0];
  config.hiddenSize = rows.shape[1];
  config.tieWordEmbeddings = head.constant.isTransposeOf(rows.constant);
  config.intermediateSize = layers.front().at("mlp.down_proj.weight").shape[0];
  config.numLayers = std::ssize(layers);
  config.maxContext = tokens;
  config.normEpsilon = *normEpsilon;
  return std::move(model);
}

FailureOr<FoundModel> easyquant::matchLlama(func::FuncOp function) {
  auto type = function.getNumArguments() == 1
                  ? dyn_cast<RankedTensorType>(function.getArgument(0).getType())
                  : RankedTensorType();
  if (!type || type.getRank() != 2 || type.getDimSize(0) != 1 || type.getDimSize(1) < 2 ||
      type.getDimSize(1) > kMostTokens || !type.getElementType().isInteger())
    return function.emitError() << "expected one argument, the tokens of one sequence, as "
                                   "tensor<1x16xi64>, from two to "
                                << kMostTokens << "; found " << function.getFunctionType();
  auto result = function.getBody().hasOneBlock()
                    ? cast<func::ReturnOp>(function.front().getTerminator())
                    : func::ReturnOp();
  if (!result || result.getNumOperands() != 1 ||
      !isa<RankedTensorType>(result.getOperand(0).getType()))
    return function.emitError() << "expected one block and one result, the logits; found "
                                << function.getFunctionType();
  return Matcher(type.getDimSize(1)).run(function.getArgument(0), result.getOperand(0));
}
