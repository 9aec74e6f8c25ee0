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

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <deque>

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

/// An op that reads a packed weight.
struct Use {
  Operation *op;
  OpOperand *codes, *scale;
  const ConstantWeight *weight;
};

struct MaterializeWeights : equant::impl::MaterializeWeightsBase<MaterializeWeights> {
  using MaterializeWeightsBase::MaterializeWeightsBase;

  void runOnOperation() override;

private:
  LogicalResult collect();
  template <typename OpT> LogicalResult collect(OpT op, ArrayRef<StringRef> sites);
  const ConstantWeight *intern(ConstantWeight weight);
  LogicalResult plan(const formats::ModelSource &source);
  LogicalResult planFloat(GlobalOp global, StringRef site);
  void rewrite(const WrittenWeights &written);

  /// Each different weight once, in the order of first use.
  std::deque<ConstantWeight> weights; // which others point into
  llvm::StringMap<const ConstantWeight *> weightByKey;
  SmallVector<Use> uses;
  std::vector<FileTensor> tensors;
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
  if (perRow && scheme.getSymmetric() && !scheme.getOuter() &&
      (scheme.getBits() == 4 || scheme.getBits() == 8))
    return success();
  return emitError(loc) << "site '" << site << "': weights in " << scheme
                        << " cannot be packed; expected int4 or int8, symmetric, with scales per "
                           "channel or per group";
}

const ConstantWeight *MaterializeWeights::intern(ConstantWeight weight) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << weight.scheme << weight.layout << stringifyScaleRule(weight.rule);
  for (const WeightPart &part : weight.parts)
    os << '\n' << part.global;
  const ConstantWeight *&known = weightByKey[key];
  if (!known) {
    weights.push_back(std::move(weight));
    known = &weights.back();
  }
  return known;
}

template <typename OpT>
LogicalResult MaterializeWeights::collect(OpT op, ArrayRef<StringRef> sites) {
  if (!op.getLayout()) {
    if (failed(checkPackable(op.getLoc(), sites.front(), op.getWeightScheme())))
      return failure();
    pack(op);
  }
  FailureOr<ConstantWeight> weight =
      matchConstantWeight(op.getLoc(), sites, op.getCodes(), op.getScale());
  if (failed(weight))
    return failure();
  uses.push_back({op, &op.getCodesMutable(), &op.getScaleMutable(), intern(std::move(*weight))});
  return success();
}

LogicalResult MaterializeWeights::collect() {
  WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
    if (auto linear = dyn_cast<equant::LinearOp>(op))
      return collect(linear, llvm::to_vector(linear.getSites().getAsValueRange<StringAttr>()));
    // A table that is not tied is no site; its messages speak of it as the embedding.
    if (auto embedding = dyn_cast<equant::EmbeddingOp>(op))
      return collect(embedding, {"embedding"});
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// Which tensors the file has
//===----------------------------------------------------------------------===//

/// "a.q_proj.weight" for one global; "a.q_proj+k_proj+v_proj.weight" for several.
static std::string nameOf(const ConstantWeight &weight) {
  constexpr StringLiteral kSuffix = ".weight";
  std::string name;
  for (const WeightPart &part : weight.parts) {
    StringRef base = part.global;
    base.consume_back(kSuffix);
    name += name.empty() ? base.str() : "+" + base.rsplit('.').second.str();
  }
  return name + kSuffix.str();
}

LogicalResult MaterializeWeights::planFloat(GlobalOp global, StringRef site) {
  StringRef name = global.getSymName();
  auto type = dyn_cast<RankedTensorType>(global.getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isF32() || type.getRank() == 0)
    return emitError(global.getLoc())
           << "global '" << name << "' must be a tensor of f32 to be written, found "
           << global.getType();
  FileTensor tensor;
  tensor.name = name.str();
  tensor.site = site.str();
  tensor.shape.assign(type.getShape().begin(), type.getShape().end());
  if (auto rope = global->getAttrOfType<DictionaryAttr>(lm::kRopeTableAttr)) {
    tensor.kind = FileTensor::Kind::RopeTable;
    tensor.theta = rope.getAs<FloatAttr>("theta").getValueAsDouble(); // verified by the dialect
  }
  tensors.push_back(std::move(tensor));
  return success();
}

LogicalResult MaterializeWeights::plan(const formats::ModelSource &source) {
  ModuleOp module = getOperation();
  // Float readers of each global, and the site if it is a linear.
  llvm::StringMap<StringRef> floatReaders;
  module.walk([&](GlobalLoadConstOp load) {
    for (OpOperand &use : load->getUses()) {
      Operation *reader = use.getOwner();
      if (isa<ChooseQParamsOp, QuantizeOp>(reader))
        continue;
      auto site = dyn_cast<QuantizableOpInterface>(reader);
      StringRef &name = floatReaders[load.getGlobal().getLeafReference()];
      if (site)
        name = site.getSite();
    }
  });

  llvm::StringMap<SmallVector<const ConstantWeight *>> firstParts;
  for (const ConstantWeight &weight : weights)
    firstParts[weight.parts.front().global].push_back(&weight);
  for (GlobalOp global : module.getOps<GlobalOp>()) {
    if (!isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()))
      continue;
    StringRef name = global.getSymName();
    if (!global->hasAttr(lm::kRopeTableAttr)) {
      const formats::ModelTensor *stored = source.find(std::string_view(name));
      auto type = dyn_cast<RankedTensorType>(global.getType());
      if (!stored)
        return emitError(global.getLoc())
               << source.path().string() << ": has no tensor '" << name << "'";
      if (!type || type.getShape() != ArrayRef<int64_t>(stored->shape)) {
        InFlightDiagnostic diagnostic =
            emitError(global.getLoc()) << "global '" << name << "' is " << global.getType()
                                       << ", but in " << source.path().string() << " its shape is ";
        llvm::interleave(stored->shape, diagnostic, "x");
        return diagnostic;
      }
    }
    auto reader = floatReaders.find(name);
    bool isFloat = reader != floatReaders.end();
    for (const ConstantWeight *weight : firstParts.lookup(name)) {
      RankedTensorType codes = weight->layout.getPackedCodesType(weight->rows, weight->columns,
                                                                 weight->scheme.getBits());
      RankedTensorType scales = weight->layout.getPackedScalesType(
          weight->rows, weight->scheme.getScaleShape({weight->rows, weight->columns})[1]);
      // Read as float as well, the global keeps its name.
      std::string name = nameOf(*weight) + (isFloat ? "_packed" : "");
      auto add = [&](FileTensor::Kind kind, const std::string &tensorName, RankedTensorType type) {
        FileTensor &tensor = tensors.emplace_back();
        tensor.kind = kind;
        tensor.name = tensorName;
        tensor.shape.assign(type.getShape().begin(), type.getShape().end());
        tensor.weight = weight;
      };
      add(FileTensor::Kind::Codes, name, codes);
      add(FileTensor::Kind::Scales, name + "_scale", scales);
    }
    if (isFloat && failed(planFloat(global, reader->second)))
      return failure();
  }
  sortForAlignment(tensors);
  return success();
}

//===----------------------------------------------------------------------===//
// What is left of the IR
//===----------------------------------------------------------------------===//

void MaterializeWeights::rewrite(const WrittenWeights &written) {
  ModuleOp module = getOperation();
  Builder attributes(&getContext());
  struct Globals {
    GlobalOp codes, scales;
  };
  llvm::DenseMap<const ConstantWeight *, Globals> packed;
  llvm::StringMap<GlobalOp> before;
  for (GlobalOp global : module.getOps<GlobalOp>())
    before[global.getSymName()] = global;

  llvm::SmallPtrSet<Operation *, 16> kept;
  for (auto [tensor, offset] : llvm::zip_equal(tensors, written.offsets)) {
    GlobalOp global;
    if (tensor.weight) {
      GlobalOp old = before.lookup(tensor.weight->parts.front().global);
      OpBuilder builder(old);
      bool isCodes = tensor.kind == FileTensor::Kind::Codes;
      Type element = isCodes ? Type(builder.getI8Type()) : builder.getF32Type();
      auto type = RankedTensorType::get(tensor.shape, element);
      global = GlobalOp::create(builder, old.getLoc(), tensor.name, type, /*is_mutable=*/false,
                                ml_program::ExternAttr::get(&getContext(), type),
                                builder.getStringAttr("private"));
      (isCodes ? packed[tensor.weight].codes : packed[tensor.weight].scales) = global;
    } else {
      global = before.lookup(tensor.name);
    }
    global->setAttr(kOffsetAttr, attributes.getI64IntegerAttr(offset));
    kept.insert(global);
  }

  for (const Use &use : uses) {
    OpBuilder builder(use.op);
    auto load = [&](GlobalOp global) -> Value {
      return GlobalLoadConstOp::create(builder, use.op->getLoc(), global.getType(),
                                       FlatSymbolRefAttr::get(global.getSymNameAttr()));
    };
    Globals globals = packed.lookup(use.weight);
    use.codes->set(load(globals.codes));
    use.scale->set(load(globals.scales));
  }
  // What made the weights is dead now, uses before definitions.
  module.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (isa<PackOp, PackScalesOp, ConcatOp, QuantizeOp, ChooseQParamsOp, GlobalLoadConstOp>(op) &&
        isOpTriviallyDead(op))
      op->erase();
  });
  for (GlobalOp global : llvm::make_early_inc_range(module.getOps<GlobalOp>()))
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) && !kept.contains(global))
      global.erase();
}

void MaterializeWeights::runOnOperation() {
  ModuleOp module = getOperation();
  weights.clear();
  weightByKey.clear();
  uses.clear();
  tensors.clear();

  auto path = module->getAttrOfType<StringAttr>(lm::kSourceAttr);
  if (!path) {
    emitError(module.getLoc()) << "module has no " << lm::kSourceAttr
                               << ", the path of the model that its globals name tensors of";
    return signalPassFailure();
  }
  if (output.empty()) {
    emitError(module.getLoc()) << "option output is missing: the folder to write weights to";
    return signalPassFailure();
  }
  Result<formats::ModelSource> source = formats::ModelSource::open(path.str());
  if (!source) {
    emitError(module.getLoc()) << source.error().message;
    return signalPassFailure();
  }
  if (failed(collect()) || failed(plan(*source)))
    return signalPassFailure();
  Result<DictionaryAttr> described = describeSource(&getContext(), *source);
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
      writeWeights(folder, maxShardBytes, tensors, *source, threads, progress);
  if (!written) {
    emitError(module.getLoc()) << written.error().message;
    return signalPassFailure();
  }
  llvm::DenseMap<Operation *, const ConstantWeight *> weightOf;
  for (const Use &use : uses)
    weightOf[use.op] = use.weight;
  NamedAttrList report;
  report.set("source", *described);
  Attribute recipe = module->getAttr(kRecipeAttr);
  report.set("quantization", recipe ? recipe : UnitAttr::get(&getContext()));
  report.set("sites", describeSites(module, weightOf, *written));
  module->setAttr(kReportAttr, report.getDictionary(&getContext()));
  rewrite(*written);
}
