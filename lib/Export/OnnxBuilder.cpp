//===- OnnxBuilder.cpp - A model as an ONNX graph -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators of version 18 and earlier ones, which every runtime has.
//
//===----------------------------------------------------------------------===//

#include "OnnxBuilder.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

using namespace easyquant;
using formats::OnnxAttributes;
using formats::OnnxDimension;
using formats::OnnxType;
using Name = OnnxBuilder::Name;

static constexpr const char *kTokens = "input_ids", *kMask = "attention_mask",
                            *kPositions = "position_ids";
static constexpr const char *kBatch = "batch_size", *kSequence = "sequence_length",
                            *kPast = "past_sequence_length", *kTotal = "total_sequence_length";

template <typename T> static std::string bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)};
}

template <typename Make> Name OnnxBuilder::once(const std::string &key, Make make) {
  if (auto known = made.find(key); known != made.end())
    return known->second;
  // What many ops share belongs to none of them.
  const std::string place = std::exchange(scope, "model");
  Name name = make();
  scope = place;
  return made[key] = name;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

void OnnxBuilder::begin() {
  for (const char *name : {kTokens, kMask, kPositions}) {
    const bool isMask = name == kMask;
    graph.input(graph.uniqueName(name), OnnxType::Int64, {kBatch, isMask ? kTotal : kSequence});
  }
}

void OnnxBuilder::finish(const Name &rows, int64_t vocabulary) {
  const Name logits = graph.uniqueName("logits");
  scope = "model";
  Name shape = add("Concat", {add("Shape", {kTokens}), integers({-1})}, {{"axis", int64_t(0)}});
  graph.node("Reshape", {rows, shape}, {logits});
  graph.output(logits, OnnxType::Float, {kBatch, kSequence, vocabulary});
}

Name OnnxBuilder::tokens() {
  return once("tokens", [&] { return reshape(kTokens, {-1}); });
}
Name OnnxBuilder::positions() {
  return once("positions", [&] { return reshape(kPositions, {-1}); });
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

Name OnnxBuilder::add(llvm::StringRef op, const std::vector<Name> &inputs,
                      const OnnxAttributes &attributes) {
  Name result = graph.uniqueName(scope + "/" + op.str());
  graph.node(op, inputs, {result}, attributes);
  return result;
}

Name OnnxBuilder::real(float value) {
  return once("real " + std::to_string(std::bit_cast<uint32_t>(value)), [&] {
    return graph.constant("real", OnnxType::Float, {}, bytesOf(std::vector{value}));
  });
}

Name OnnxBuilder::integers(const std::vector<int64_t> &values) {
  std::string key = "integers";
  for (int64_t value : values)
    key += " " + std::to_string(value);
  return once(key, [&] {
    return graph.constant("integers", OnnxType::Int64, {std::ssize(values)}, bytesOf(values));
  });
}

Name OnnxBuilder::reshape(const Name &x, const std::vector<int64_t> &shape) {
  return add("Reshape", {x, integers(shape)});
}

Name OnnxBuilder::linear(const Name &x, const Name &weight, bool isRows, const Name &bias) {
  std::vector<Name> inputs = {x, weight};
  if (!bias.empty())
    inputs.push_back(bias);
  return add("Gemm", inputs, {{"transB", int64_t(isRows)}});
}

Name OnnxBuilder::embedding(const Name &table, const Name &rows) {
  return add("Gather", {table, rows});
}

/// The pattern that ONNX Runtime knows as one kernel.
Name OnnxBuilder::rmsNorm(const Name &x, const Name &weight, double epsilon) {
  Name square = add("Pow", {x, real(2)});
  Name mean = add("ReduceMean", {square, integers({-1})});
  Name root = add("Sqrt", {add("Add", {mean, real(static_cast<float>(epsilon))})});
  const Name normed = add("Div", {x, root});
  return weight.empty() ? normed : add("Mul", {normed, weight});
}

Name OnnxBuilder::layerNorm(const Name &x, const Name &weight, const Name &bias, double epsilon) {
  return add("LayerNormalization", {x, weight, bias}, {{"epsilon", static_cast<float>(epsilon)}});
}

Name OnnxBuilder::silu(const Name &x) { return add("Mul", {x, add("Sigmoid", {x})}); }

Name OnnxBuilder::multiply(const Name &x, double factor) {
  return add("Mul", {x, real(static_cast<float>(factor))});
}

Name OnnxBuilder::softCap(const Name &x, double bound) {
  return multiply(add("Tanh", {multiply(x, 1 / bound)}), bound);
}

Name OnnxBuilder::gelu(const Name &x, lm::GeluApproximation approximation) {
  Name inner;
  if (approximation == lm::GeluApproximation::Tanh) {
    Name cube = multiply(add("Pow", {x, real(3)}), 0.044715);
    inner = add("Tanh", {multiply(add("Add", {x, cube}), std::sqrt(2 / std::numbers::pi))});
  } else {
    inner = add("Erf", {multiply(x, 1 / std::numbers::sqrt2)});
  }
  return add("Mul", {multiply(x, 0.5), add("Add", {inner, real(1)})});
}

OnnxBuilder::Names OnnxBuilder::split(const Name &x, const std::vector<int64_t> &widths) {
  std::vector<Name> parts;
  for (size_t i = 0; i < widths.size(); ++i)
    parts.push_back(graph.uniqueName(scope + "/Split"));
  graph.node("Split", {x, integers(widths)}, parts, {{"axis", int64_t(1)}});
  return Names(parts.begin(), parts.end());
}

//===----------------------------------------------------------------------===//
// Positions and attention
//===----------------------------------------------------------------------===//

Name OnnxBuilder::perHead(const Name &x, int64_t heads, int64_t columns) {
  Name shape = once("per head " + std::to_string(heads) + " " + std::to_string(columns), [&] {
    Name batch = add("Shape", {kTokens}, {{"start", int64_t(0)}, {"end", int64_t(1)}});
    return add("Concat", {batch, integers({-1, heads, columns})}, {{"axis", int64_t(0)}});
  });
  return add("Reshape", {x, shape});
}

Name OnnxBuilder::rope(const Name &x, const Name &cosines, const Name &sines, int64_t heads,
                       int64_t headDim, int64_t rotated) {
  auto turns = [&](const Name &table) {
    return once("turns " + table, [&] {
      return add("Unsqueeze", {add("Gather", {table, kPositions}), integers({2})});
    });
  };
  const Name cosine = turns(cosines), sine = turns(sines);
  const Name x4 = perHead(x, heads, headDim);
  std::vector<Name> parts = {graph.uniqueName(scope + "/Split"),
                             graph.uniqueName(scope + "/Split")};
  if (rotated == headDim) {
    graph.node("Split", {x4}, parts, {{"axis", int64_t(-1)}, {"num_outputs", int64_t(2)}});
  } else {
    parts.push_back(graph.uniqueName(scope + "/Split"));
    const Name widths = integers({rotated / 2, rotated / 2, headDim - rotated});
    graph.node("Split", {x4, widths}, parts, {{"axis", int64_t(-1)}});
  }
  auto product = [&](const Name &a, const Name &b) { return add("Mul", {a, b}); };
  const Name low = parts[0], high = parts[1];
  parts[0] = add("Sub", {product(low, cosine), product(high, sine)});
  parts[1] = add("Add", {product(high, cosine), product(low, sine)});
  Name turned = add("Concat", parts, {{"axis", int64_t(-1)}});
  return reshape(turned, {-1, heads * headDim});
}

Name OnnxBuilder::maskOf(int64_t window) {
  return once("mask " + std::to_string(window), [&] {
    auto sizeOf = [&](const Name &x, int64_t dimension) { // a scalar
      Name size = add("Shape", {x}, {{"start", dimension}, {"end", dimension + 1}});
      return add("Squeeze", {size});
    };
    const Name zero = graph.constant("zero", OnnxType::Int64, {}, bytesOf<int64_t>({0}));
    const Name one = graph.constant("one", OnnxType::Int64, {}, bytesOf<int64_t>({1}));
    const Name past = sizeOf(firstPast, 2), total = add("Add", {past, sizeOf(kTokens, 1)});
    const Name query = add("Unsqueeze", {add("Range", {past, total, one}), integers({1})});
    const Name key = add("Range", {zero, total, one});
    Name seen = add("LessOrEqual", {key, query});
    if (window != 0) {
      Name end = add("Add", {key, integers({window})});
      seen = add("And", {seen, add("Greater", {end, query})});
    }
    Name valid = add("Cast", {kMask}, {{"to", static_cast<int64_t>(OnnxType::Bool)}});
    seen = add("And", {seen, add("Unsqueeze", {valid, integers({1, 2})})});
    return add("Where", {seen, real(0), real(std::numeric_limits<float>::lowest())});
  });
}

Name OnnxBuilder::append(const Name &rows, llvm::StringRef kind, lm::AttentionOp op) {
  const auto heads = static_cast<int64_t>(op.getNumKvHeads());
  const auto headDim = static_cast<int64_t>(op.getHeadDim());
  const std::string layer = "." + std::to_string(op.getLayer()) + "." + kind.str();
  const Name past = graph.uniqueName("past_key_values" + layer);
  const Name present = graph.uniqueName("present" + layer);
  graph.input(past, OnnxType::Float, {kBatch, heads, kPast, headDim});
  graph.output(present, OnnxType::Float, {kBatch, heads, kTotal, headDim});
  if (firstPast.empty())
    firstPast = past;
  Name mine = add("Transpose", {perHead(rows, heads, headDim)},
                  {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  graph.node("Concat", {past, mine}, {present}, {{"axis", int64_t(2)}});
  return present;
}

/// The heads that share keys and values are rows of one product with them.
Name OnnxBuilder::attention(const Name &q, const Name &k, const Name &v, lm::AttentionOp op) {
  const auto heads = static_cast<int64_t>(op.getNumHeads());
  const auto kvHeads = static_cast<int64_t>(op.getNumKvHeads());
  const auto headDim = static_cast<int64_t>(op.getHeadDim());
  const std::vector<int64_t> swapped = {0, 2, 1, 3};
  const Name keys = append(k, "key", op), values = append(v, "value", op);
  Name query = add("Mul", {q, real(static_cast<float>(op.getScale().convertToDouble()))});
  query = add("Transpose", {perHead(query, heads, headDim)}, {{"perm", swapped}});
  query = reshape(query, {0, kvHeads, -1, headDim});
  Name keysAcross = add("Transpose", {keys}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  Name scores = reshape(add("MatMul", {query, keysAcross}), {0, heads, -1, 0});
  if (const double bound = op.getBound().convertToDouble(); bound > 0)
    scores = softCap(scores, bound);
  const Name mask = maskOf(static_cast<int64_t>(op.getWindow()));
  Name shares = add("Softmax", {add("Add", {scores, mask})}, {{"axis", int64_t(-1)}});
  Name attended = add("MatMul", {reshape(shares, {0, kvHeads, -1, 0}), values});
  attended = add("Transpose", {reshape(attended, {0, heads, -1, 0})}, {{"perm", swapped}});
  return reshape(attended, {-1, heads * headDim});
}
