//===- OnnxGraph.cpp - Graphs of ONNX -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/OnnxGraph.h"

#include "Text.h"

#include <algorithm>
#include <array>
#include <bit>

using namespace easyquant;
using namespace easyquant::formats;

//===----------------------------------------------------------------------===//
// Protocol buffers: fields of a message, one behind the other
//===----------------------------------------------------------------------===//

namespace {

/// A message of protocol buffers as it is written
/// (https://protobuf.dev/programming-guides/encoding).
class Message {
public:
  Message &integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message &real(int field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>(bits >> shift));
    return *this;
  }
  /// A string, bytes or a message.
  Message &text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes += value;
    return *this;
  }
  Message &message(int field, const Message &value) { return text(field, value.bytes); }

  std::string bytes;

private:
  void key(int field, int wireType) { varint(static_cast<uint64_t>(field) << 3 | wireType); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
};

// The numbers of fields in onnx.proto3.
namespace field {
namespace model {
enum { IRVersion = 1, ProducerName = 2, ProducerVersion = 3, Graph = 7, OpsetImport = 8 };
}
namespace graph {
enum { Node = 1, Name = 2, Initializer = 5, Input = 11, Output = 12 };
}
namespace node {
enum { Input = 1, Output = 2, Name = 3, OpType = 4, Attribute = 5 };
}
namespace attribute {
enum { Name = 1, Float = 2, Int = 3, Ints = 8, Type = 20 };
}
namespace tensor {
enum { Dims = 1, DataType = 2, Name = 8, RawData = 9, ExternalData = 13, DataLocation = 14 };
}
} // namespace field

/// AttributeProto.AttributeType.
enum AttributeKind { kFloat = 1, kInt = 2, kInts = 7 };

} // namespace

/// The version of the file's own format that a version of operators came with.
static int64_t irVersionOf(int64_t opset) {
  static constexpr std::array<int64_t, kLastOpset - kFirstOpset + 1> versions = {8,  9,  9,  10,
                                                                                 10, 11, 12, 13};
  return versions[static_cast<size_t>(opset - kFirstOpset)];
}

static Message attributeOf(std::string_view name, const OnnxAttributes::mapped_type &value) {
  Message message;
  message.text(field::attribute::Name, name);
  if (const auto *integer = std::get_if<int64_t>(&value)) {
    message.integer(field::attribute::Int, *integer).integer(field::attribute::Type, kInt);
  } else if (const auto *real = std::get_if<float>(&value)) {
    message.real(field::attribute::Float, *real).integer(field::attribute::Type, kFloat);
  } else {
    for (int64_t element : std::get<std::vector<int64_t>>(value))
      message.integer(field::attribute::Ints, element);
    message.integer(field::attribute::Type, kInts);
  }
  return message;
}

/// A ValueInfoProto.
static Message valueOf(std::string_view name, OnnxType type,
                       const std::vector<OnnxDimension> &shape) {
  Message dimensions;
  for (const OnnxDimension &dimension : shape) {
    Message one;
    if (const auto *size = std::get_if<int64_t>(&dimension))
      one.integer(1, *size);
    else
      one.text(2, std::get<std::string>(dimension));
    dimensions.message(1, one);
  }
  Message tensor = Message().integer(1, static_cast<int64_t>(type)).message(2, dimensions);
  return Message().text(1, name).message(2, Message().message(1, tensor));
}

/// A TensorProto.
static Message tensorOf(const OnnxGraph::Constant &constant, std::string_view dataFile) {
  Message tensor;
  for (int64_t size : constant.shape)
    tensor.integer(field::tensor::Dims, size);
  tensor.integer(field::tensor::DataType, static_cast<int64_t>(constant.type));
  tensor.text(field::tensor::Name, constant.name);
  if (constant.isInline())
    return tensor.text(field::tensor::RawData, constant.bytes);
  const std::pair<std::string_view, std::string> entries[] = {
      {"location", std::string(dataFile)},
      {"offset", std::to_string(constant.offset)},
      {"length", std::to_string(constant.size())}};
  for (const auto &[key, value] : entries)
    tensor.message(field::tensor::ExternalData, Message().text(1, key).text(2, value));
  return tensor.integer(field::tensor::DataLocation, 1);
}

//===----------------------------------------------------------------------===//
// The graph
//===----------------------------------------------------------------------===//

int formats::bitsOf(OnnxType type) {
  switch (type) {
  case OnnxType::Float:
    return 32;
  case OnnxType::Int64:
    return 64;
  case OnnxType::UInt8:
  case OnnxType::Int8:
  case OnnxType::Bool:
  case OnnxType::Float8E4M3FN:
    return 8;
  case OnnxType::Int4:
    return 4;
  case OnnxType::Int2:
    return 2;
  }
  return 0;
}

int64_t OnnxGraph::Constant::size() const {
  int64_t bits = bitsOf(type);
  for (int64_t extent : shape)
    bits *= extent;
  return (bits + 7) / 8;
}

std::string OnnxGraph::uniqueName(std::string name) {
  const int64_t earlier = names[name]++;
  return earlier == 0 ? name : uniqueName(name + "_" + std::to_string(earlier));
}

void OnnxGraph::input(std::string_view name, OnnxType type,
                      const std::vector<OnnxDimension> &shape) {
  inputs += Message().message(field::graph::Input, valueOf(name, type, shape)).bytes;
}

void OnnxGraph::output(std::string_view name, OnnxType type,
                       const std::vector<OnnxDimension> &shape) {
  outputs += Message().message(field::graph::Output, valueOf(name, type, shape)).bytes;
}

void OnnxGraph::node(std::string_view op, const std::vector<std::string> &inputs,
                     const std::vector<std::string> &outputs, const OnnxAttributes &attributes) {
  Message node;
  for (const std::string &input : inputs)
    node.text(field::node::Input, input);
  for (const std::string &output : outputs)
    node.text(field::node::Output, output);
  node.text(field::node::Name, outputs.front()).text(field::node::OpType, op);
  for (const auto &[name, value] : attributes)
    node.message(field::node::Attribute, attributeOf(name, value));
  nodes += Message().message(field::graph::Node, node).bytes;
}

std::string OnnxGraph::declare(std::string name, OnnxType type, std::vector<int64_t> shape) {
  return declared.emplace_back(uniqueName(std::move(name)), type, std::move(shape)).name;
}

std::string OnnxGraph::constant(std::string name, OnnxType type, std::vector<int64_t> shape,
                                std::string bytes) {
  return constants
      .emplace_back(uniqueName(std::move(name)), type, std::move(shape), std::move(bytes))
      .name;
}

static int64_t padded(int64_t bytes) {
  return (bytes + OnnxGraph::kAlignment - 1) / OnnxGraph::kAlignment * OnnxGraph::kAlignment;
}

Result<void>
OnnxGraph::writeConstants(const std::filesystem::path &path,
                          const std::function<Result<void>(const Constant &, Take)> &read) {
  int64_t bytes = 0;
  for (Constant &constant : declared) {
    if (constant.isInline())
      continue;
    constant.offset = padded(bytes);
    bytes = constant.offset + constant.size();
  }
  std::optional<StreamedFile> file;
  if (bytes > 0) {
    Result<StreamedFile> created = StreamedFile::create(path, bytes);
    if (!created)
      return Unexpected(created.error());
    file.emplace(std::move(*created));
  }
  int64_t end = 0; // of what is in the file
  for (Constant &constant : declared) {
    int64_t taken = 0;
    if (!constant.isInline()) {
      static constexpr std::array<std::byte, kAlignment> kZeros = {};
      const auto gap = static_cast<size_t>(constant.offset - end);
      if (Result<void> done = file->write(std::span(kZeros).first(gap)); !done)
        return done;
      end = constant.offset + constant.size();
    }
    auto take = [&](std::span<const std::byte> piece) -> Result<void> {
      taken += std::ssize(piece);
      if (taken > constant.size())
        return {};
      if (!constant.isInline())
        return file->write(piece);
      constant.bytes.append(reinterpret_cast<const char *>(piece.data()), piece.size());
      return {};
    };
    if (Result<void> done = read(constant, take); !done)
      return done;
    if (taken != constant.size())
      return makeError(ErrorCode::InvalidArgument, "{}: tensor {}: {} bytes for {}, expected {}",
                       path.string(), quote(constant.name), taken, shapeText(constant.shape),
                       constant.size());
  }
  return file ? file->finish() : Result<void>();
}

std::string OnnxGraph::model(int64_t opset, std::string_view producerVersion, std::string_view name,
                             std::string_view dataFile) const {
  Message graph;
  graph.bytes = nodes;
  graph.text(field::graph::Name, name);
  for (const std::vector<Constant> *all : {&constants, &declared})
    for (const Constant &constant : *all)
      graph.message(field::graph::Initializer, tensorOf(constant, dataFile));
  graph.bytes += inputs + outputs;
  return Message()
      .integer(field::model::IRVersion, irVersionOf(opset))
      .text(field::model::ProducerName, "easyquant")
      .text(field::model::ProducerVersion, producerVersion)
      .message(field::model::Graph, graph)
      .message(field::model::OpsetImport, Message().text(1, "").integer(2, opset))
      .bytes;
}
