//===- _runtime.h - What easyquant._runtime is made of ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PYTHON_EASYQUANT_RUNTIME_H
#define EASYQUANT_PYTHON_EASYQUANT_RUNTIME_H

#include "easyquant/Runtime/easyquant.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
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

namespace easyquant::python {

namespace nb = nanobind;

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Rows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

/// easyquant._runtime.Error.
nb::object &errorType();
nb::object makeError(eq_error_code code, const std::string &message);
[[noreturn]] void raise(eq_error_code code, const std::string &message);
/// Raises it, if there is one. Call with the GIL held.
void check(eq_error *raw);

/// What is wrong with a token that does not fit the C interface's type.
std::string noTokenId(size_t place, int64_t token);
inline bool isWide(int64_t token) { return token < INT32_MIN || token > INT32_MAX; }

/// Not initialized: a count that is refused does not touch the pages.
std::unique_ptr<float[]> makeLogits(size_t count, size_t vocabulary);

/// Hands `data` over to NumPy.
template <typename Array, typename T>
Array adopt(std::unique_ptr<T[]> data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data.get(), [](void *pointer) noexcept { delete[] static_cast<T *>(pointer); });
  return Array(data.release(), shape, owner);
}

/// What a call on a session or batch asks while it runs: whether Python has signals to handle, so
/// that Ctrl-C ends it, and then `progress`, a function of tokens done and their total, or None.
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
        bool simtChecks, const std::optional<std::string> &comm) {
    auto text = [](const std::optional<std::string> &value) {
      return value ? value->c_str() : nullptr;
    };
    eq_model_options options = {text(isa), skipChecksums, text(device), text(simtChip), simtChecks};
    eq_model *loaded = nullptr;
    eq_error *error;
    {
      nb::gil_scoped_release release;
      error = comm ? eq_model_load_on_ranks(path.c_str(), &options, comm->c_str(), /*timeout=*/0,
                                            &loaded)
                   : eq_model_load(path.c_str(), &options, &loaded);
    }
    check(error);
    model.reset(loaded);
  }

  const eq_model *get() const { return model.get(); }

  /// Python's handlers of signals wait meanwhile; a launcher ends ranks by SIGTERM.
  void follow(int32_t threads) const {
    eq_error *error;
    {
      nb::gil_scoped_release release;
      error = eq_model_follow(model.get(), threads);
    }
    check(error);
  }

private:
  struct Free {
    void operator()(eq_model *model) const { eq_model_free(model); }
  };
  std::unique_ptr<eq_model, Free> model;
};

/// What may be used by one thread at a time.
class Exclusive {
protected:
  /// Runs `body` without the GIL, as the only one on this object. The lock is taken after the GIL
  /// is given up, so that its holder can come to its end.
  template <typename Body> std::invoke_result_t<Body> exclusively(Body body) {
    nb::gil_scoped_release release;
    std::lock_guard<std::mutex> lock(mutex);
    return body();
  }

  /// Runs a call that may take long; `setProgress` sets what it asks meanwhile.
  template <typename SetProgress, typename Call>
  void watched(const nb::object &progress, SetProgress setProgress, Call call) {
    Watch watch(progress);
    eq_error *error = exclusively([&] {
      setProgress(Watch::ask, &watch);
      eq_error *result = call();
      setProgress(nullptr, nullptr);
      return result;
    });
    if (watch.raised) {
      eq_error_free(error);
      std::rethrow_exception(watch.raised);
    }
    check(error);
  }

  /// A copy of `count` floats that `find` tells, so that it stays what it is when steps go on.
  template <typename Find> std::optional<Row> copied(size_t count, Find find) {
    std::unique_ptr<float[]> copy(new float[count]);
    bool present = exclusively([&] {
      const float *values = find();
      if (values)
        std::copy_n(values, count, copy.get());
      return values != nullptr;
    });
    if (!present)
      return std::nullopt;
    return adopt<Row>(std::move(copy), {count});
  }

  /// What `describe` writes as JSON, as Python objects.
  template <typename Describe> nb::object parsed(Describe describe) {
    const char *json = nullptr;
    check(exclusively([&] { return describe(&json); }));
    return nb::module_::import_("json").attr("loads")(json);
  }

private:
  std::mutex mutex;
};

void defineSession(nb::module_ &m);
void defineBatch(nb::module_ &m);
void defineSampler(nb::module_ &m);
void defineRanks(nb::module_ &m);

} // namespace easyquant::python

#endif // EASYQUANT_PYTHON_EASYQUANT_RUNTIME_H
