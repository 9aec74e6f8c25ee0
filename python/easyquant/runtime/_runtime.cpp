//===- _runtime.cpp - The C interface as easyquant._runtime ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Model, Session and Batch over easyquant.h, and the reader of manifests. Errors raise
// easyquant._runtime.Error, whose `code` is the name of the eq_error_code without EQ_ and whose
// text is the message. Steps and loading release the GIL; a session or batch that two Python
// threads use takes one call after the other. Prefill, score and append handle Python's signals
// while they run: Ctrl-C ends them, and the session or batch is as it was.
//
//===----------------------------------------------------------------------===//

#include "_runtime.h"

#include "easyquant/Runtime/Artifact.h"

using namespace easyquant::python;
using namespace nb::literals;

nb::object &easyquant::python::errorType() {
  static nb::object *type = new nb::object(); // lives as long as the interpreter
  return *type;
}

static const char *codeName(eq_error_code code) {
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

nb::object easyquant::python::makeError(eq_error_code code, const std::string &message) {
  nb::object error = errorType()(message);
  error.attr("code") = codeName(code);
  error.attr("message") = message;
  return error;
}

void easyquant::python::raise(eq_error_code code, const std::string &message) {
  PyErr_SetObject(errorType().ptr(), makeError(code, message).ptr());
  throw nb::python_error();
}

void easyquant::python::check(eq_error *raw) {
  std::unique_ptr<eq_error, decltype(&eq_error_free)> error(raw, eq_error_free);
  if (error)
    raise(eq_error_get_code(raw), eq_error_get_message(raw));
}

std::string easyquant::python::noTokenId(size_t place, int64_t token) {
  return "tokens[" + std::to_string(place) + "]: found " + std::to_string(token) +
         ", expected a token id";
}

std::unique_ptr<float[]> easyquant::python::makeLogits(size_t count, size_t vocabulary) {
  std::unique_ptr<float[]> logits(new (std::nothrow) float[count * vocabulary]);
  if (!logits)
    raise(EQ_OUT_OF_RANGE, "logits of " + std::to_string(count) +
                               " tokens do not fit the memory; score fewer at a time");
  return logits;
}

NB_MODULE(_runtime, m) {
  m.doc() = "Runs compiled artifacts: the C interface of the EasyQuant runtime.";
  errorType() = nb::steal(PyErr_NewExceptionWithDoc(
      "easyquant._runtime.Error",
      "What the runtime refuses. `code`: INVALID_ARGUMENT, NOT_FOUND, CORRUPT, UNSUPPORTED, "
      "OUT_OF_RANGE or IO; `message`: what was found, what was expected, what to do.",
      PyExc_RuntimeError, nullptr));
  m.attr("Error") = errorType();
  m.def("max_threads", eq_max_threads, "The most threads that a session or batch may have.");

  nb::class_<Model>(m, "Model", "A loaded artifact; immutable, shared by its sessions and batches.")
      .def(nb::init<const std::string &, const std::optional<std::string> &, bool,
                    const std::optional<std::string> &, const std::optional<std::string> &, bool,
                    const std::optional<std::string> &>(),
           "path"_a, "isa"_a = nb::none(), "skip_checksums"_a = false, "device"_a = nb::none(),
           "simt_chip"_a = nb::none(), "simt_checks"_a = false, "comm"_a = nb::none(),
           "isa: None or \"auto\", or an instruction set that the artifact has code for. device: "
           "None or \"auto\", \"cpu\", "
           "\"cuda\", \"simt\". comm: None for one rank; \"auto\", \"mpi\" or \"nccl\" joins the "
           "ranks that a launcher has started, all of which load the artifact.")
      .def("follow", &Model::follow, "threads"_a = 0,
           "On every rank but 0: computes its share until rank 0 is done with the model.")
      .def_prop_ro("rank", [](const Model &m) { return eq_model_rank(m.get()); })
      .def_prop_ro(
          "rank_count", [](const Model &m) { return eq_model_rank_count(m.get()); },
          "How many ranks share it.")
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
          "Bytes of weights that all sessions and batches share.");

  m.def(
      "read_manifest",
      [](const std::string &path) {
        auto document = easyquant::runtime::readManifest(path);
        if (!document)
          raise(static_cast<eq_error_code>(document.error().code), document.error().message);
        return std::move(document->text);
      },
      "path"_a, "The checked text of an artifact's manifest.json; no other file is looked at.");

  defineSession(m);

  defineSampler(m);
  defineBatch(m);
  defineRanks(m);
}
