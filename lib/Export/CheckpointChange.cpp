//===- CheckpointChange.cpp - What a checkpoint changes -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckpointChange.h"

using namespace easyquant;
using namespace easyquant::equant;
using formats::StoredParts;
using formats::WeightChange;
using formats::WeightCodec;
using numerics::QuantizedMatrix;

namespace {

/// Takes rows of a weight nowhere: it compares them with what a codec reads.
class Comparison final : public numerics::WeightLayout {
public:
  Comparison(const numerics::Scheme &scheme, const WeightCodec &codec, const StoredParts &stored)
      : WeightLayout(scheme, codec.rows, codec.columns), codec(codec), stored(stored),
        changes(rows / codec.blockRows() + 1, WeightChange()) {}

  bool has(numerics::WeightTensor) const override { return false; }
  std::vector<int64_t> shape(numerics::WeightTensor) const override { return {0}; }
  int64_t blockRows() const override { return codec.blockRows(); }
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &) const override {
    changes[firstRow / blockRows()] = formats::changeOf(block, firstRow, codec, stored);
  }

  /// What changes in all rows, added in their order.
  Result<WeightChange> sum() const {
    WeightChange all;
    for (const Result<WeightChange> &change : changes) {
      if (!change)
        return change;
      all.add(*change);
    }
    return all;
  }

private:
  const WeightCodec &codec;
  const StoredParts &stored;
  mutable std::vector<Result<WeightChange>> changes; ///< of the blocks that begin there
};

} // namespace

static Result<WeightChange> measureSite(const StoredSite &site, const ConstantReader &reader,
                                        llvm::ThreadPoolInterface &pool) {
  const WeightCodec &codec = *site.stored.codec;
  std::vector<std::vector<uint8_t>> bytes;
  if (auto done = readWeight(site, reader, pool,
                             [&](const auto &, std::span<uint8_t> tensor) -> Result<void> {
                               bytes.emplace_back(tensor.begin(), tensor.end());
                               return {};
                             });
      !done)
    return Unexpected(done.error());
  const std::vector<std::span<const uint8_t>> spans(bytes.begin(), bytes.end());
  auto stored = codec.partsOf(spans);
  if (!stored)
    return Unexpected(stored.error());
  const Comparison comparison(site.weight->scheme.toNumerics(), codec, *stored);
  const numerics::WeightLayout *layout = &comparison;
  if (auto done = evaluate(*site.weight, layout, reader, pool); !done)
    return Unexpected(done.error());
  return comparison.sum();
}

std::string CheckpointChange::describe() const {
  return fmt::format("weights change by up to {:.2g} % (site '{}') and by {:.1e} altogether "
                     "(‖W' - W‖ / ‖W‖)",
                     100 * weights.largest, site, weights.relative());
}

Result<CheckpointChange> easyquant::measureChange(const Checkpoint &checkpoint,
                                                  const ConstantReader &reader,
                                                  llvm::ThreadPoolInterface &pool) {
  CheckpointChange all;
  for (const CheckpointTensor &tensor : checkpoint.tensors) {
    if (!tensor.site || !isKept(*tensor.site->weight) ||
        !formats::mayChange(tensor.site->weight->scheme.toNumerics(), *tensor.site->stored.codec))
      continue;
    auto change = measureSite(*tensor.site, reader, pool);
    if (!change)
      return makeError(change.error().code, "site '{}': {}", tensor.site->name(),
                       change.error().message);
    if (change->largest > all.weights.largest)
      all.site = tensor.site->name();
    all.weights.add(*change);
  }
  return all;
}
