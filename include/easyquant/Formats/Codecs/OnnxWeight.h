//===- OnnxWeight.h - Weights as ONNX has them -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_ONNXWEIGHT_H
#define EASYQUANT_FORMATS_CODECS_ONNXWEIGHT_H

#include "easyquant/Formats/Codecs/CheckpointFormat.h"
#include "easyquant/Formats/OnnxGraph.h"

namespace easyquant::formats {

/// The operands and attributes of the DequantizeLinear that makes a weight of its codes.
struct OnnxWeight {
  OnnxType type = OnnxType::Int8; ///< of codes and zero points
  /// N x K, the rows of the weight, else K x N. ONNX Runtime multiplies by codes of K x N where few
  /// columns of them are in a block (MatMulNBits); 8 bits with a scale a row it dequantizes faster
  /// as rows, and then multiplies floats.
  bool isRows = false;
  std::vector<int64_t> codes, scales; ///< shapes; that of scales is that of zero points, too
  int64_t axis = 0, blockSize = 0;    ///< no blocks: 0

  OnnxWeight(const numerics::Scheme &scheme, int64_t rows, int64_t columns);
};

/// What is added to codes and zero points of the type, so that they are its numbers. Products of
/// INT8 saturate in ONNX Runtime on CPUs without VNNI, those of UINT8 do not.
constexpr int32_t offsetOf(OnnxType type) { return type == OnnxType::UInt8 ? 128 : 0; }

/// The type of the codes of static or dynamic activations.
OnnxType onnxInputType(const numerics::Scheme &input);

/// The least version of operators that says what the site is.
int64_t leastOpset(const QuantizedSite &site);
/// InvalidArgument where it is not one of kFirstOpset to kLastOpset.
Result<void> checkOpset(int64_t opset);
/// Unsupported where a site needs a later version than `opset`; nothing: the one it needs.
Result<void> checkOpset(std::optional<int64_t> opset, const QuantizedSite &site);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_ONNXWEIGHT_H
