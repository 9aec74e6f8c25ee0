//===- GPUExpertKernels.cpp - Launches of mixtures of experts -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lm.route gives as `offsets` are on GPUs the lists of items (Codegen/GPU/Experts.h), which
// the linears of experts take in their place.
//
//===----------------------------------------------------------------------===//

#include "GPULauncher.h"

using namespace mlir;
using namespace easyquant;

/// The number of experts, so that each has `n` of the outputs of the weight; an error where kernels
/// do not find an expert's weights.
static FailureOr<int64_t> checkExperts(Operation *op, Value experts, int64_t n, bool isFloat) {
  const int64_t unit = isFloat ? easyquant::gpu::kExpertFloatUnit : easyquant::gpu::kExpertUnit;
  if (n % unit == 0)
    return lm::expertCount(experts);
  return op->emitOpError("of site '")
         << siteOf(op) << "' has experts of " << n << " outputs; GPUs read "
         << (isFloat ? "float" : "packed") << " weights of experts " << unit
         << " outputs at a time; compile it with --target cpu";
}

template <typename Spec>
LogicalResult GPULauncher::expertLinear(LaunchBuilder &b, Operation *op, const KernelOps &kernel,
                                        Spec spec, Value experts, Arguments &arguments) const {
  if (kernel.next<lm::AddOp>())
    return op->emitOpError("of site '") << siteOf(op)
                                        << "' has experts, whose rows are no rows of "
                                           "what it is added to";
  if (!experts.getDefiningOp<lm::RouteOp>())
    return op->emitOpError("of site '")
           << siteOf(op) << "' has experts that no lm.route has given rows to";
  spec.n = lm::columns(op->getResult(0));
  FailureOr<int64_t> count = checkExperts(op, experts, spec.n, spec.bits == 16);
  if (failed(count))
    return failure();
  spec.experts = *count;
  arguments.set("y", b.linearResult(kernel, b.rows(b[op->getOperand(0)])));
  arguments.set("items", b[experts]);
  auto launchAll = [&](const auto &choices) {
    return forRowRanges(b, choices, [&](const auto &choice, RowRange range, int64_t) {
      return launch(b, op, getOrEmit(kernels, spec, choice), arguments, Phase::Gemm, range);
    });
  };
  if constexpr (std::is_same_v<Spec, easyquant::gpu::LinearSpec>)
    return launchAll(linearKernels(spec, chip));
  else if constexpr (std::is_same_v<Spec, easyquant::gpu::BlockScaledSpec>)
    return launchAll(blockScaledKernels(spec, chip));
  else
    return launchAll(weightOnlyKernels(spec, chip));
}

template LogicalResult GPULauncher::expertLinear(LaunchBuilder &, Operation *, const KernelOps &,
                                                 easyquant::gpu::LinearSpec, Value,
                                                 Arguments &) const;
template LogicalResult GPULauncher::expertLinear(LaunchBuilder &, Operation *, const KernelOps &,
                                                 easyquant::gpu::BlockScaledSpec, Value,
                                                 Arguments &) const;
template LogicalResult GPULauncher::expertLinear(LaunchBuilder &, Operation *, const KernelOps &,
                                                 easyquant::gpu::WeightOnlySpec, Value,
                                                 Arguments &) const;

void GPULauncher::addExperts(KernelLibrary &library) const {
  library.add<lm::RouteOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    const int64_t experts = lm::columns(op.getLogits()), chosen = op.getTopK();
    Value rows = b.rows(b[op.getLogits()]);
    Value places = b.result(op.getPlaces(), rows);
    Arguments choose(b, {{"logits", b[op.getLogits()]},
                         {"places", places},
                         {"weights", b.result(op.getWeights(), rows)}});
    easyquant::gpu::ChooseExpertsSpec spec{experts, chosen, op.getRenormalize(), op.getSigmoid()};
    spec.bias = bool(op.getBias());
    spec.factors = bool(op.getFactors());
    spec.scale = op.getScale().convertToDouble();
    if (failed(choose.setWeight("bias", op.getBias())) ||
        failed(choose.setWeight("factors", op.getFactors())) ||
        failed(launch(b, op, getOrEmit(kernels, spec, chip), choose, Phase::Other)))
      return failure();
    // As many rows as there can be items, and one of their numbers.
    auto lists = RankedTensorType::get({ShapedType::kDynamic, easyquant::gpu::kItemStride},
                                       op.getOffsets().getType().getElementType());
    b.setMemory(op.getOffsets(), b.buffer(lists, b.timesRows(rows, chosen + 1)));
    Arguments sort(b, {{"places", places},
                       {"order", b.result(op.getOrder(), b.timesRows(rows, chosen))},
                       {"items", b[op.getOffsets()]}});
    const int64_t few = easyquant::gpu::kFewChoices / chosen;
    for (bool isFew : {true, false}) {
      easyquant::gpu::SortChoicesSpec sorting{experts, chosen, isFew};
      const RowRange range = isFew ? RowRange(1, few) : RowRange(few + 1, 0);
      if (few == 0 && isFew)
        continue;
      if (failed(launch(b, op, getOrEmit(kernels, sorting, chip), sort, Phase::Other, range)))
        return failure();
    }
    return success();
  });
  library.add<lm::CombineOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"places", b[op.getPlaces()]},
                            {"weights", b[op.getWeights()]},
                            {"x", b[op.getInput()]},
                            {"y", b.result(op.getOutput(), b.rows(b[op.getPlaces()]))}});
    OperandRange shared = op.getShared();
    for (auto [name, operand] : llvm::zip(ArrayRef<StringRef>{"shared", "gate"}, shared))
      arguments.set(name, b[operand]);
    easyquant::gpu::CombineSpec spec{lm::columns(op.getInput()), lm::columns(op.getPlaces()),
                                     !shared.empty()};
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
  });
}
