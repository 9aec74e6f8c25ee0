//===- CheckpointFormat.h - Formats of quantized checkpoints ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A format is what `quant_method` of a config.json names: which codec a linear has, which tensors
// stand beside it, and what the configuration says of all linears. GGUF is one, too, of a single
// file without such a configuration, and ONNX, whose files say what is computed, too.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_CHECKPOINTFORMAT_H
#define EASYQUANT_FORMATS_CODECS_CHECKPOINTFORMAT_H

#include "easyquant/Formats/Codecs/WeightCodec.h"
#include "easyquant/Support/Json.h"

namespace easyquant::formats {

/// A linear that is quantized, as its format speaks of it.
struct QuantizedSite {
  std::string name; ///< "model.layers.0.mlp.up_proj"
  int64_t rows = 0, columns = 0;
  numerics::Scheme weight;
  std::optional<numerics::Scheme> input = {}; ///< nothing: activations stay float
  /// The scale of static activations; the outer one where there is one.
  float inputScale = 1;
  int32_t inputZeroPoint = 0;
  /// The weight is in a rotated basis, and what it is multiplied with has to be rotated; else that
  /// comes so.
  bool rotatesInput = false;
};

class CheckpointFormat {
public:
  virtual ~CheckpointFormat();

  const std::string name; ///< "gptq": what --export names
  /// Its clients compute in f16, whatever the model's own type was.
  const bool isHalf;

  /// How the weight of a site is stored. Unsupported, saying what the format holds and what to do,
  /// on schemes, sizes or activations that it does not hold.
  virtual Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const = 0;
  /// Errors: Unsupported, naming a site, where the configuration cannot say what sites differ in.
  virtual Result<void> checkTogether(std::span<const QuantizedSite>) const { return {}; }
  /// Constants beside the weight: what static activations are rounded with.
  virtual std::vector<CodecTensor> inputTensors(const QuantizedSite &) const { return {}; }
  /// `quantization_config` of the sites, at least one; `floats` are the linears that stay float.
  virtual Json configuration(std::span<const QuantizedSite> sites,
                             std::span<const std::string> floats) const {
    return nullptr;
  }
  /// Can the output head be quantized?
  virtual bool holdsHead() const { return false; }
  /// One GGUF file, in which the embedding can be quantized, too, and has the head's weight where
  /// the two are tied; else a Hugging Face folder.
  virtual bool isGGUF() const { return false; }
  /// An ONNX graph: operators beside the weights, floats of f32, linears as the module has them.
  virtual bool isGraph() const { return false; }

protected:
  CheckpointFormat(std::string name, bool isHalf) : name(std::move(name)), isHalf(isHalf) {}
};

/// All that there are; names are the choices of the option --export.
std::span<const CheckpointFormat *const> checkpointFormats();
/// InvalidArgument, naming all, where there is none.
Result<const CheckpointFormat *> findCheckpointFormat(std::string_view name);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_CHECKPOINTFORMAT_H
