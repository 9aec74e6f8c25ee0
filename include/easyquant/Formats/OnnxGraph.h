//===- OnnxGraph.h - Graphs of ONNX ------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A graph of operators as onnx.proto3 (https://github.com/onnx/onnx) has it, and the file of its
// larger tensors beside it. Only those few messages and fields are written that a graph of tensors
// needs.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_ONNXGRAPH_H
#define EASYQUANT_FORMATS_ONNXGRAPH_H

#include "easyquant/Support/StreamedFile.h"

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace easyquant::formats {

/// TensorProto.DataType.
enum class OnnxType {
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  Int64 = 7,
  Bool = 9,
  Float8E4M3FN = 17,
  Int4 = 22,
  Int2 = 26,
};
/// Bits of an element; those of less than 8 lie in bytes one behind the other, the first lowest.
int bitsOf(OnnxType type);

/// A dimension of an input or output: a size, or a name that stands for one.
using OnnxDimension = std::variant<int64_t, std::string>;
using OnnxAttributes =
    std::map<std::string, std::variant<int64_t, float, std::vector<int64_t>>, std::less<>>;

/// Versions of the operators that a graph may ask for. The first is that of the operators which
/// models are made of; with the last come integers of 2 bits.
inline constexpr int64_t kFirstOpset = 18, kLastOpset = 25;

/// A graph, operator by operator. Values have names, each the result of one operator, an input or a
/// constant.
class OnnxGraph {
public:
  /// Tensors of up to so many bytes lie in the graph itself.
  static constexpr int64_t kMostInlineBytes = 4096;
  /// The others begin at multiples of it, so that clients can map them.
  static constexpr int64_t kAlignment = 4096;

  struct Constant {
    std::string name;
    OnnxType type;
    std::vector<int64_t> shape;
    std::string bytes = {}; ///< of those that lie in the graph
    int64_t offset = -1;    ///< of the others in their file
    int64_t size() const;   ///< in bytes
    bool isInline() const { return size() <= kMostInlineBytes; }
  };

  /// Names that are taken get a number behind them. What is returned is the name.
  std::string uniqueName(std::string name);

  void input(std::string_view name, OnnxType type, const std::vector<OnnxDimension> &shape);
  void output(std::string_view name, OnnxType type, const std::vector<OnnxDimension> &shape);
  /// Adds an operator. Its results are called as they are in `outputs`.
  void node(std::string_view op, const std::vector<std::string> &inputs,
            const std::vector<std::string> &outputs, const OnnxAttributes &attributes = {});
  /// Declares a constant, whose bytes follow through writeConstants(); its name is a unique one.
  std::string declare(std::string name, OnnxType type, std::vector<int64_t> shape);
  /// A small constant.
  std::string constant(std::string name, OnnxType type, std::vector<int64_t> shape,
                       std::string bytes);

  /// The bytes of a constant come in pieces.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  /// Fills declared constants, in the order of declaration: `read` gives the bytes of one to its
  /// last argument. Those that do not lie in the graph go to `file`, which is written if there are
  /// any. Errors: those of `read`; InvalidArgument, naming the constant, where its bytes are not so
  /// many as its shape says; IO.
  Result<void> writeConstants(const std::filesystem::path &file,
                              const std::function<Result<void>(const Constant &, Take)> &read);
  /// A ModelProto, whose larger constants lie in the file `dataFile` beside it.
  std::string model(int64_t opset, std::string_view producerVersion, std::string_view name,
                    std::string_view dataFile) const;

private:
  std::vector<Constant> declared, constants;
  std::string nodes, inputs, outputs;                ///< fields of a GraphProto
  std::map<std::string, int64_t, std::less<>> names; ///< and how often each was asked for
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_ONNXGRAPH_H
