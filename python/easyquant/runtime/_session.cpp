//===- _session.cpp - easyquant._runtime.Session --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "_runtime.h"

using namespace easyquant::python;
using namespace nb::literals;

namespace {

/// Token ids from any sequence of Python integers.
std::vector<int32_t> narrow(const std::vector<int64_t> &tokens) {
  std::vector<int32_t> narrowed;
  narrowed.reserve(tokens.size());
  for (int64_t token : tokens) {
    if (isWide(token))
      raise(EQ_INVALID_ARGUMENT, noTokenId(narrowed.size(), token));
    narrowed.push_back(static_cast<int32_t>(token));
  }
  return narrowed;
}

class Session : Exclusive {
  auto setProgress() {
    return [this](eq_progress function, void *context) {
      eq_session_set_progress(session.get(), function, context);
    };
  }

public:
  Session(const Model &model, int64_t context, int32_t threads, bool measure, int64_t keptStates)
      : vocabulary(static_cast<size_t>(eq_model_vocab_size(model.get()))) {
    eq_session_options options = {context, threads, measure, keptStates};
    eq_session *created = nullptr;
    check(eq_session_create(model.get(), &options, &created));
    session.reset(created);
  }

  void prefill(const int32_t *tokens, size_t count, const nb::object &progress) {
    watched(progress, setProgress(),
            [&] { return eq_session_prefill(session.get(), tokens, count); });
  }

  Rows score(const int32_t *tokens, size_t count) {
    std::unique_ptr<float[]> logits = makeLogits(count, vocabulary);
    watched(nb::none(), setProgress(),
            [&] { return eq_session_score(session.get(), tokens, count, logits.get()); });
    return adopt<Rows>(std::move(logits), {count, vocabulary});
  }

  void decode(int64_t token) {
    int32_t narrowed = narrow({token}).front();
    check(exclusively([&] { return eq_session_decode(session.get(), narrowed); }));
  }

  std::optional<Row> logits() {
    return copied(vocabulary, [&] { return eq_session_logits(session.get()); });
  }
  int64_t position() {
    return exclusively([&] { return eq_session_position(session.get()); });
  }
  void truncate(int64_t position) {
    check(exclusively([&] { return eq_session_truncate(session.get(), position); }));
  }
  void reset() {
    exclusively([&] { return eq_session_reset(session.get()), true; });
  }
  nb::bytes state() {
    std::vector<char> saved(static_cast<size_t>(eq_session_state_size(session.get())));
    check(exclusively(
        [&] { return eq_session_state_save(session.get(), saved.data(), saved.size()); }));
    return nb::bytes(saved.data(), saved.size());
  }
  void restoreState(const nb::bytes &state) {
    check(exclusively(
        [&] { return eq_session_state_restore(session.get(), state.c_str(), state.size()); }));
  }
  void resetState() {
    check(exclusively([&] { return eq_session_state_reset(session.get()); }));
  }
  int64_t bytes() const { return eq_session_bytes(session.get()); }
  nb::object breakdown() {
    return parsed([&](auto json) { return eq_session_breakdown(session.get(), json); });
  }
  nb::object breakdownSites() {
    return parsed([&](auto json) { return eq_session_breakdown_sites(session.get(), json); });
  }

private:
  struct Free {
    void operator()(eq_session *session) const { eq_session_free(session); }
  };
  size_t vocabulary;
  std::unique_ptr<eq_session, Free> session;
};

} // namespace

void easyquant::python::defineSession(nb::module_ &m) {
  nb::class_<Session>(m, "Session", "Tokens held and their KV cache.")
      .def(nb::init<const Model &, int64_t, int32_t, bool, int64_t>(), "model"_a, "context"_a = 0,
           "threads"_a = 0, "measure"_a = false, "kept_states"_a = 0,
           "context: tokens, 0 for the model's longest; threads: 0 for all CPUs of the process; "
           "measure: breakdown will be asked for; kept_states: of layers with a recurrent state at "
           "page ends, for truncation.")
      .def(
          "prefill",
          [](Session &session, Tokens tokens, const nb::object &progress) {
            session.prefill(tokens.data(), tokens.size(), progress);
          },
          nb::arg("tokens").noconvert(), "progress"_a = nb::none(),
          "Appends tokens and computes the logits of the last one. progress(done, total), if "
          "given, "
          "is called now and then; it must not use the session.")
      .def(
          "prefill",
          [](Session &session, const std::vector<int64_t> &tokens, const nb::object &progress) {
            std::vector<int32_t> narrowed = narrow(tokens);
            session.prefill(narrowed.data(), narrowed.size(), progress);
          },
          "tokens"_a, "progress"_a = nb::none())
      .def("decode", &Session::decode, "token"_a, "Appends one token.")
      .def(
          "score",
          [](Session &session, Tokens tokens) {
            return session.score(tokens.data(), tokens.size());
          },
          nb::arg("tokens").noconvert(),
          "Appends tokens; returns the logits of every one as float32 of (tokens, vocab_size).")
      .def(
          "score",
          [](Session &session, const std::vector<int64_t> &tokens) {
            std::vector<int32_t> narrowed = narrow(tokens);
            return session.score(narrowed.data(), narrowed.size());
          },
          "tokens"_a)
      // Not the default policy of properties: the array owns its memory.
      .def_prop_ro("logits", &Session::logits, nb::rv_policy::automatic,
                   "Logits of the last token, float32 of (vocab_size); None before any token.")
      .def_prop_ro("position", &Session::position, "Tokens held so far.")
      .def("truncate", &Session::truncate, "position"_a,
           "Forgets all but the first tokens. With a recurrent state the next call reads those "
           "behind the newest state that is left again.")
      .def("reset", &Session::reset, "Forgets all tokens.")
      .def_prop_ro("state", &Session::state,
                   "The online scales that the session has come to, as bytes; truncate and reset "
                   "keep them. Empty where the model has none.")
      .def("restore_state", &Session::restoreState, "state"_a,
           "Goes on with scales that a session of the same artifact has come to.")
      .def("reset_state", &Session::resetState, "Goes back to the scales of calibration.")
      .def_prop_ro("bytes", &Session::bytes, "Bytes of the session's own buffers.")
      .def("breakdown", &Session::breakdown,
           "What the phases of all steps have cost: launches, bytes, instructions, seconds.")
      .def("breakdown_sites", &Session::breakdownSites,
           "The same by site, on CPUs only: a list in the order of the model.");
}
