//===- WeightReport.cpp - What became of each site ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightReport.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;

Result<DictionaryAttr> easyquant::equant::describeSource(MLIRContext *context,
                                                         const formats::ModelSource &source) {
  Result<std::string> hash = source.hash();
  if (!hash)
    return Unexpected(hash.error());
  Builder b(context);
  NamedAttrList types;
  for (const auto &[name, count] : source.storedTypes())
    types.set(name, b.getI64IntegerAttr(count));
  NamedAttrList entry;
  if (!source.assistantPath().empty())
    entry.set("assistant", b.getStringAttr(formats::nameOfModel(source.assistantPath())));
  entry.set("kind", b.getStringAttr(source.kindName()));
  entry.set("name", b.getStringAttr(source.name()));
  entry.set("stored_types", types.getDictionary(context));
  entry.set("xxh3_128", b.getStringAttr(*hash));
  return entry.getDictionary(context);
}

Attribute easyquant::equant::describeScheme(MLIRContext *context, SchemeAttr scheme,
                                            bool isWeight) {
  Builder b(context);
  if (!scheme)
    return b.getUnitAttr();
  NamedAttrList entry;
  numerics::Scheme numeric = scheme.toNumerics();
  std::string_view table = numeric.table ? numeric.table->name() : "";
  entry.set("bits", b.getI64IntegerAttr(scheme.getBits()));
  entry.set("codes", b.getStringAttr(table.empty() ? StringRef(numerics::toString(numeric.codes))
                                                   : StringRef(table)));
  if (numeric.table)
    entry.set("table", b.getF64ArrayAttr(llvm::to_vector_of<double>(numeric.table->values())));
  if (isWeight)
    entry.set("scale_type", b.getStringAttr(numerics::toString(numeric.scales)));
  if (scheme.getOuter())
    entry.set("outer", b.getStringAttr("tensor"));
  entry.set("symmetric", b.getBoolAttr(scheme.getSymmetric()));
  if (scheme.getMinima())
    entry.set("minima", b.getBoolAttr(true));
  if (!isWeight)
    entry.set("dynamic", b.getBoolAttr(scheme.getDynamic()));
  if (scheme.isOnline())
    entry.set("online", b.getBoolAttr(true));
  if (scheme.getSinks())
    entry.set("sinks", b.getStringAttr("keep"));
  if (scheme.getHadamard())
    entry.set("hadamard", b.getI64IntegerAttr(scheme.getHadamard()));
  entry.set("granularity", b.getStringAttr(stringifyGranularity(scheme.getGranularity())));
  if (isWeight || scheme.getGroupSize())
    entry.set("group_size", b.getI64IntegerAttr(scheme.getGroupSize()));
  return entry.getDictionary(context);
}

namespace {
/// How rows of a site are rotated; a block of 0: they are not.
struct RowRotation {
  int64_t block = 0, first = 0;
};
/// Some of a constant's rows.
struct RowPiece {
  const ConstantTensor *constant = nullptr;
  int64_t firstRow = 0, rows = 0;
};
} // namespace

/// How rows that are these pieces, one behind the other, are rotated.
static RowRotation rowRotationOf(ArrayRef<RowPiece> pieces) {
  int64_t before = 0;
  for (const RowPiece &piece : pieces) {
    const ConstantStep *step = piece.constant->rowRotation();
    if (const int64_t first = step ? std::max<int64_t>(step->first - piece.firstRow, 0) : 0;
        step && first < piece.rows)
      return {step->block, before + first};
    before += piece.rows;
  }
  return {};
}

/// Are its codes the source's?
static bool hasStoredCodes(const WeightPart &part) { return part.codes && part.codes->isStored; }

ArrayAttr easyquant::equant::describeSites(const TargetWeights &target) {
  ModuleOp module = target.module;
  Builder b(module.getContext());
  llvm::DenseMap<Operation *, const ConstantWeight *> weightOf;
  llvm::DenseSet<const ConstantWeight *> ofLinears; // what these report, a tied embedding does not
  for (const WeightUse &use : target.weights.uses()) {
    weightOf[use.op] = use.weight;
    if (isa<PackedLinearOp>(use.op))
      ofLinears.insert(use.weight);
  }
  llvm::DenseMap<const OpOperand *, RowRotation> rotationOfFloats;
  for (const FloatConstant &constant : target.weights.floats())
    for (const OpOperand *reader : constant.readers) {
      SmallVector<RowPiece> pieces;
      for (const ConstantTensor &part : constant.parts)
        pieces.push_back({&part, 0, part.shape.front()});
      rotationOfFloats[reader] = constant.rope ? RowRotation() : rowRotationOf(pieces);
    }
  SmallVector<Attribute> sites;
  auto add = [&](StringRef name, Value tensor, int64_t row, int64_t n, int64_t k, int64_t bytes,
                 const numerics::ErrorSums &error, RowRotation rotation, SchemeAttr weight,
                 SchemeAttr input, bool isKept = false, GlobalLoadConstOp order = {}) {
    NamedAttrList entry;
    entry.set("name", b.getStringAttr(name));
    if (auto load = tensor.getDefiningOp<ml_program::GlobalLoadConstOp>()) {
      entry.set("tensor", load.getGlobal().getLeafReference());
      entry.set("first_row", b.getI64IntegerAttr(row));
    }
    entry.set("out_features", b.getI64IntegerAttr(n));
    entry.set("in_features", b.getI64IntegerAttr(k));
    entry.set("weight", describeScheme(module.getContext(), weight, /*isWeight=*/true));
    entry.set("input", describeScheme(module.getContext(), input, /*isWeight=*/false));
    if (rotation.block) {
      entry.set("row_hadamard", b.getI64IntegerAttr(rotation.block));
      if (rotation.first > 0)
        entry.set("row_hadamard_first", b.getI64IntegerAttr(rotation.first));
    }
    if (isKept)
      entry.set("kept", b.getBoolAttr(true));
    if (order)
      entry.set("column_order", order.getGlobal().getLeafReference());
    entry.set("bytes", b.getI64IntegerAttr(bytes));
    // Nothing is relative to a weight of zeros; how far off its values are largest_error says.
    const double relative = error.squaredReference == 0 ? 0 : error.relativeRms();
    entry.set("weight_error", b.getF64FloatAttr(relative));
    entry.set("largest_error", b.getF64FloatAttr(error.maxAbsError));
    sites.push_back(entry.getDictionary(module.getContext()));
  };
  module.walk([&](Operation *op) {
    if (auto linear = dyn_cast<PackedLinearOp>(op)) {
      const ConstantWeight &weight = *weightOf.lookup(op);
      const int64_t rowBytes = linear.getWeight().getType().getRowBytes();
      auto gather = linear.getInput().getDefiningOp<GatherColumnsOp>();
      const std::vector<numerics::ErrorSums> &errors = target.errors.find(&weight)->second;
      int64_t row = 0;
      size_t part = 0;
      // The parts of a tied head's weight carry the name of their first reader: take the linear's.
      for (auto [leaf, site] : llvm::enumerate(linear.getSites().getAsValueRange<StringAttr>())) {
        const WeightPart &first = weight.parts[part];
        numerics::ErrorSums error;
        SmallVector<RowPiece> pieces;
        int64_t rows = 0;
        for (; part < weight.parts.size() && weight.parts[part].leaf == leaf; ++part) {
          const WeightPart &piece = weight.parts[part];
          error.add(errors[part]);
          pieces.push_back({&piece.weight, piece.firstRow, piece.rows});
          rows += piece.rows;
        }
        add(site, linear.getWeight(), row, rows, weight.columns, rows * rowBytes, error,
            rowRotationOf(pieces), weight.scheme, linear.getInputSchemeAttr(),
            hasStoredCodes(first),
            gather ? gather.getOrder().getDefiningOp<GlobalLoadConstOp>() : GlobalLoadConstOp());
        row += rows;
      }
    } else if (auto embedding = dyn_cast<equant::EmbeddingOp>(op)) {
      const ConstantWeight *weight = weightOf.lookup(op);
      if (!ofLinears.contains(weight))
        add(embeddingSite(embedding.getTable()), embedding.getTable(), /*row=*/0, weight->rows,
            weight->columns, weight->rows * embedding.getTable().getType().getRowBytes(),
            target.errors.find(weight)->second.front(), /*rotation=*/{}, weight->scheme, {},
            hasStoredCodes(weight->parts.front()));
    } else if (auto site = dyn_cast<QuantizableOpInterface>(op)) {
      const OpOperand &weight = site.getWeightOperand();
      const auto [n, k] = site.getFeatures();
      add(site.getSite(), weight.get(), /*row=*/0, n, k, n * k * int64_t(sizeof(float)), {},
          rotationOfFloats.lookup(&weight), {}, {});
    }
  });
  return b.getArrayAttr(sites);
}
