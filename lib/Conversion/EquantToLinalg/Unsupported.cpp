//===- Unsupported.cpp - Ops without a form in upstream ops ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Dialect/LM/IR/LM.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

std::string linalgform::inWords(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

static constexpr llvm::StringLiteral kNoExperts =
    "belongs to a mixture of experts, which has no form in upstream ops yet";

/// Why activations are not rounded to codes that are no integers; empty if they are.
static std::string whyNotRounded(SchemeAttr scheme) {
  if (!scheme || scheme.isInteger())
    return "";
  const bool isScaled =
      scheme.getOuter() ? isa<Float8E4M3FNType>(scheme.getScale()) : scheme.getScale().isF32();
  if (isScaled && !scheme.isOnline())
    return "";
  return "rounds activations to " + linalgform::inWords(scheme) +
         "; expected i8, or f8E4M3FN or f4E2M1FN with scales of f32, or of f8E4M3FN in units of "
         "one a tensor";
}

std::string linalgform::whyNotEquant(Operation *op) {
  if (!isa_and_present<EquantDialect>(op->getDialect()))
    return "";
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case([](FakeQuantizeOp fake) { return whyNotRounded(fake.getScheme()); })
      .Case([](QuantizeRowsOp rows) {
        return rows.getRows().getType().isBlockScaled()
                   ? "makes codes as a GPU multiplies them; convert the model before "
                     "equant-legalize-activations"
                   : "";
      })
      .Case([](equant::LinearOp linear) {
        return linear.getExperts() ? kNoExperts.str() : whyNotRounded(linear.getInputSchemeAttr());
      })
      .Case([](PackedLinearOp linear) -> std::string {
        if (linear.getExperts())
          return kNoExperts.str();
        if (linear.getRows() && linear.getRows().isBlockScaled())
          return "reads codes as a GPU multiplies them; convert the model before "
                 "equant-legalize-activations";
        if (!linear.getRows() && !lm::isActivationType(linear.getInput().getType()))
          return "reads bf16; convert the model before equant-legalize-activations";
        return whyNotRounded(linear.getInputSchemeAttr());
      })
      .Case([](equant::EmbeddingOp embedding) -> std::string {
        return embedding.getSharded() ? "has a rank's share of the vocabulary, which is none for "
                                        "one program; compile without --tensor-parallel"
                                      : "";
      })
      .Case([](equant::AttentionOp attention) {
        return "attends to a cache of codes, " + inWords(attention.getKvScheme()) +
               ", which one forward pass has none of; leave --kv-scheme out";
      })
      .Case<OnlineScaleOp, TrackOp, AdvanceOp, SyncExtremaOp>([](Operation *) {
        return "keeps scales from step to step, of which one forward pass has none; take dynamic "
               "or static activations";
      })
      .Case<AllSliceOp, TokenSquaresOp, PartRmsNormOp, FirstRankOp, AddBiasOp>(
          [](Operation *) { return "is of a rank's share; compile without --tensor-parallel"; })
      .Case<ObserveOp, RoundActivationOp>([](Operation *) {
        return "belongs to calibration and is computed by its host; convert the model after it";
      })
      .Default([](Operation *) { return ""; });
}

std::string linalgform::whyNotModel(Operation *op) {
  if (!isa_and_present<lm::LMDialect>(op->getDialect()))
    return "";
  if (auto embedding = dyn_cast<lm::EmbeddingOp>(op)) {
    if (!embedding.getTable().getType().getElementType().isF32())
      return "reads halves; convert the model before equant-materialize-weights";
    return embedding.getSharded() ? "has a rank's share of the vocabulary, which is none for one "
                                    "program; compile without --tensor-parallel"
                                  : "";
  }
  if (isa<lm::RouteOp, lm::CombineOp>(op))
    return kNoExperts.str();
  if (auto linear = dyn_cast<lm::LinearOp>(op); linear && linear.getExperts())
    return kNoExperts.str();
  if (auto linear = dyn_cast<lm::LinearOp>(op))
    return lm::isActivationType(linear.getInput().getType())
               ? ""
               : "reads bf16; convert the model before equant-legalize-activations";
  if (auto attention = dyn_cast<lm::AttentionOp>(op); attention && attention.getSinkLogits())
    return "has sink logits, which have no form in upstream ops yet";
  if (auto gate = dyn_cast<lm::GluOp>(op);
      gate && gate.getActivation() == lm::GluActivation::Clamped)
    return "has a clamped gate, which has no form in upstream ops yet";
  if (isa<lm::PositionEmbeddingOp, lm::RopeOp, lm::RmsNormOp, lm::HeadRmsNormOp, lm::LayerNormOp,
          lm::AttentionOp, lm::GluOp, lm::GeluOp, lm::MultiplyOp, lm::SoftCapOp, lm::AddOp,
          lm::SplitOp, lm::RowsOp>(op))
    return "";
  if (isa<lm::Conv1dOp, lm::GatedDeltaOp>(op))
    return "keeps a state from step to step, of which one forward pass has none; compile the model "
           "for CPUs";
  return "has no form in upstream ops: gradients are not converted";
}
