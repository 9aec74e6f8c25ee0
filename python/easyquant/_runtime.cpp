//===- _runtime.cpp - The C interface as easyquant._runtime ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Model and Session over easyquant.h, and the reader of manifests. Errors raise
// easyquant._runtime.Error, whose `code` is the name of the eq_error_code without EQ_ and whose
// text is the message. Steps and loading release the GIL; a session that two Python threads use
// takes one call after the other. Prefill and score handle Python's signals while they run: Ctrl-C
// ends them, and the session is as it was.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/easyquant.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Rows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

nb::object &errorType() {
  static nb::object *type = new nb::object(); // lives as long as the interpreter
  return *type;
}

const char *codeName(eq_error_code code) {
  switch (code) {
  case EQ_OK:
    return "OK";
  case EQ_INVALID_ARGUMENT:
    return "INVALID_ARGUMENT";
  case EQ_NOT_FOUND:
    return "NOT_FOUND";
  case EQ_CORRUPT:
    return "CORRUPT";
  case EQ_UNSUPPORTED:
    return "UNSUPPORTED";
  case EQ_OUT_OF_RANGE:
    return "OUT_OF_RANGE";
  case EQ_IO:
    return "IO";
  case EQ_INTERRUPTED:
    return "INTERRUPTED";
  }
  return "UNKNOWN";
}

[[noreturn]] void raise(eq_error_code code, const std::string &message) {
  nb::object error = errorType()(message);
  error.attr("code") = codeName(code);
  error.attr("message") = message;
  PyErr_SetObject(errorType().ptr(), error.ptr());
  throw nb::python_error();
}

/// Call with the GIL held.
void check(eq_error *raw) {
  std::unique_ptr<eq_error, decltype(&eq_error_free)> error(raw, eq_error_free);
  if (error)
    raise(eq_error_get_code(raw), eq_error_get_message(raw));
}

/// Token ids from any sequence of Python integers, which may not fit the C interface's type.
std::vector<int32_t> narrow(const std::vector<int64_t> &tokens) {
  std::vector<int32_t> narrowed;
  narrowed.reserve(tokens.size());
  for (int64_t token : tokens) {
    if (token < INT32_MIN || token > INT32_MAX)
      raise(EQ_INVALID_ARGUMENT, "tokens[" + std::to_string(narrowed.size()) + "]: found " +
                                     std::to_string(token) + ", expected a token id");
    narrowed.push_back(static_cast<int32_t>(token));
  }
  return narrowed;
}

/// Hands `data` over to NumPy.
template <typename Array>
Array adopt(std::unique_ptr<float[]> data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data.get(),
                    [](void *pointer) noexcept { delete[] static_cast<float *>(pointer); });
  return Array(data.release(), shape, owner);
}

/// What a call on a session asks while it runs: whether Python has signals to handle, so that
/// Ctrl-C ends it, and then `progress`, a function of tokens done and their total, or None.
class Watch {
public:
  explicit Watch(const nb::object &progress) : progress(progress) {}

  static int32_t ask(void *self, int64_t done, int64_t total) noexcept {
    return static_cast<Watch *>(self)->stops(done, total);
  }
  /// What was raised meanwhile.
  std::exception_ptr raised;

private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kInterval = std::chrono::milliseconds(50);

  bool stops(int64_t done, int64_t total) noexcept {
    Clock::time_point now = Clock::now();
    if (now < due)
      return false;
    due = now + kInterval;
    nb::gil_scoped_acquire acquire;
    try {
      if (PyErr_CheckSignals() != 0)
        throw nb::python_error();
      if (!progress.is_none())
        progress(done, total);
      return false;
    } catch (...) {
      raised = std::current_exception();
      return true;
    }
  }

  const nb::object &progress;
  Clock::time_point due = Clock::now() + kInterval;
};

class Model {
public:
  Model(const std::string &path, const std::optional<std::string> &isa, bool skipChecksums,
        const std::optional<std::string> &device, const std::optional<std::string> &simtChip,
        bool simtChecks) {
    auto text = [](const std::optional<std::string> &value) {
      return value ? value->c_str() : nullptr;
    };
    eq_model_options options = {text(isa), skipChecksums, text(device), text(simtChip), simtChecks};
    eq_model *loaded = nullptr;
    eq_error *error;
    {
      nb::gil_scoped_release release;
      error = eq_model_load(path.c_str(), &options, &loaded);
    }
    check(error);
    model.reset(loaded);
  }

  const eq_model *get() const { return model.get(); }

private:
  struct Free {
    void operator()(eq_model *model) const { eq_model_free(model); }
  };
  std::unique_ptr<eq_model, Free> model;
};

class Session {
public:
  Session(const Model &model, int64_t context, int32_t threads, bool measure)
      : vocabulary(static_cast<size_t>(eq_model_vocab_size(model.get()))) {
    eq_session_options options = {context, threads, measure};
    eq_session *created = nullptr;
    check(eq_session_create(model.get(), &options, &created));
    session.reset(created);
  }

  void prefill(const int32_t *tokens, size_t count, const nb::object &progress) {
    watched(progress, [&] { return eq_session_prefill(session.get(), tokens, count); });
  }

  Rows score(const int32_t *tokens, size_t count) {
    // Not initialized: a count that the session refuses does not touch the pages.
    std::unique_ptr<float[]> logits(new (std::nothrow) float[count * vocabulary]);
    if (!logits)
      raise(EQ_OUT_OF_RANGE, "logits of " + std::to_string(count) +
                                 " tokens do not fit the memory; score fewer at a time");
    watched(nb::none(),
            [&] { return eq_session_score(session.get(), tokens, count, logits.get()); });
    return adopt<Rows>(std::move(logits), {count, vocabulary});
  }

  void decode(int64_t token) {
    int32_t narrowed = narrow({token}).front();
    check(exclusively([&] { return eq_session_decode(session.get(), narrowed); }));
  }

  /// A copy, so that it stays what it is when the session goes on.
  std::optional<Row> logits() {
    std::unique_ptr<float[]> copy(new float[vocabulary]);
    bool present = exclusively([&] {
      const float *values = eq_session_logits(session.get());
      if (values)
        std::copy_n(values, vocabulary, copy.get());
      return values != nullptr;
    });
    if (!present)
      return std::nullopt;
    return adopt<Row>(std::move(copy), {vocabulary});
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
  int64_t bytes() const { return eq_session_bytes(session.get()); }
  nb::object breakdown() { return parsed(eq_session_breakdown); }
  nb::object breakdownSites() { return parsed(eq_session_breakdown_sites); }

private:
  /// What `describe` writes as JSON, as Python objects.
  nb::object parsed(eq_error *(*describe)(eq_session *, const char **)) {
    const char *json = nullptr;
    check(exclusively([&] { return describe(session.get(), &json); }));
    return nb::module_::import_("json").attr("loads")(json);
  }

  /// Runs `body` without the GIL, as the only one on this session. The lock is taken after the GIL
  /// is given up, so that its holder can come to its end.
  template <typename Body> std::invoke_result_t<Body> exclusively(Body body) {
    nb::gil_scoped_release release;
    std::lock_guard<std::mutex> lock(mutex);
    return body();
  }

  /// Runs a call that may take long.
  template <typename Call> void watched(const nb::object &progress, Call call) {
    Watch watch(progress);
    eq_error *error = exclusively([&] {
      eq_session_set_progress(session.get(), Watch::ask, &watch);
      eq_error *result = call();
      eq_session_set_progress(session.get(), nullptr, nullptr);
      return result;
    });
    if (watch.raised) {
      eq_error_free(error);
      std::rethrow_exception(watch.raised);
    }
    check(error);
  }

  struct Free {
    void operator()(eq_session *session) const { eq_session_free(session); }
  };
  size_t vocabulary;
  std::unique_ptr<eq_session, Free> session;
  std::mutex mutex;
};

} // namespace

NB_MODULE(_runtime, m) {
  m.doc() = "Runs compiled artifacts: the C interface of the EasyQuant runtime.";
  errorType() = nb::steal(PyErr_NewExceptionWithDoc(
      "easyquant._runtime.Error",
      "What the runtime refuses. `code`: INVALID_ARGUMENT, NOT_FOUND, CORRUPT, UNSUPPORTED, "
      "OUT_OF_RANGE or IO; `message`: what was found, what was expected, what to do.",
      PyExc_RuntimeError, nullptr));
  m.attr("Error") = errorType();
  m.def("max_threads", eq_max_threads, "The most threads that a session may have.");

  nb::class_<Model>(m, "Model", "A loaded artifact; immutable, shared by its sessions.")
      .def(nb::init<const std::string &, const std::optional<std::string> &, bool,
                    const std::optional<std::string> &, const std::optional<std::string> &, bool>(),
           "path"_a, "isa"_a = nb::none(), "skip_checksums"_a = false, "device"_a = nb::none(),
           "simt_chip"_a = nb::none(), "simt_checks"_a = false,
           "isa: None or \"auto\", \"avx2\", \"avx512vnni\". device: None or \"auto\", \"cpu\", "
           "\"cuda\", \"simt\".")
      .def_prop_ro(
          "manifest",
          [](const Model &model) {
            return nb::module_::import_("json").attr("loads")(eq_model_manifest(model.get()));
          },
          "manifest.json as a dict.")
      .def_prop_ro("vocab_size", [](const Model &m) { return eq_model_vocab_size(m.get()); })
      .def_prop_ro(
          "max_context", [](const Model &m) { return eq_model_max_context(m.get()); },
          "The longest context in tokens.")
      .def_prop_ro(
          "isa", [](const Model &m) { return eq_model_isa(m.get()); },
          "The instruction set chosen at loading, or the chip whose program a GPU runs.")
      .def_prop_ro(
          "device", [](const Model &m) { return eq_model_device(m.get()); },
          "Where the model runs: cpu, cuda or simt.")
      .def_prop_ro(
          "device_name", [](const Model &m) { return eq_model_device_name(m.get()); },
          "The same for people.")
      .def_prop_ro(
          "weights_bytes", [](const Model &m) { return eq_model_weights_bytes(m.get()); },
          "Bytes of weights that all sessions share.");

  m.def(
      "read_manifest",
      [](const std::string &path) {
        auto document = easyquant::runtime::readManifest(path);
        if (!document)
          raise(static_cast<eq_error_code>(document.error().code), document.error().message);
        return std::move(document->text);
      },
      "path"_a, "The checked text of an artifact's manifest.json; no other file is looked at.");

  nb::class_<Session>(m, "Session", "Tokens held and their KV cache.")
      .def(nb::init<const Model &, int64_t, int32_t, bool>(), "model"_a, "context"_a = 0,
           "threads"_a = 0, "measure"_a = false,
           "context: tokens, 0 for the model's longest; threads: 0 for all CPUs of the process; "
           "measure: breakdown will be asked for.")
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
      .def("truncate", &Session::truncate, "position"_a, "Forgets all but the first tokens.")
      .def("reset", &Session::reset, "Forgets all tokens.")
      .def_prop_ro("bytes", &Session::bytes, "Bytes of the session's own buffers.")
      .def("breakdown", &Session::breakdown,
           "What the phases of all steps have cost: launches, bytes, instructions, seconds.")
      .def("breakdown_sites", &Session::breakdownSites,
           "The same by site, on CPUs only: a list in the order of the model.");
}
