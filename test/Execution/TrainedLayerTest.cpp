//===- TrainedLayerTest.cpp - Compiled layers against one written by hand -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/TrainedLayer.h"

#include "DecoderData.h"
#include "easyquant/Numerics/Gradients.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::numerics;

namespace {

constexpr int64_t kPositions = 96, kTokens = 70;
constexpr const char *kNames[] = {"q", "k", "v", "o", "gate", "up", "down"};

/// The layer of DecoderLayer.h as IR, on weights @q, @k, ..., biases @q.b, ..., norms and rotation.
class LayerText {
public:
  explicit LayerText(const Layer<float> &layer) : layer(layer) {}

  std::string build() {
    const DecoderShape &s = layer.shape;
    const bool isGpt2 = s.norm == DecoderNorm::Layer;
    const std::string x = rows(s.hidden);
    constant("rope", std::to_string(kPositions) + "x" + std::to_string(s.headDim / 2) + "x2");
    const std::string normed = norm("x", 0);
    std::string q = linear(kQuery, normed), k = linear(kKey, normed), v = linear(kValue, normed);
    if (!isGpt2)
      for (std::string *value : {&q, &k}) {
        body += "%r" + *value + " = lm.rope %" + *value +
                ", %rope, %batch {head_dim = " + std::to_string(s.headDim) +
                " : i64} : " + rows((value == &q ? s.heads : s.kvHeads) * s.headDim) + ", tensor<" +
                std::to_string(kPositions) + "x" + std::to_string(s.headDim / 2) + "x2xf32>\n";
        *value = "r" + *value;
      }
    const std::string cache = "!lm.kv_cache<layers = 1, kv_heads = " + std::to_string(s.kvHeads) +
                              ", head_dim = " + std::to_string(s.headDim) + ">";
    body += "%a = lm.attention %" + q + ", %" + k + ", %" + v +
            ", %cache, %batch {layer = 0 : i64, num_heads = " + std::to_string(s.heads) +
            " : i64, num_kv_heads = " + std::to_string(s.kvHeads) +
            " : i64, head_dim = " + std::to_string(s.headDim) +
            " : i64, scale = 0.5 : f64} : " + rows(s.heads * s.headDim) + ", " +
            rows(s.kvHeads * s.headDim) + ", " + cache + "\n";
    body += "%m = lm.add %x, %" + linear(kOutput, "a") + " : " + x + "\n";
    const std::string again = norm("m", 1), up = linear(kUp, again), inner = rows(s.intermediate);
    if (s.activation == DecoderActivation::SiluMul)
      body += "%act = lm.glu silu %" + linear(kGate, again) + ", %" + up + " : " + inner + "\n";
    else
      body += "%act = lm.gelu %" + up + " approximate " +
              (s.activation == DecoderActivation::GeluTanh ? "tanh" : "none") + " : " + inner +
              "\n";
    body += "%y = lm.add %m, %" + linear(kDown, "act") + " : " + x + "\n";
    return globals + "func.func private @layer(%x: " + x + ", %batch: !lm.batch, %cache: " + cache +
           ") -> " + x + " {\n" + loads + body + "return %y : " + x + "\n}\n";
  }

private:
  static std::string rows(int64_t columns) {
    return "tensor<?x" + std::to_string(columns) + "xf32>";
  }
  void constant(const std::string &name, const std::string &shape) {
    const std::string type = "tensor<" + shape + "xf32>";
    globals += "ml_program.global private @" + name + "(#ml_program.extern : " + type +
               ") : " + type + "\n";
    loads += "%" + name + " = ml_program.global_load_const @" + name + " : " + type + "\n";
  }
  std::string linear(DecoderLinear which, const std::string &input) {
    const std::string name = kNames[which];
    const ConstMatrix w = layer.weights.weights[which];
    const std::string n = std::to_string(w.rows);
    const std::string shape = n + "x" + std::to_string(w.columns);
    constant(name, shape);
    std::string bias, type;
    if (layer.weights.biases[which]) {
      constant(name + "_b", n);
      bias = " bias(%" + name + "_b)";
      type = ", tensor<" + n + "xf32>";
    }
    body += "%y_" + name + " = lm.linear %" + input + ", %" + name + bias + " {site = \"" + name +
            "\"} : (" + rows(w.columns) + ", tensor<" + shape + "xf32>" + type + ") -> " +
            rows(w.rows) + "\n";
    return "y_" + name;
  }
  std::string norm(const std::string &input, int index) {
    const bool isLayerNorm = layer.shape.norm == DecoderNorm::Layer;
    const std::string name = "norm" + std::to_string(index);
    const std::string width = std::to_string(layer.shape.hidden);
    constant(name, width);
    if (isLayerNorm)
      constant(name + "_b", width);
    body += "%n" + std::to_string(index) + " = lm." + (isLayerNorm ? "layer" : "rms") + "_norm %" +
            input + ", %" + name + (isLayerNorm ? ", %" + name + "_b" : "") +
            " {epsilon = 1.0e-05 : f64} : " + rows(layer.shape.hidden) + "\n";
    return "n" + std::to_string(index);
  }

  const Layer<float> &layer;
  std::string globals, loads, body;
};

class TrainedLayers : public testing::TestWithParam<DecoderShape> {};

/// What every weight is called in the text.
void setWeights(TrainedLayer &trained, Layer<float> &l) {
  auto set = [&](const std::string &name, ConstMatrix values) {
    for (const SubgraphWeight &weight : trained.weights())
      if (weight.global == name)
        ASSERT_TRUE(trained.setWeight(name, values));
  };
  const int64_t hidden = l.shape.hidden;
  for (int w = 0; w < kDecoderLinears; ++w) {
    set(kNames[w], l.weights.weights[w]);
    set(std::string(kNames[w]) + "_b", {l.biases[w].data(), 1, int64_t(l.biases[w].size())});
  }
  for (int i = 0; i < 2; ++i) {
    set("norm" + std::to_string(i), {l.norms[i].data(), 1, hidden});
    set("norm" + std::to_string(i) + "_b", {l.norms[2 + i].data(), 1, hidden});
  }
  set("rope", {l.rope.data(), kTokens, l.shape.headDim}); // as far as it is read
}

} // namespace

TEST_P(TrainedLayers, GiveWhatTheOneWrittenByHandGives) {
  MLIRContext context;
  context.loadDialect<equant::EquantDialect, func::FuncDialect, ml_program::MLProgramDialect>();
  DialectRegistry registry;
  SubgraphCompiler::getDependentDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  Layer<float> l(GetParam(), kPositions, 3);
  Layer<double> wide(GetParam(), kPositions, 3);
  auto module = parseSourceString<ModuleOp>(LayerText(l).build(), &context);
  ASSERT_TRUE(module);
  auto layer = module->lookupSymbol<func::FuncOp>("layer");
  EngineOptions options;
  options.threads = 2;
  options.length = kTokens;
  options.maxRows = 32;
  SubgraphCompiler subgraphs = std::move(*SubgraphCompiler::create(options));
  SmallVector<Value> wanted;
  std::vector<int> which;
  layer.walk([&](lm::LinearOp op) {
    wanted.push_back(op.getWeight());
    which.push_back(std::distance(kNames, llvm::find(kNames, op.getSite())));
  });
  auto trained = TrainedLayer::create(subgraphs, layer, wanted);
  ASSERT_TRUE(succeeded(trained));
  setWeights(*trained, l);

  std::vector<double> x = normal<double>(kTokens * l.shape.hidden, 1, 4), y(x.size());
  std::vector<double> dy = normal<double>(x.size(), 1, 5);
  std::vector<float> in(x.begin(), x.end()), out(x.size()), slope(dy.begin(), dy.end());
  std::array<std::vector<double>, kDecoderLinears> expected;
  DecoderGradients<double> places;
  std::vector<std::vector<float>> memory;
  SmallVector<Matrix> gradients;
  for (int w : which) {
    const ConstMatrix weight = l.weights.weights[w];
    expected[w].resize(weight.rows * weight.columns);
    places[w] = {expected[w].data(), weight.rows, weight.columns};
    memory.emplace_back(expected[w].size());
    gradients.push_back({memory.back().data(), weight.rows, weight.columns});
  }
  DecoderLayer<double> model(l.shape, 1);
  model.forward(wide.weights, wide.rows(x, kTokens), wide.rows(y, kTokens));
  model.backward(wide.weights, wide.rows(dy, kTokens), places);
  ASSERT_TRUE(trained->forward(l.rows(in, kTokens), l.rows(out, kTokens)));
  ASSERT_TRUE(trained->backward(l.rows(in, kTokens), l.rows(slope, kTokens), gradients));
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(out[i], y[i], 1e-4 * (1 + std::abs(y[i])));
  for (size_t i = 0; i < which.size(); ++i)
    for (size_t j = 0; j < memory[i].size(); ++j)
      ASSERT_NEAR(memory[i][j], expected[which[i]][j], 2e-4 * (1 + std::abs(memory[i][j])))
          << kNames[which[i]] << ", element " << j;

  // The rows of each linear, whose product is the gradient of its weight; and that of the input.
  auto rows = TrainedLayer::createForRows(subgraphs, layer, wanted);
  auto input = TrainedLayer::create(subgraphs, layer, {layer.getArgument(0)});
  ASSERT_TRUE(succeeded(rows) && succeeded(input));
  setWeights(*rows, l);
  setWeights(*input, l);
  std::vector<float> dx(x.size()), same(x.size());
  ASSERT_TRUE(rows->forward(l.rows(in, kTokens), l.rows(out, kTokens)));
  auto found = rows->backwardRows(l.rows(in, kTokens), l.rows(slope, kTokens), l.rows(dx, kTokens));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), which.size());
  for (size_t i = 0; i < which.size(); ++i) {
    std::vector<float> product(memory[i].size());
    linearWeightGradient((*found)[i].gradient, (*found)[i].input,
                         Matrix(product.data(), gradients[i].rows, gradients[i].columns), 2);
    for (size_t j = 0; j < product.size(); ++j)
      ASSERT_NEAR(product[j], memory[i][j], 1e-4 * (1 + std::abs(memory[i][j])));
  }
  ASSERT_TRUE(input->forward(l.rows(in, kTokens), l.rows(out, kTokens)));
  ASSERT_TRUE(
      input->backward(l.rows(in, kTokens), l.rows(slope, kTokens), {l.rows(same, kTokens)}));
  for (size_t i = 0; i < dx.size(); ++i)
    ASSERT_NEAR(dx[i], same[i], 1e-5 * (1 + std::abs(same[i])));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrainedLayers,
                         testing::Values(llamaShape(), gpt2Shape(DecoderActivation::GeluTanh),
                                         gpt2Shape(DecoderActivation::GeluErf)));
