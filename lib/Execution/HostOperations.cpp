//===- HostOperations.cpp - Ops that lib/Numerics computes ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostOperations.h"

#include "easyquant/Formats/Step.h"
#include "easyquant/Numerics/ExpertGradients.h"
#include "easyquant/Numerics/GatedDelta.h"
#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Support/Parallel.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::Matrix;

using Operands = const HostOperand *;

static Matrix matrix(const HostOperand &operand) {
  return {static_cast<float *>(operand.data), operand.rows, operand.columns, operand.stride};
}

static std::span<float> elements(const HostOperand &operand) {
  return {static_cast<float *>(operand.data), static_cast<size_t>(operand.columns)};
}

static std::span<const int32_t> integers(const HostOperand &operand) {
  return {static_cast<const int32_t *>(operand.data), static_cast<size_t>(operand.columns)};
}

/// Numbers of several a row, one row after the other.
static std::vector<int32_t> integerRows(const HostOperand &operand) {
  std::vector<int32_t> all;
  for (int64_t row = 0; row < operand.rows; ++row) {
    const auto *first = static_cast<const int32_t *>(operand.data) + row * operand.stride;
    all.insert(all.end(), first, first + operand.columns);
  }
  return all;
}

/// The position of each row of a batch.
static std::vector<int32_t> positionsOf(const HostOperand &batch) {
  std::vector<int32_t> positions;
  const auto *sequences = static_cast<const eq_sequence *>(batch.data);
  for (const eq_sequence &sequence : std::span(sequences, static_cast<size_t>(batch.rows)))
    for (int32_t row = 0; row < sequence.rows; ++row)
      positions.push_back(sequence.position + row);
  return positions;
}

/// Rows that one thread rounds at a time.
static constexpr int64_t kRoundedRows = 16;

static void copyRows(Matrix from, Matrix to) {
  for (int64_t i = 0; i < from.rows; ++i)
    std::copy_n(from.row(i), from.columns, to.row(i));
}

HostOperation easyquant::execution::roundingBy(equant::SchemeAttr scheme) {
  if (!scheme)
    return [](Operands o, unsigned) { copyRows(matrix(o[0]), matrix(o[1])); };
  return [scheme = scheme.toNumerics()](Operands o, unsigned threads) {
    const Matrix in = matrix(o[0]), out = matrix(o[1]);
    parallelFor((in.rows + kRoundedRows - 1) / kRoundedRows, threads, [&](int64_t i) {
      const int64_t first = i * kRoundedRows, count = std::min(kRoundedRows, in.rows - first);
      const Matrix part = in.middleRows(first, count), rounded = out.middleRows(first, count);
      // The runner says where what is not finite first shows.
      if (!numerics::roundTokens(part, scheme, rounded))
        copyRows(part, rounded);
    });
  };
}

HostOperation easyquant::execution::hostOperation(Operation *op) {
  return TypeSwitch<Operation *, HostOperation>(op)
      .Case([](equant::RoundActivationOp) { return roundingBy({}); })
      .Case([](lm::LinearInputGradientOp op) {
        return [ofExperts = bool(op.getExperts())](Operands o, unsigned threads) {
          if (ofExperts)
            numerics::expertInputGradient(matrix(o[0]), matrix(o[1]), integers(o[2]), matrix(o[3]),
                                          threads);
          else
            numerics::linearInputGradient(matrix(o[0]), matrix(o[1]), matrix(o[2]), threads);
        };
      })
      .Case([](lm::LinearWeightGradientOp op) {
        return [ofExperts = bool(op.getExperts())](Operands o, unsigned threads) {
          if (ofExperts)
            numerics::expertWeightGradient(matrix(o[0]), matrix(o[1]), integers(o[2]), matrix(o[3]),
                                           threads);
          else
            numerics::linearWeightGradient(matrix(o[0]), matrix(o[1]), matrix(o[2]), threads);
        };
      })
      .Case([](lm::RouteGradientOp op) {
        const numerics::Router router{.chosen = lm::columns(op.getPlaces()),
                                      .renormalize = op.getRenormalize(),
                                      .sigmoid = op.getSigmoid(),
                                      .scale = op.getScale().convertToDouble()};
        return [router, hasFactors = bool(op.getFactors())](Operands o, unsigned) {
          numerics::Router own = router;
          if (hasFactors)
            own.factors = elements(o[4]);
          numerics::routeGradient(matrix(o[0]), matrix(o[1]), integers(o[2]), integerRows(o[3]),
                                  own, matrix(o[4 + hasFactors]));
        };
      })
      .Case([](lm::WeighChoicesOp) {
        return [](Operands o, unsigned) {
          numerics::weighChoices(matrix(o[0]), integerRows(o[1]), matrix(o[2]), matrix(o[3]));
        };
      })
      .Case([](lm::ChoiceWeightsGradientOp) {
        return [](Operands o, unsigned) {
          numerics::choiceWeightsGradient(matrix(o[0]), matrix(o[1]), integerRows(o[2]),
                                          matrix(o[3]));
        };
      })
      .Case([](lm::SharedExpertGradientOp) {
        return [](Operands o, unsigned) {
          numerics::sharedExpertGradient(matrix(o[0]), matrix(o[1]), matrix(o[2]), matrix(o[3]),
                                         matrix(o[4]));
        };
      })
      .Case([](lm::BiasGradientOp) {
        return [](Operands o, unsigned) { numerics::biasGradient(matrix(o[0]), elements(o[1])); };
      })
      .Case([](lm::RmsNormWeightGradientOp op) {
        return [epsilon = op.getEpsilon().convertToDouble()](Operands o, unsigned) {
          numerics::rmsNormWeightGradient(matrix(o[0]), matrix(o[1]), epsilon, elements(o[2]));
        };
      })
      .Case([](lm::LayerNormWeightGradientOp op) {
        return [epsilon = op.getEpsilon().convertToDouble()](Operands o, unsigned) {
          numerics::layerNormWeightGradient(matrix(o[0]), matrix(o[1]), epsilon, elements(o[2]));
        };
      })
      .Case([](lm::AttentionGradientOp op) {
        return [params = attentionParams(op)](Operands o, unsigned threads) {
          numerics::attentionGradient(params, matrix(o[0]), matrix(o[1]), matrix(o[2]),
                                      matrix(o[3]), matrix(o[4]), matrix(o[5]), matrix(o[6]),
                                      threads);
        };
      })
      .Case([](lm::Conv1dGradientOp op) {
        return [hasSilu = bool(op.getSiluOf()), hasBias = bool(op.getBias())](Operands o,
                                                                              unsigned) {
          const Matrix dx = matrix(o[2 + hasSilu + hasBias]);
          if (hasSilu)
            numerics::siluConvolutionGradient(matrix(o[0]), matrix(o[1]), matrix(o[2]),
                                              hasBias ? elements(o[3]) : std::span<float>(), dx);
          else
            numerics::convolutionGradient(matrix(o[0]), matrix(o[1]), dx);
        };
      })
      .Case([](lm::GatedDeltaGradientOp op) {
        const auto keyHeads = static_cast<int64_t>(op.getKeyHeads()),
                   valueHeads = static_cast<int64_t>(op.getValueHeads());
        return [keyHeads, valueHeads, tiled = op.getTiled()](Operands o, unsigned threads) {
          numerics::gatedDeltaGradient(
              {keyHeads, valueHeads, tiled, elements(o[6]), elements(o[7])}, matrix(o[0]),
              {matrix(o[1]), matrix(o[2]), matrix(o[3]), matrix(o[4]), matrix(o[5])},
              {matrix(o[8]), matrix(o[9]), matrix(o[10]), matrix(o[11]), matrix(o[12])}, threads);
        };
      })
      .Case([](lm::RowsGradientOp) {
        return [](Operands o, unsigned) {
          numerics::embeddingGradient(matrix(o[0]), integers(o[2]), matrix(o[3]));
        };
      })
      .Case([](lm::EmbeddingGradientOp) {
        return [](Operands o, unsigned) {
          numerics::embeddingGradient(matrix(o[0]), integers(o[1]), matrix(o[2]));
        };
      })
      .Case([](lm::PositionEmbeddingGradientOp) {
        return [](Operands o, unsigned) {
          numerics::embeddingGradient(matrix(o[0]), positionsOf(o[1]), matrix(o[2]));
        };
      });
}
