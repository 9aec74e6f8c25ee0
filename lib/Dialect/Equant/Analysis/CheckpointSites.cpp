//===- CheckpointSites.cpp - Sites as checkpoints have them ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"

#include "easyquant/Formats/Codecs/ConvertedCodes.h"
#include "easyquant/Formats/ModelTensors.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

Result<CheckpointSite> equant::checkpointSite(const formats::CheckpointFormat &format,
                                              StringRef name, int64_t rows, int64_t columns,
                                              SchemeAttr weight, SchemeAttr input, bool isKept) {
  if (name == formats::kHeadModule && !format.holdsHead())
    return makeError(ErrorCode::Unsupported, "{} holds a float head; take --head float",
                     format.name);
  if (input && input.isOnline())
    return makeError(ErrorCode::Unsupported,
                     "{} holds no activations whose scales follow a sequence; take --activations "
                     "dynamic or static",
                     format.name);
  CheckpointSite site{{name.str(), rows, columns, weight.toNumerics()}, {}};
  if (input)
    site.site.input = input.toNumerics();
  auto codec = isKept ? formats::codecForCodes(format, site.site) : format.codecFor(site.site);
  if (!codec)
    return Unexpected(codec.error());
  site.codec = std::move(*codec);
  return site;
}

std::string equant::whyNoEmbedding(const formats::CheckpointFormat &format) {
  return format.name + " holds float embeddings; take --head float where it is tied to the head, "
                       "else leave it out by --ignore";
}

int64_t equant::checkpointBytes(const formats::CheckpointFormat &format, StringRef name,
                                RankedTensorType weight, SchemeAttr scheme, SchemeAttr input,
                                bool isKept) {
  if (scheme)
    if (auto site = checkpointSite(format, name, weight.getDimSize(0), weight.getDimSize(1), scheme,
                                   input, isKept)) {
      int64_t bytes = 0;
      for (const auto &all : {site->codec->tensors(), format.inputTensors(site->site)})
        for (const formats::CodecTensor &tensor : all)
          bytes += *formats::tensorBytes(tensor.dtype, tensor.shape);
      return bytes;
    }
  return weight.getNumElements() *
         formats::dtypeBytes(format.isGraph() ? formats::DType::F32 : formats::DType::F16);
}
