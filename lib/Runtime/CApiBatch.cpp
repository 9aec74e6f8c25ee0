//===- CApiBatch.cpp - The C interface: batches --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApiBatch.h"

using namespace easyquant;
using namespace easyquant::runtime;

eq_error *eq_batch_create(const eq_model *model, const eq_batch_options *options,
                          eq_batch **batch) {
  return guarded({{model, "model"}, {batch, "batch"}}, [&]() -> Result<void> {
    const eq_batch_options given = options ? *options : eq_batch_options{};
    Result<Batch> created = Batch::create(
        model->model, {given.context, given.sequences == 0 ? 1 : given.sequences, given.tokens,
                       given.threads, given.measure != 0, given.kept_states, given.drafts != 0});
    if (!created)
      return Unexpected(created.error());
    *batch = new eq_batch{std::move(*created)};
    return {};
  });
}

void eq_batch_free(eq_batch *batch) { delete batch; }

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

/// What makes a sequence, whose id goes to `id`, an argument of this name.
template <typename Make>
static eq_error *makeSequence(eq_batch *batch, int64_t *id, std::string_view name, Make make) {
  return guarded({{batch, "batch"}, {id, name}}, [&]() -> Result<void> {
    Result<int64_t> made = make();
    if (!made)
      return Unexpected(made.error());
    *id = *made;
    return {};
  });
}

eq_error *eq_batch_add(eq_batch *batch, int64_t *sequence) {
  return makeSequence(batch, sequence, "sequence", [&] { return batch->batch.add(); });
}

eq_error *eq_batch_fork(eq_batch *batch, int64_t sequence, int64_t *fork) {
  return makeSequence(batch, fork, "fork", [&] { return batch->batch.fork(sequence); });
}

eq_error *eq_batch_remove(eq_batch *batch, int64_t sequence) {
  return guarded({{batch, "batch"}}, [&] { return batch->batch.remove(sequence); });
}

eq_error *eq_batch_truncate(eq_batch *batch, int64_t sequence, int64_t position) {
  return guarded({{batch, "batch"}}, [&] { return batch->batch.truncate(sequence, position); });
}

int64_t eq_batch_resume_position(const eq_batch *batch, int64_t sequence, int64_t position) {
  return batch ? batch->batch.resumePosition(sequence, position).value_or(-1) : 0;
}

int64_t eq_batch_state_size(const eq_batch *batch) { return batch ? batch->batch.stateBytes() : 0; }

eq_error *eq_batch_state_save(const eq_batch *batch, int64_t sequence, void *state, size_t size) {
  return guarded({{batch, "batch"}, {state, "state", size > 0}}, [&] {
    return batch->batch.saveState(sequence, {static_cast<std::byte *>(state), size});
  });
}

eq_error *eq_batch_state_restore(eq_batch *batch, int64_t sequence, const void *state,
                                 size_t size) {
  return guarded({{batch, "batch"}, {state, "state"}}, [&] {
    return batch->batch.restoreState(sequence, {static_cast<const std::byte *>(state), size});
  });
}

eq_error *eq_batch_state_reset(eq_batch *batch, int64_t sequence) {
  return guarded({{batch, "batch"}}, [&] { return batch->batch.resetState(sequence); });
}

eq_error *eq_batch_saved_size(const eq_batch *batch, int64_t sequence, size_t *size) {
  return guarded({{batch, "batch"}, {size, "size"}}, [&] {
    return batch->batch.savedBytes(sequence).transform(
        [&](int64_t bytes) { *size = static_cast<size_t>(bytes); });
  });
}

eq_error *eq_batch_save(const eq_batch *batch, int64_t sequence, void *bytes, size_t size) {
  return guarded({{batch, "batch"}, {bytes, "bytes"}}, [&] {
    return batch->batch.save(sequence, {static_cast<std::byte *>(bytes), size});
  });
}

eq_error *eq_batch_restore(eq_batch *batch, const void *bytes, size_t size, int64_t *sequence) {
  return guarded({{batch, "batch"}, {bytes, "bytes"}, {sequence, "sequence"}}, [&] {
    return batch->batch.restore({static_cast<const std::byte *>(bytes), size})
        .transform([&](int64_t id) { *sequence = id; });
  });
}

int64_t eq_batch_pages(const eq_batch *batch) { return batch ? batch->batch.pages() : 0; }
int64_t eq_batch_free_pages(const eq_batch *batch) { return batch ? batch->batch.freePages() : 0; }

int64_t eq_batch_position(const eq_batch *batch, int64_t sequence) {
  if (!batch)
    return 0;
  return batch->batch.holds(sequence) ? *batch->batch.position(sequence) : -1;
}

const float *eq_batch_logits(const eq_batch *batch, int64_t sequence) {
  return batch ? batch->batch.logits(sequence) : nullptr;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

eq_error *eq_batch_append(eq_batch *batch, eq_batch_item *items, size_t count) {
  return guarded({{batch, "batch"}, {items, "items", count > 0}}, [&]() -> Result<void> {
    if (count == 0)
      return {};
    std::vector<Batch::Item> asked(count);
    for (size_t i = 0; i < count; ++i) {
      items[i].status = EQ_OK;
      items[i].error = nullptr;
      // NULL is no tokens, which the batch refuses.
      const size_t tokens = items[i].tokens ? items[i].count : 0;
      asked[i] = {items[i].sequence, {items[i].tokens, tokens},
                  items[i].logits,   items[i].logprobs,
                  items[i].best,     static_cast<int64_t>(items[i].best_count)};
    }
    if (Result<void> appended = batch->batch.append(asked); !appended)
      return appended;
    for (size_t i = 0; i < count; ++i)
      if (Result<void> &result = asked[i].result; !result) {
        items[i].status = static_cast<eq_error_code>(result.error().code);
        items[i].error = newError(std::move(result.error()));
      }
    return {};
  });
}

eq_error *eq_batch_draft(eq_batch *batch, eq_draft *drafts, size_t count) {
  return guarded({{batch, "batch"}, {drafts, "drafts", count > 0}}, [&]() -> Result<void> {
    std::vector<Batch::DraftItem> asked(count);
    for (size_t i = 0; i < count; ++i) {
      if (drafts[i].count > 0 && !drafts[i].drafts)
        return makeError(ErrorCode::InvalidArgument,
                         "drafts[{}]: found NULL for {} tokens, expected memory for them", i,
                         drafts[i].count);
      asked[i] = {drafts[i].sequence, drafts[i].token, static_cast<int64_t>(drafts[i].count)};
    }
    if (Result<void> drafted = batch->batch.draft(asked); !drafted)
      return drafted;
    for (size_t i = 0; i < count; ++i) {
      std::ranges::copy(asked[i].tokens, drafts[i].drafts);
      drafts[i].count = asked[i].tokens.size();
    }
    return {};
  });
}

void eq_batch_set_progress(eq_batch *batch, eq_progress progress, void *context) {
  if (!batch)
    return;
  batch->progress = progress;
  batch->progressContext = context;
  auto ask = [](void *owner, int64_t done, int64_t total) {
    auto *self = static_cast<eq_batch *>(owner);
    return self->progress(self->progressContext, done, total) != 0;
  };
  batch->batch.setProgress(progress ? Progress{ask, batch} : Progress());
}

int64_t eq_batch_context(const eq_batch *batch) { return batch ? batch->batch.context() : 0; }
int32_t eq_batch_threads(const eq_batch *batch) { return batch ? batch->batch.threads() : 0; }
int64_t eq_batch_bytes(const eq_batch *batch) { return batch ? batch->batch.bytes() : 0; }

eq_error *eq_batch_breakdown(eq_batch *batch, const char **json) {
  return guarded({{batch, "batch"}, {json, "json"}},
                 [&] { return answer(batch->batch.costs(), batch->breakdown, json); });
}

eq_error *eq_batch_breakdown_sites(eq_batch *batch, const char **json) {
  return guarded({{batch, "batch"}, {json, "json"}},
                 [&] { return answer(batch->batch.siteCosts(), batch->siteBreakdown, json); });
}
