//===- MaterializeWeights.cpp - Quantized weights on disk -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The IR says which tensors there are and how they are made. This pass has them made, one at a
// time, and keeps of the IR only where they lie.
//
//===----------------------------------------------------------------------===//

#include "WeightReport.h"

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/Equant/Transforms/GPUWeights.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/IR/RopeTable.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#include <deque>
#include <map>

namespace easyquant::equant {
#define GEN_PASS_DEF_MATERIALIZEWEIGHTS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;

namespace {

/// An op that reads a packed weight: a linear or an embedding.
struct Use {
  Operation *op;
  const ConstantWeight *weight;
};

/// A constant that stays float: a norm weight, a bias, the weight of a float linear, a table.
struct FloatConstant {
  std::vector<ConstantTensor> parts; ///< several for the bias of fused linears
  std::string site;                  ///< what reads it first
  Location loc;
  RankedTensorType type;
  SmallVector<OpOperand *> readers;
  std::optional<numerics::RopeParams> rope; ///< of a rotation table, which is computed
  std::string name;                         ///< in the file

  /// Some reader multiplies it with activations, which on a GPU it does in halves.
  bool isMultiplied() const { return llvm::any_of(readers, isWeightOfLinear); }
  static bool isWeightOfLinear(const OpOperand *reader) {
    auto linear = dyn_cast<lm::LinearOp>(reader->getOwner());
    return linear && linear.getWeight() == reader->get();
  }
  /// Of a constant that is multiplied: no reader on a GPU wants anything but its halves, which an
  /// embedding takes its rows from.
  bool isReadAsHalves() const {
    return llvm::all_of(readers, [](const OpOperand *reader) {
      return isWeightOfLinear(reader) || isa<lm::EmbeddingOp>(reader->getOwner());
    });
  }

  const std::string &firstGlobal() const { return parts.front().global; }
};

struct MaterializeWeights : equant::impl::MaterializeWeightsBase<MaterializeWeights> {
  using MaterializeWeightsBase::MaterializeWeightsBase;

  void runOnOperation() override;

private:
  LogicalResult collectWeights(const ConstantMatcher &constants);
  template <typename OpT>
  LogicalResult collectWeight(const ConstantMatcher &constants, OpT op, ArrayRef<StringRef> sites);
  ConstantWeight *intern(ConstantWeight weight);
  LogicalResult collectFloats(const ConstantMatcher &constants);
  LogicalResult collectFloat(const ConstantMatcher &constants, OpOperand &reader);
  LogicalResult checkConstants(const ConstantReader &reader);
  void plan();
  void planWeight(const ConstantWeight &weight);
  void planFloat(FloatConstant &constant);
  void planForGPU(FileTensor &tensor);
  void planHalves();
  LogicalResult chooseFiles();
  std::string uniqueName(std::string name);
  void rewrite(const WrittenWeights &written);

  /// Each different weight once, in the order of first use.
  std::deque<ConstantWeight> weights; // which others point into
  llvm::StringMap<ConstantWeight *> weightByKey;
  SmallVector<Use> uses;
  llvm::MapVector<StringRef, FloatConstant> floats; // by keys in `keys`
  llvm::StringSet<> keys;
  std::vector<FileTensor> tensors;
  llvm::StringSet<> names;               // of `tensors`
  llvm::StringMap<std::string> halvesOf; // their names to those of the tensors that they copy
  WeightFiles files;
};

} // namespace

//===----------------------------------------------------------------------===//
// Which weights there are
//===----------------------------------------------------------------------===//

/// Puts the weight of a linear or an embedding into the kernels' order.
template <typename OpT> static void pack(OpT op) {
  OpBuilder builder(op);
  LayoutAttr layout = LayoutAttr::panel(op.getContext());
  op.getCodesMutable().assign(PackOp::create(builder, op.getLoc(), op.getCodes(), layout));
  op.getScaleMutable().assign(PackScalesOp::create(builder, op.getLoc(), op.getScale(), layout));
  op.setLayoutAttr(layout);
}

/// What there are packed tensors for: what the verifier of a packed weight demands.
static LogicalResult checkPackable(Location loc, StringRef site, SchemeAttr scheme) {
  bool perRow = scheme.getGranularity() == Granularity::Group ||
                (scheme.getGranularity() == Granularity::Channel && scheme.getAxis() == 0);
  if (perRow && !scheme.getOuter())
    return success();
  return emitError(loc) << "site '" << site << "': weights in " << scheme
                        << " cannot be packed; expected scales per channel or per group";
}

ConstantWeight *MaterializeWeights::intern(ConstantWeight weight) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << weight.scheme << weight.layout << numerics::toString(weight.rule.kind)
     << weight.rule.percentile;
  for (const WeightPart &part : weight.parts)
    os << '\n' << part.key();
  ConstantWeight *&known = weightByKey[key];
  if (!known) {
    weights.push_back(std::move(weight));
    known = &weights.back();
  }
  return known;
}

/// Do the kernels need the sums of the codes?
static bool needsSums(equant::LinearOp op) {
  SchemeAttr input = op.getInputSchemeAttr();
  return input && !input.getSymmetric();
}

template <typename OpT>
LogicalResult MaterializeWeights::collectWeight(const ConstantMatcher &constants, OpT op,
                                                ArrayRef<StringRef> sites) {
  if (!op.getLayout()) {
    if (failed(checkPackable(op.getLoc(), sites.front(), op.getWeightScheme())))
      return failure();
    pack(op);
  }
  FailureOr<ConstantWeight> weight = matchConstantWeight(
      constants, op.getLoc(), sites, op.getCodes(), op.getScale(), op.getZeroPoint());
  if (failed(weight))
    return failure();
  ConstantWeight *known = intern(std::move(*weight));
  if constexpr (std::is_same_v<OpT, equant::LinearOp>) {
    known->needsSums |= needsSums(op);
    (op.getInputScheme() ? known->integerReader : known->floatReader) = true;
  }
  uses.push_back({op, known});
  return success();
}

LogicalResult MaterializeWeights::collectWeights(const ConstantMatcher &constants) {
  WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
    if (auto linear = dyn_cast<equant::LinearOp>(op))
      return collectWeight(constants, linear,
                           llvm::to_vector(linear.getSites().getAsValueRange<StringAttr>()));
    // A table that is not tied is no site; its messages speak of it as the embedding.
    if (auto embedding = dyn_cast<equant::EmbeddingOp>(op))
      return collectWeight(constants, embedding, {"embedding"});
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// How messages speak of an op that is no site: by its module in the checkpoint.
static std::string nameOfReader(Operation *op) {
  if (auto site = dyn_cast<QuantizableOpInterface>(op))
    return site.getSite().str();
  if (auto linear = dyn_cast<equant::LinearOp>(op))
    return cast<StringAttr>(linear.getSites()[0]).str();
  if (auto name = dyn_cast<NameLoc>(op->getLoc()))
    return name.getName().str();
  return op->getName().getStringRef().str();
}

LogicalResult MaterializeWeights::collectFloat(const ConstantMatcher &constants,
                                               OpOperand &reader) {
  Operation *op = reader.getOwner();
  auto type = dyn_cast<RankedTensorType>(reader.get().getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isF32() || type.getRank() == 0)
    return emitError(op->getLoc()) << "site '" << nameOfReader(op)
                                   << "': a constant must be a tensor of f32 to be written, found "
                                   << reader.get().getType();
  FloatConstant constant{{}, nameOfReader(op), op->getLoc(), type, {}, {}, {}};
  if (GlobalOp global = constants.getExternGlobal(reader.get()))
    if (auto rope = global->getAttrOfType<DictionaryAttr>(lm::kRopeTableAttr))
      constant.rope = *lm::ropeParams(rope, 2 * type.getDimSize(1)); // verified by the dialect
  std::string key;
  for (Value value : concatenated(reader.get())) {
    FailureOr<ConstantTensor> part = constants.match(op->getLoc(), constant.site, value);
    if (failed(part))
      return failure();
    key += part->key() + '\n';
    constant.parts.push_back(std::move(*part));
  }
  StringRef kept = keys.insert(key).first->getKey();
  floats.insert({kept, std::move(constant)}).first->second.readers.push_back(&reader);
  return success();
}

LogicalResult MaterializeWeights::collectFloats(const ConstantMatcher &constants) {
  WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
    // These read constants for the sake of their own readers.
    if (isa<ChooseQParamsOp, QuantizeOp, ScaleOp, ConcatOp, PackScalesOp>(op))
      return WalkResult::advance();
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      // Computed zero points belong to their weight.
      if (isa<equant::LinearOp, equant::EmbeddingOp>(op) && type &&
          type.getElementType().isInteger(32))
        continue;
      Operation *made = operand.get().getDefiningOp();
      bool isConstant = isa_and_nonnull<ScaleOp>(made) ||
                        constants.getExternGlobal(operand.get()) ||
                        (isa_and_nonnull<ConcatOp>(made) &&
                         cast<RankedTensorType>(operand.get().getType()).getRank() == 1);
      if (isConstant && failed(collectFloat(constants, operand)))
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult MaterializeWeights::checkConstants(const ConstantReader &reader) {
  // Every tensor of the model, read or not: a global that names none is a mistake.
  const formats::ModelSource &source = reader.source();
  for (GlobalOp global : getOperation().getOps<GlobalOp>()) {
    if (!isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) ||
        global->hasAttr(lm::kRopeTableAttr) || global->hasAttr(kFileAttr))
      continue;
    StringRef name = global.getSymName();
    const formats::ModelTensor *stored = source.find(std::string_view(name));
    auto type = dyn_cast<RankedTensorType>(global.getType());
    if (!stored)
      return emitError(global.getLoc())
             << source.path().string() << ": has no tensor '" << name << "'";
    if (!type || type.getShape() != ArrayRef<int64_t>(stored->shape)) {
      InFlightDiagnostic diagnostic = emitError(global.getLoc())
                                      << "global '" << name << "' is " << global.getType()
                                      << ", but in " << source.path().string() << " its shape is ";
      llvm::interleave(stored->shape, diagnostic, "x");
      return diagnostic;
    }
  }
  for (const Use &use : uses)
    if (auto done = checkTensors(*use.weight, reader); !done)
      return emitError(use.op->getLoc()) << done.error().message;
  for (auto &[key, constant] : floats) {
    if (constant.rope)
      continue;
    for (const ConstantTensor &part : constant.parts)
      if (auto done = reader.check(part); !done)
        return emitError(constant.loc)
               << "site '" << constant.site << "': " << done.error().message;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Which tensors the file has
//===----------------------------------------------------------------------===//

/// "a.q_proj.weight" for one global; "a.q_proj+k_proj+v_proj.weight" for several.
static std::string joinNames(ArrayRef<StringRef> globals) {
  auto [name, suffix] = globals.front().rsplit('.');
  std::string joined = name.str();
  for (StringRef global : globals.drop_front()) {
    StringRef base = global.rsplit('.').first;
    joined += "+" + base.substr(base.rfind('.') + 1).str();
  }
  return suffix.empty() ? joined : joined + "." + suffix.str();
}

std::string MaterializeWeights::uniqueName(std::string name) {
  std::string unique = name;
  for (int i = 2; !names.insert(unique).second; ++i)
    unique = name + "_" + std::to_string(i);
  return unique;
}

void MaterializeWeights::planWeight(const ConstantWeight &weight) {
  SmallVector<StringRef> globals;
  for (const WeightPart &part : weight.parts)
    globals.push_back(part.weight.global);
  RankedTensorType codes =
      weight.layout.getPackedCodesType(weight.rows, weight.columns, weight.scheme.getBits());
  RankedTensorType scales = weight.layout.getPackedScalesType(
      weight.rows, weight.scheme.getScaleShape({weight.rows, weight.columns})[1]);
  // Read as float as well, the global keeps its name.
  std::string name = joinNames(globals);
  name = uniqueName(names.contains(name) ? name + "_packed" : name);
  auto add = [&](FileTensor::Kind kind, std::string tensorName, RankedTensorType type) {
    FileTensor &tensor = tensors.emplace_back();
    tensor.kind = kind;
    tensor.name = std::move(tensorName);
    tensor.shape.assign(type.getShape().begin(), type.getShape().end());
    tensor.weight = &weight;
  };
  add(FileTensor::Kind::Codes, name, codes);
  add(FileTensor::Kind::Scales, uniqueName(name + "_scale"), scales);
  int64_t groups = scales.getDimSize(1);
  if (!weight.scheme.getSymmetric()) {
    add(FileTensor::Kind::ZeroPoints, uniqueName(name + "_zero_point"),
        weight.layout.getPackedZeroPointsType(weight.rows, groups));
    tensors.back().shape.front() += tensors.back().shape.front() % 2;
  }
  if (weight.needsSums)
    add(FileTensor::Kind::Sums, uniqueName(name + "_sums"),
        weight.layout.getPackedSumsType(weight.rows, groups));
}

void MaterializeWeights::planFloat(FloatConstant &constant) {
  FileTensor &tensor = tensors.emplace_back();
  tensor.name = constant.name;
  tensor.site = constant.site;
  tensor.shape.assign(constant.type.getShape().begin(), constant.type.getShape().end());
  tensor.value = constant.parts;
  if (constant.rope) {
    tensor.kind = FileTensor::Kind::RopeTable;
    tensor.rope = *constant.rope;
  }
}

void MaterializeWeights::plan() {
  llvm::StringMap<SmallVector<const ConstantWeight *>> weightsOf;
  for (const ConstantWeight &weight : weights)
    weightsOf[weight.parts.front().weight.global].push_back(&weight);
  llvm::StringMap<SmallVector<FloatConstant *>> floatsOf;
  for (auto &[key, constant] : floats)
    floatsOf[constant.firstGlobal()].push_back(&constant);
  // A constant as the model has it comes first, and so keeps the name of its global.
  for (bool scaled : {false, true})
    for (auto &[key, constant] : floats) {
      if (constant.parts.front().steps.empty() == scaled)
        continue;
      SmallVector<StringRef> globals;
      for (const ConstantTensor &part : constant.parts)
        globals.push_back(part.global);
      constant.name = uniqueName(joinNames(globals));
    }
  // In the order of the model.
  for (GlobalOp global : getOperation().getOps<GlobalOp>()) {
    for (const ConstantWeight *weight : weightsOf.lookup(global.getSymName()))
      planWeight(*weight);
    for (FloatConstant *constant : floatsOf.lookup(global.getSymName()))
      planFloat(*constant);
  }
  sortForAlignment(tensors);
  if (!files.gpu)
    return;
  planHalves();
  for (FileTensor &tensor : tensors)
    planForGPU(tensor);
}

/// Weights of float linears once more for GPUs, for an embedding that is tied to one, too; in f32
/// only where something else reads them.
void MaterializeWeights::planHalves() {
  llvm::StringMap<const FloatConstant *> multiplied;
  for (auto &[key, constant] : floats)
    if (constant.isMultiplied())
      multiplied[constant.name] = &constant;
  std::vector<FileTensor> halves;
  for (FileTensor &tensor : tensors) {
    const FloatConstant *constant = tensor.weight ? nullptr : multiplied.lookup(tensor.name);
    if (!constant)
      continue;
    FileTensor &copy = halves.emplace_back(tensor);
    copy.kind = FileTensor::Kind::Halves;
    copy.name = uniqueName(tensor.name + "_halves");
    halvesOf[copy.name] = tensor.name;
    copy.onlyGpu = true;
    tensor.onlyCpu = constant->isReadAsHalves();
  }
  std::move(halves.begin(), halves.end(), std::back_inserter(tensors));
}

/// The shape in the file for GPUs; writeWeights says what is wrong where there is none.
void MaterializeWeights::planForGPU(FileTensor &tensor) {
  if (tensor.kind == FileTensor::Kind::Halves) {
    int64_t bytes = numerics::floatFragmentBytes(tensor.shape[0], tensor.shape[1]);
    tensor.gpuShape = {bytes / numerics::kFragmentBytes,
                       numerics::kFragmentBytes / int64_t(sizeof(uint16_t))};
    return;
  }
  if (!tensor.weight) {
    int64_t count = ShapedType::getNumElements(tensor.shape);
    constexpr int64_t multiple = kGPUAlignment / sizeof(float);
    if (count % multiple == 0)
      tensor.gpuShape = tensor.shape;
    else
      tensor.gpuShape = {static_cast<int64_t>(llvm::alignTo(count, multiple))};
    return;
  }
  Result<numerics::FragmentLayout> layout = fragmentLayoutOf(*tensor.weight);
  if (!layout)
    return;
  if (tensor.kind == FileTensor::Kind::Codes)
    tensor.gpuShape = {layout->rowBlocks(), layout->codeBytes() / layout->rowBlocks()};
  else
    tensor.gpuShape = {layout->groups(), layout->scaleCount() / layout->groups()};
}

LogicalResult MaterializeWeights::chooseFiles() {
  files = {packings.empty(), false};
  for (const std::string &packing : packings) {
    if (packing != "cpu" && packing != "gpu")
      return emitError(getOperation().getLoc())
             << "unknown packing '" << packing << "'; expected cpu or gpu";
    (packing == "cpu" ? files.cpu : files.gpu) = true;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What is left of the IR
//===----------------------------------------------------------------------===//

/// The element type of a tensor of the file in the IR, where bytes have no sign.
static Type elementType(Builder &builder, FileTensor::Kind kind) {
  if (kind == FileTensor::Kind::Codes || kind == FileTensor::Kind::ZeroPoints)
    return builder.getI8Type();
  return kind == FileTensor::Kind::Sums ? Type(builder.getI32Type()) : builder.getF32Type();
}

void MaterializeWeights::rewrite(const WrittenWeights &written) {
  ModuleOp module = getOperation();
  Builder attributes(&getContext());
  using Kind = FileTensor::Kind;
  std::map<std::pair<const ConstantWeight *, Kind>, GlobalOp> packed;
  llvm::StringMap<GlobalOp> before, floatGlobals;
  for (GlobalOp global : module.getOps<GlobalOp>())
    before[global.getSymName()] = global;

  llvm::SmallPtrSet<Operation *, 16> kept;
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    if (tensor.kind == Kind::Halves) // behind the tensor that it is a copy of
      continue;
    GlobalOp old = before.lookup(tensor.weight ? tensor.weight->parts.front().weight.global
                                               : tensor.value.front().global);
    OpBuilder builder(old);
    auto type = RankedTensorType::get(tensor.shape, elementType(builder, tensor.kind));
    if (tensor.kind == Kind::ZeroPoints) // without what the file pads them with
      type = tensor.weight->layout.getPackedZeroPointsType(tensor.weight->rows, tensor.shape[1]);
    GlobalOp global = old;
    if (tensor.weight || tensor.name != old.getSymName() || type != old.getType())
      global = GlobalOp::create(builder, old.getLoc(), tensor.name, type, /*is_mutable=*/false,
                                ml_program::ExternAttr::get(&getContext(), type),
                                builder.getStringAttr("private"));
    if (tensor.weight)
      packed[{tensor.weight, tensor.kind}] = global;
    else
      floatGlobals[tensor.name] = global;
    global->removeAttr(kFileAttr);
    global->removeAttr(kStampAttr);
    if (files.cpu)
      global->setAttr(kOffsetAttr, attributes.getI64IntegerAttr(written.offsets[index]));
    if (files.gpu && tensor.isIn(/*gpu=*/true))
      global->setAttr(kGPUOffsetAttr, attributes.getI64IntegerAttr(written.gpuOffsets[index]));
    if (files.gpu && tensor.kind == Kind::Codes) {
      bool halves = fragmentOrderOf(*tensor.weight) == numerics::FragmentOrder::Halves;
      global->setAttr(kGPUOrderAttr, attributes.getStringAttr(halves ? "halves" : "bytes"));
    }
    kept.insert(global);
  }
  for (auto [index, tensor] : llvm::enumerate(tensors))
    if (tensor.kind == Kind::Halves)
      floatGlobals.lookup(halvesOf.lookup(tensor.name))
          ->setAttr(kGPUHalvesAttr, attributes.getI64IntegerAttr(written.gpuOffsets[index]));
  if (files.gpu)
    module->setAttr(kGPUBytesAttr, attributes.getI64IntegerAttr(written.gpuBytes));

  for (const Use &use : uses) {
    OpBuilder builder(use.op);
    auto load = [&](Kind kind) {
      return loadGlobal(builder, use.op->getLoc(), packed.at({use.weight, kind}));
    };
    auto replace = [&](auto op) {
      op.getCodesMutable().assign(load(Kind::Codes));
      op.getScaleMutable().assign(load(Kind::Scales));
      if (op.getZeroPoint())
        op.getZeroPointMutable().assign(load(Kind::ZeroPoints));
    };
    if (auto embedding = dyn_cast<equant::EmbeddingOp>(use.op)) {
      replace(embedding);
      continue;
    }
    auto linear = cast<equant::LinearOp>(use.op);
    replace(linear);
    if (needsSums(linear))
      linear.getCodeSumsMutable().assign(load(Kind::Sums));
  }
  for (auto &[key, constant] : floats) {
    GlobalOp global = floatGlobals.lookup(constant.name);
    for (OpOperand *reader : constant.readers) {
      auto load = reader->get().getDefiningOp<GlobalLoadConstOp>();
      if (load && load.getGlobal().getLeafReference() == global.getSymName())
        continue;
      OpBuilder builder(reader->getOwner());
      reader->set(loadGlobal(builder, reader->getOwner()->getLoc(), global));
    }
  }
  // What made the weights is dead now, uses before definitions.
  module.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (isa<PackOp, PackScalesOp, ConcatOp, QuantizeOp, ChooseQParamsOp, ScaleOp,
            GlobalLoadConstOp>(op) &&
        isOpTriviallyDead(op))
      op->erase();
  });
  for (GlobalOp global : llvm::make_early_inc_range(module.getOps<GlobalOp>()))
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) && !kept.contains(global))
      global.erase();
  module->removeAttr(kWorkAttr);
}

void MaterializeWeights::runOnOperation() {
  ModuleOp module = getOperation();
  weights.clear();
  weightByKey.clear();
  uses.clear();
  floats.clear();
  keys.clear();
  tensors.clear();
  names.clear();
  halvesOf.clear();

  if (output.empty()) {
    emitError(module.getLoc()) << "option output is missing: the folder to write weights to";
    return signalPassFailure();
  }
  if (failed(chooseFiles()))
    return signalPassFailure();
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return signalPassFailure();
  ConstantMatcher constants(module);
  if (failed(collectWeights(constants)) || failed(collectFloats(constants)) ||
      failed(checkConstants(*reader)))
    return signalPassFailure();
  plan();
  Result<DictionaryAttr> described = describeSource(&getContext(), reader->source());
  if (!described) {
    emitError(module.getLoc()) << described.error().message;
    return signalPassFailure();
  }
  std::filesystem::path folder = output.getValue();
  if (std::error_code error; !std::filesystem::create_directories(folder, error) && error) {
    emitError(module.getLoc()) << output << ": cannot be created: " << error.message();
    return signalPassFailure();
  }
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "materialize", done, tensors.size());
  };
  Result<WrittenWeights> written =
      writeWeights(folder, maxShardBytes, files, tensors, *reader, threads, progress);
  if (!written) {
    emitError(module.getLoc()) << written.error().message;
    return signalPassFailure();
  }
  llvm::DenseMap<Operation *, const ConstantWeight *> weightOf;
  for (const Use &use : uses)
    weightOf[use.op] = use.weight;
  NamedAttrList report;
  report.set("source", *described);
  if (auto recipe = module->getAttrOfType<DictionaryAttr>(kRecipeAttr)) {
    NamedAttrList quantization(recipe);
    if (Attribute fallbacks = module->getAttr(kFallbacksAttr))
      quantization.set("fallbacks", fallbacks);
    if (Attribute transforms = module->getAttr(kTransformsAttr))
      quantization.set("transforms", transforms);
    if (Attribute calibration = module->getAttr(kCalibrationAttr))
      quantization.set("calibration", calibration);
    report.set("quantization", quantization.getDictionary(&getContext()));
  } else {
    report.set("quantization", UnitAttr::get(&getContext()));
  }
  rewrite(*written);
  report.set("sites", describeSites(module, weightOf, *written));
  module->setAttr(kReportAttr, report.getDictionary(&getContext()));
}
