//===- OnnxBuilder.h - A model as an ONNX graph -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_ONNXBUILDER_H
#define EASYQUANT_LIB_EXPORT_ONNXBUILDER_H

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Formats/OnnxGraph.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace easyquant {

/// Adds the operators of `lm`. Activations are M x C, as in the IR; M is the tokens of all
/// sequences of the batch, sequence by sequence. Inputs and outputs are those of optimum and ONNX
/// Runtime GenAI:
///
///   input_ids, position_ids   INT64 [batch_size, sequence_length]
///   attention_mask            INT64 [batch_size, total_sequence_length]; 0: padding
///   past_key_values.L.key, .value   FLOAT [batch_size, kv heads, past_sequence_length, head_dim]
///   logits                    FLOAT [batch_size, sequence_length, vocab_size]
///   present.L.key, .value     FLOAT [batch_size, kv heads, total_sequence_length, head_dim]
class OnnxBuilder {
public:
  using Name = std::string; ///< of a value of the graph
  using Names = llvm::SmallVector<Name, 4>;

  formats::OnnxGraph graph;
  /// What operators are called after: the module of the checkpoint that they belong to.
  std::string scope;

  /// Declares the inputs that all models have.
  void begin();
  /// Declares the logits; `rows` are those of all tokens.
  void finish(const Name &rows, int64_t vocabulary);

  Name tokens();    ///< M numbers
  Name positions(); ///< M numbers

  //===- Operators ---------------------------------------------------------===//

  Name add(llvm::StringRef op, const std::vector<Name> &inputs,
           const formats::OnnxAttributes &attributes = {});
  Name real(float value);
  Name integers(const std::vector<int64_t> &values); ///< one dimension
  Name reshape(const Name &x, const std::vector<int64_t> &shape);
  /// y = x Wᵀ + b, with the weight N x K or, unless `isRows`, K x N. An empty bias is none.
  Name linear(const Name &x, const Name &weight, bool isRows, const Name &bias);

  Name embedding(const Name &table, const Name &rows);
  /// Norms the last dimension.
  Name rmsNorm(const Name &x, const Name &weight, double epsilon);
  Name layerNorm(const Name &x, const Name &weight, const Name &bias, double epsilon);
  Name silu(const Name &x);
  Name multiply(const Name &x, double factor);
  /// bound * tanh(x / bound)
  Name softCap(const Name &x, double bound);
  Name gelu(const Name &x, lm::GeluApproximation approximation);
  Names split(const Name &x, const std::vector<int64_t> &widths);
  /// Tables of cosines and sines, positions x D/2.
  /// The first `rotated` dimensions of each head turn.
  Name rope(const Name &x, const Name &cosines, const Name &sines, int64_t heads, int64_t headDim,
            int64_t rotated);
  Name attention(const Name &q, const Name &k, const Name &v, lm::AttentionOp op);

private:
  /// x of M rows as batch_size x sequence_length x heads x columns.
  Name perHead(const Name &x, int64_t heads, int64_t columns);
  /// What is added to scores, batch_size x 1 x sequence_length x total_sequence_length: 0 where a
  /// token sees another, else the least float.
  Name maskOf(int64_t window);
  /// Keys or values of a layer, those of before and `rows`.
  Name append(const Name &rows, llvm::StringRef kind, lm::AttentionOp op);
  /// The result of `make`, which is called once for each `key`.
  template <typename Make> Name once(const std::string &key, Make make);

  std::map<std::string, Name> made;
  Name firstPast; ///< keys of the cache that was seen first
};

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_ONNXBUILDER_H
