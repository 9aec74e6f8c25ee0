//===- _batch.cpp - easyquant._runtime.Batch ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "_sampler.h"

using namespace easyquant::python;
using namespace nb::literals;

namespace {

/// Logits that a token is chosen from.
using GivenRow = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// What an item is told of its tokens.
class Scores {
public:
  Scores(size_t count, size_t bestCount)
      : count(count), bestCount(bestCount), logprobs(new double[count]), best(count * bestCount) {}

  void ask(eq_batch_item &item) {
    item.logprobs = logprobs.get();
    item.best = best.empty() ? nullptr : best.data();
    item.best_count = bestCount;
  }
  nb::object take() {
    std::unique_ptr<int32_t[]> tokens(new int32_t[best.size()]);
    std::unique_ptr<double[]> likely(new double[best.size()]);
    for (size_t i = 0; i < best.size(); ++i) {
      tokens[i] = best[i].token;
      likely[i] = best[i].logprob;
    }
    return nb::make_tuple(
        adopt<nb::ndarray<nb::numpy, double, nb::ndim<1>>>(std::move(logprobs), {count}),
        adopt<nb::ndarray<nb::numpy, int32_t, nb::ndim<2>>>(std::move(tokens), {count, bestCount}),
        adopt<nb::ndarray<nb::numpy, double, nb::ndim<2>>>(std::move(likely), {count, bestCount}));
  }

private:
  size_t count, bestCount;
  std::unique_ptr<double[]> logprobs;
  std::vector<eq_logprob> best;
};

class Batch : Exclusive {
public:
  Batch(const Model &model, int64_t context, int64_t sequences, int64_t tokens, int32_t threads,
        bool measure, int64_t keptStates, bool drafts)
      : vocabulary(static_cast<size_t>(eq_model_vocab_size(model.get()))) {
    if (sequences == 0) // which the C interface takes for one
      raise(EQ_INVALID_ARGUMENT, "sequences: found 0, expected at least 1");
    eq_batch_options options = {context, sequences, tokens, threads, measure, keptStates, drafts};
    eq_batch *created = nullptr;
    check(eq_batch_create(model.get(), &options, &created));
    batch.reset(created);
  }

  int64_t add() {
    int64_t id = 0;
    check(exclusively([&] { return eq_batch_add(batch.get(), &id); }));
    return id;
  }
  int64_t fork(int64_t origin) {
    int64_t id = 0;
    check(exclusively([&] { return eq_batch_fork(batch.get(), origin, &id); }));
    return id;
  }
  void remove(int64_t id) {
    check(exclusively([&] { return eq_batch_remove(batch.get(), id); }));
  }
  void truncate(int64_t id, int64_t position) {
    check(exclusively([&] { return eq_batch_truncate(batch.get(), id, position); }));
  }
  int64_t resumePosition(int64_t id, int64_t position) {
    return expectThere(
        id, exclusively([&] { return eq_batch_resume_position(batch.get(), id, position); }));
  }
  int64_t position(int64_t id) {
    return expectThere(id, exclusively([&] { return eq_batch_position(batch.get(), id); }));
  }
  std::optional<Row> logits(int64_t id) {
    position(id);
    return copied(vocabulary, [&] { return eq_batch_logits(batch.get(), id); });
  }

  nb::bytes state(int64_t id) {
    std::vector<char> saved(static_cast<size_t>(eq_batch_state_size(batch.get())));
    check(exclusively(
        [&] { return eq_batch_state_save(batch.get(), id, saved.data(), saved.size()); }));
    return nb::bytes(saved.data(), saved.size());
  }
  void restoreState(int64_t id, const nb::bytes &state) {
    check(exclusively(
        [&] { return eq_batch_state_restore(batch.get(), id, state.c_str(), state.size()); }));
  }
  void resetState(int64_t id) {
    check(exclusively([&] { return eq_batch_state_reset(batch.get(), id); }));
  }

  nb::bytes save(int64_t id) {
    size_t size = 0;
    check(exclusively([&] { return eq_batch_saved_size(batch.get(), id, &size); }));
    std::vector<char> saved(size);
    check(exclusively([&] { return eq_batch_save(batch.get(), id, saved.data(), size); }));
    return nb::bytes(saved.data(), size);
  }
  int64_t restore(const nb::bytes &saved) {
    int64_t id = 0;
    check(exclusively(
        [&] { return eq_batch_restore(batch.get(), saved.c_str(), saved.size(), &id); }));
    return id;
  }
  int64_t pages() const { return eq_batch_pages(batch.get()); }
  int64_t freePages() {
    return exclusively([&] { return eq_batch_free_pages(batch.get()); });
  }

  nb::list choose(const nb::sequence &given);
  nb::list append(const nb::sequence &given, bool allLogits, const nb::object &progress);
  std::vector<std::vector<int32_t>>
  draft(const std::vector<std::tuple<int64_t, int32_t, size_t>> &items);

  int64_t bytes() const { return eq_batch_bytes(batch.get()); }
  int64_t context() const { return eq_batch_context(batch.get()); }
  int32_t threads() const { return eq_batch_threads(batch.get()); }
  nb::object breakdown() {
    return parsed([&](auto json) { return eq_batch_breakdown(batch.get(), json); });
  }
  nb::object breakdownSites() {
    return parsed([&](auto json) { return eq_batch_breakdown_sites(batch.get(), json); });
  }

private:
  static int64_t expectThere(int64_t id, int64_t position) {
    if (position < 0)
      raise(EQ_INVALID_ARGUMENT, "sequence: found " + std::to_string(id) +
                                     ", which is not in the batch; add one, and use its id until "
                                     "it is removed");
    return position;
  }

  struct Free {
    void operator()(eq_batch *batch) const { eq_batch_free(batch); }
  };
  size_t vocabulary;
  std::unique_ptr<eq_batch, Free> batch;
};

nb::list Batch::choose(const nb::sequence &given) {
  std::vector<Sampler *> samplers;
  std::vector<eq_choice> choices;
  std::vector<GivenRow> rows; // for as long as the choices point to them
  for (nb::handle entry : given) {
    std::pair<int64_t, Sampler *> item;
    std::tuple<int64_t, Sampler *, GivenRow, int64_t> behind;
    const bool hasRow = nb::try_cast(entry, behind, /*convert=*/false);
    if (hasRow)
      item = {std::get<0>(behind), std::get<1>(behind)};
    if ((!hasRow && !nb::try_cast(entry, item)) || !item.second)
      throw nb::type_error(
          "items: expected a sequence's id and its Sampler, and where other logits "
          "than its last ones are meant an array of float32 and a position, too");
    if (std::find(samplers.begin(), samplers.end(), item.second) != samplers.end())
      raise(EQ_INVALID_ARGUMENT,
            "items: found one Sampler for two sequences, expected one for each");
    samplers.push_back(item.second);
    eq_choice &choice = choices.emplace_back(item.second->ask(item.first));
    if (!hasRow)
      continue;
    const GivenRow &row = rows.emplace_back(std::get<2>(behind));
    if (row.size() != vocabulary)
      raise(EQ_INVALID_ARGUMENT, "items: found " + std::to_string(row.size()) +
                                     " logits, expected " + std::to_string(vocabulary));
    choice.logits = row.data();
    choice.position = std::get<3>(behind);
  }
  check(exclusively([&] { return eq_batch_choose(batch.get(), choices.data(), choices.size()); }));
  nb::list results;
  for (size_t i = 0; i < choices.size(); ++i)
    results.append(samplers[i]->settle(choices[i]));
  return results;
}

nb::list Batch::append(const nb::sequence &given, bool allLogits, const nb::object &progress) {
  struct Ask {
    std::vector<int32_t> tokens;
    std::unique_ptr<float[]> logits;
    std::optional<Scores> scores;
    bool wantsLogits = false;
    std::string refused; ///< what is wrong with its tokens
  };
  std::vector<Ask> asks;
  std::vector<eq_batch_item> items;
  for (nb::handle entry : given) {
    std::pair<int64_t, nb::object> item;
    std::tuple<int64_t, nb::object, std::optional<size_t>> scored;
    Ask &ask = asks.emplace_back();
    std::optional<size_t> bestCount;
    ask.wantsLogits = allLogits;
    if (nb::try_cast(entry, scored)) {
      item = {std::get<0>(scored), std::get<1>(scored)};
      bestCount = std::get<2>(scored);
      ask.wantsLogits |= !bestCount;
    } else if (!nb::try_cast(entry, item)) {
      throw nb::type_error("items: expected a sequence's id and its tokens, and where they are to "
                           "be scored how many of the most likely tokens are wanted, too, or None "
                           "for the logits of each");
    }
    auto &[id, tokens] = item;
    if (Tokens array; nb::try_cast(tokens, array, /*convert=*/false)) {
      ask.tokens.assign(array.data(), array.data() + array.size());
    } else {
      std::vector<int64_t> wide;
      if (!nb::try_cast(tokens, wide))
        throw nb::type_error("tokens: expected a sequence of integers or an array of int32");
      for (int64_t token : wide) {
        if (isWide(token) && ask.refused.empty())
          ask.refused = noTokenId(ask.tokens.size(), token);
        ask.tokens.push_back(static_cast<int32_t>(token));
      }
    }
    if (ask.wantsLogits)
      ask.logits = makeLogits(ask.tokens.size(), vocabulary);
    if (bestCount)
      ask.scores.emplace(ask.tokens.size(), std::min(*bestCount, vocabulary));
    if (!ask.refused.empty())
      continue;
    eq_batch_item &asked = items.emplace_back();
    asked.sequence = id;
    asked.tokens = ask.tokens.data();
    asked.count = ask.tokens.size();
    asked.logits = ask.logits.get();
    if (ask.scores)
      ask.scores->ask(asked);
  }
  // Moving an Ask moves none of its tokens and logits, so that `items` point to them still.
  watched(
      progress,
      [this](eq_progress function, void *context) {
        eq_batch_set_progress(batch.get(), function, context);
      },
      [&] { return eq_batch_append(batch.get(), items.data(), items.size()); });

  std::vector<std::unique_ptr<eq_error, decltype(&eq_error_free)>> errors;
  for (const eq_batch_item &item : items)
    errors.emplace_back(item.error, eq_error_free);
  nb::list results;
  size_t next = 0;
  for (Ask &ask : asks) {
    if (!ask.refused.empty()) {
      results.append(makeError(EQ_INVALID_ARGUMENT, ask.refused));
      continue;
    }
    const eq_error *error = errors[next++].get();
    if (error)
      results.append(makeError(eq_error_get_code(error), eq_error_get_message(error)));
    else if (ask.scores)
      results.append(ask.scores->take());
    else if (ask.wantsLogits)
      results.append(nb::cast(adopt<Rows>(std::move(ask.logits), {ask.tokens.size(), vocabulary})));
    else
      results.append(nb::none());
  }
  return results;
}

std::vector<std::vector<int32_t>>
Batch::draft(const std::vector<std::tuple<int64_t, int32_t, size_t>> &items) {
  constexpr size_t most = 4096; // of guesses, however many are asked for
  std::vector<std::vector<int32_t>> tokens;
  std::vector<eq_draft> drafts;
  for (auto [id, token, count] : items) {
    tokens.emplace_back(std::min(count, most));
    drafts.push_back({id, token, tokens.back().data(), tokens.back().size()});
  }
  check(exclusively([&] { return eq_batch_draft(batch.get(), drafts.data(), drafts.size()); }));
  for (size_t i = 0; i < drafts.size(); ++i)
    tokens[i].resize(drafts[i].count);
  return tokens;
}

} // namespace

void easyquant::python::defineBatch(nb::module_ &m) {
  nb::class_<Batch>(m, "Batch",
                    "Many sequences that run in common steps, their KV caches in one pool.")
      .def(
          nb::init<const Model &, int64_t, int64_t, int64_t, int32_t, bool, int64_t, bool>(),
          "model"_a, "context"_a = 0, "sequences"_a = 1, "tokens"_a = 0, "threads"_a = 0,
          "measure"_a = false, "kept_states"_a = 0, "drafts"_a = false,
          "context: tokens of a sequence, 0 for the model's longest; sequences: at most so many at "
          "a time; tokens: that there is memory for, all sequences together, 0 for context of "
          "each; threads, measure and kept_states, of each sequence: as of Session; drafts: draft "
          "will be called.")
      .def("add", &Batch::add, "An empty sequence: its id, never used again in this batch.")
      .def("fork", &Batch::fork, "id"_a,
           "A sequence that begins with the tokens of another, and has its logits: its id.")
      .def("remove", &Batch::remove, "id"_a)
      .def("truncate", &Batch::truncate, "id"_a, "position"_a,
           "Forgets all tokens of a sequence but the first ones, as Session.truncate.")
      .def("resume_position", &Batch::resumePosition, "id"_a, "position"_a,
           "The first token that a sequence reads again once it was cut to `position`, which is "
           "`position` itself unless layers have a recurrent state.")
      .def("position", &Batch::position, "id"_a, "Tokens that a sequence holds.")
      .def("logits", &Batch::logits, "id"_a,
           "Logits of a sequence's last token, float32 of (vocab_size); None before any token.")
      .def("choose", &Batch::choose, "items"_a,
           "Chooses the next token of sequences: items are pairs of id and Sampler. One entry an "
           "item: the token, its log-probability or None, and pairs of the most likely tokens and "
           "theirs; or an Error, not raised. Nothing is appended. An item with an array of float32 "
           "and a position, too, chooses from these logits as if the sequence ended there.")
      .def("append", &Batch::append, "items"_a, "all_logits"_a = false, "progress"_a = nb::none(),
           "Appends tokens to sequences: items are pairs of id and tokens, a sequence once in a "
           "call. One entry an item: None; with all_logits the logits of every token, float32 of "
           "(tokens, vocab_size); or an Error, not raised, of an item that failed, whose sequence "
           "is as it was. An item with a third entry N is told, in place of logits, the "
           "log-probability of each of its tokens after all before it (float64; 0 where nothing "
           "is), "
           "and the N most likely tokens in the place of each with theirs (int32 and float64 of "
           "(tokens, N)). A third entry None is as all_logits for that item. What ends the call "
           "for all of them is raised, and no sequence has "
           "changed. progress: as of Session.prefill.")
      .def("draft", &Batch::draft, "items"_a,
           "Guesses by the head that drafts: items are triples of id, the token that comes next "
           "and has not been appended, and how many tokens are wanted. The likeliest tokens behind "
           "it, one entry an item. Nothing is appended.")
      .def("state", &Batch::state, "id"_a,
           "The online scales that a sequence has come to, as bytes, as Session.state.")
      .def("restore_state", &Batch::restoreState, "id"_a, "state"_a,
           "Goes on with scales that a sequence or a session of the same artifact has come to.")
      .def("reset_state", &Batch::resetState, "id"_a, "Goes back to the scales of calibration.")
      .def("save", &Batch::save, "id"_a,
           "A sequence as bytes: its KV cache, scales and logits, for this artifact and kind of "
           "device.")
      .def("restore", &Batch::restore, "saved"_a,
           "A new sequence that goes on from such bytes: its id.")
      .def_prop_ro("pages", &Batch::pages, "Pages of the KV cache.")
      .def_prop_ro("free_pages", &Batch::freePages, "Those that no sequence has.")
      .def_prop_ro("bytes", &Batch::bytes, "Bytes of the batch's own buffers.")
      .def_prop_ro("context", &Batch::context, "Tokens that each sequence can hold.")
      .def_prop_ro("threads", &Batch::threads, "Threads that a step uses.")
      .def("breakdown", &Batch::breakdown, "As of Session.")
      .def("breakdown_sites", &Batch::breakdownSites, "As of Session.");
}
