//===- GradientTest.cpp - Gradients of ops, compiled, against differences -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every differentiable op of the `lm` dialect in a layer that is compiled with its gradients, as
// methods of calibration do it, against differences of its result. Kernels are in single precision:
// differences of fourth order over a step of 2^-5 leave an error of about 2^-12.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Transforms/Gradients.h"
#include "easyquant/Execution/TrainedLayer.h"
#include "easyquant/Numerics/Rope.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

namespace {

using Globals = std::vector<std::pair<std::string, std::string>>; // name, shape

/// A layer of `columns` on weights %name; %batch is a value, %cache has two heads of 4. Tables and
/// kernels have no gradient.
struct Case {
  const char *name;
  int64_t columns;
  Globals weights;
  std::string body;
};

std::string moduleText(const Case &c) {
  std::string text, type = "tensor<?x" + std::to_string(c.columns) + "xf32>";
  for (auto &[name, shape] : c.weights)
    text += "ml_program.global private @" + name + "(#ml_program.extern : tensor<" + shape +
            "xf32>) : tensor<" + shape + "xf32>\n";
  text += "func.func private @layer(%x: " + type +
          ", %batch: !lm.batch, %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>, "
          "%state: !lm.recurrent<values = 128>) -> " +
          type + " {\n";
  for (auto &[name, shape] : c.weights)
    text +=
        "%" + name + " = ml_program.global_load_const @" + name + " : tensor<" + shape + "xf32>\n";
  return text + c.body + "return %y : " + type + "\n}\n";
}

std::vector<float> normal(int64_t count, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, spread);
  std::vector<float> values(count);
  for (float &v : values)
    v = distribution(random);
  return values;
}

const std::string kSplit3 = "%q, %k, %v = lm.split %x : tensor<?x32xf32> -> tensor<?x16xf32>, "
                            "tensor<?x8xf32>, tensor<?x8xf32>\n";
std::string attention(const std::string &window, const std::string &bound = "0.0") {
  return kSplit3 +
         "%a = lm.attention %q, %k, %v, %cache, %batch {layer = 0 : i64, num_heads = 4 : i64, "
         "num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 0.5 : f64, window = " +
         window + " : i64, bound = " + bound +
         " : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, "
         "head_dim = 4>\n"
         "%y = lm.linear %a, %w {site = \"o\"} : (tensor<?x16xf32>, tensor<32x16xf32>) -> "
         "tensor<?x32xf32>\n";
}

/// Three heads of values for each key head, all of 4 columns.
std::string gatedDelta(int64_t keyHeads, const std::string &order) {
  auto rows = [](int64_t columns) { return "tensor<?x" + std::to_string(columns) + "xf32>"; };
  const int64_t heads = 3 * keyHeads;
  const std::string keys = rows(4 * keyHeads), values = rows(4 * heads), numbers = rows(heads),
                    all = rows(26 * keyHeads), vector = "tensor<" + std::to_string(heads) + "xf32>";
  return "%q, %k, %v, %a, %b = lm.split %x : " + all + " -> " + keys + ", " + keys + ", " + values +
         ", " + numbers + ", " + numbers +
         "\n%d = lm.gated_delta %q, %k, %v, %a, %b, %kernel_rate, %kernel_bias, %state, %batch "
         "{key_heads = " +
         std::to_string(keyHeads) + " : i64, value_heads = " + std::to_string(heads) +
         " : i64, first = 3 : i64" + order + "} : (" + keys + ", " + keys + ", " + values + ", " +
         numbers + ", " + numbers + ", " + vector + ", " + vector +
         ", !lm.recurrent<values = 128>, !lm.batch) -> " + values +
         "\n%y = lm.linear %d, %w {site = \"w\"} : (" + values + ", tensor<" +
         std::to_string(26 * keyHeads) + "x" + std::to_string(4 * heads) + "xf32>) -> " + all +
         "\n";
}

/// Four experts of 6 columns inside. The first columns of x are tokens; the others are logits, to
/// which a router may add. `isShared`: something is added to what the experts give.
std::string experts(bool hasRouter, int64_t chosen, const std::string &router,
                    const std::string &constants = "", bool isShared = false) {
  const std::string k = std::to_string(chosen), x = "tensor<?x12xf32>";
  std::string body =
      "%tokens, %given = lm.split %x : " + x + " -> tensor<?x8xf32>, tensor<?x4xf32>\n";
  if (hasRouter)
    body += "%made = lm.linear %x, %router {site = \"router\"} : (" + x +
            ", tensor<4x12xf32>) -> tensor<?x4xf32>\n%logits = lm.add %made, %given : "
            "tensor<?x4xf32>\n";
  body += std::string("%order, %offsets, %places, %weights = lm.route ") +
          (hasRouter ? "%logits" : "%given") + constants + " {top_k = " + k + " : i64" + router +
          "} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x" + k +
          "xi32>, tensor<?x" + k + "xf32>\n" +
          "%rows = lm.rows %tokens at %order : tensor<?x8xf32>, tensor<?xi32>\n";
  for (const char *part : {"gate", "up"})
    body += std::string("%") + part + "_rows = lm.linear %rows, %" + part +
            " experts(%offsets) {site = \"" + part +
            "\"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x6xf32>\n";
  body += "%inner = lm.glu silu %gate_rows, %up_rows : tensor<?x6xf32>\n"
          "%d = lm.linear %inner, %down experts(%offsets) {site = \"down\"} : "
          "(tensor<?x6xf32>, tensor<48x6xf32>, tensor<5xi32>) -> " +
          x + "\n";
  const std::string types = " : " + x + ", tensor<?x" + k + "xi32>, tensor<?x" + k + "xf32>\n";
  if (!isShared)
    return body + "%y = lm.combine %d, %places, %weights" + types;
  return body +
         "%s = lm.linear %tokens, %shared {site = \"shared\"} : (tensor<?x8xf32>, "
         "tensor<12x8xf32>) -> " +
         x +
         "\n%g = lm.linear %tokens, %shared_gate {site = \"shared_gate\"} : (tensor<?x8xf32>, "
         "tensor<1x8xf32>) -> tensor<?x1xf32>\n"
         "%y = lm.combine %d, %places, %weights shared(%s, %g : " +
         x + ", tensor<?x1xf32>)" + types;
}

const Globals kExperts = {{"gate", "24x8"}, {"up", "24x8"}, {"down", "48x6"}};
Globals expertsAnd(Globals more) {
  more.insert(more.begin(), kExperts.begin(), kExperts.end());
  return more;
}

const Case kCases[] = {
    {"Experts", 12, kExperts, experts(false, 2, "")},
    {"ExpertsOfParts", 12, expertsAnd({{"kernel_factors", "4"}}),
     experts(false, 2, ", renormalize", " factors(%kernel_factors : tensor<4xf32>)")},
    {"ExpertsBySigmoids", 12, expertsAnd({{"kernel_bias", "4"}}),
     experts(false, 3, ", sigmoid, renormalize, scale = 1.5 : f64",
             " bias(%kernel_bias : tensor<4xf32>)")},
    {"SharedExpert", 12,
     expertsAnd({{"router", "4x12"}, {"shared", "12x8"}, {"shared_gate", "1x8"}}),
     experts(true, 4, ", scale = 0.7 : f64", "", /*isShared=*/true)},
    {"ExpertsOfAllRows", 12, expertsAnd({{"router", "4x12"}}), experts(true, 4, ", sigmoid")},
    {"Linear",
     12,
     {{"w", "20x12"}, {"b", "20"}, {"v", "12x20"}},
     "%h = lm.linear %x, %w bias(%b) {site = \"w\"} : (tensor<?x12xf32>, tensor<20x12xf32>, "
     "tensor<20xf32>) -> tensor<?x20xf32>\n"
     "%y = lm.linear %h, %v {site = \"v\"} : (tensor<?x20xf32>, tensor<12x20xf32>) -> "
     "tensor<?x12xf32>\n"},
    {"RmsNorm",
     37,
     {{"w", "37"}},
     "%y = lm.rms_norm %x, %w {epsilon = 1.0e-03 : f64} : tensor<?x37xf32>\n"},
    {"HeadRmsNorm",
     24,
     {{"w", "8"}},
     "%y = lm.head_rms_norm %x, %w {epsilon = 1.0e-03 : f64} : tensor<?x24xf32>, tensor<8xf32>\n"},
    {"PlainHeadRmsNorm",
     24,
     {{"w", "24x24"}},
     "%n = lm.head_rms_norm %x {epsilon = 1.0e-03 : f64, head_dim = 8 : i64} : tensor<?x24xf32>\n"
     "%y = lm.linear %n, %w {site = \"w\"} : (tensor<?x24xf32>, tensor<24x24xf32>) -> "
     "tensor<?x24xf32>\n"},
    {"LayerNorm",
     37,
     {{"w", "37"}, {"b", "37"}},
     "%y = lm.layer_norm %x, %w, %b {epsilon = 1.0e-03 : f64} : tensor<?x37xf32>\n"},
    {"SiluMul",
     22,
     {{"w", "22x11"}},
     "%gate, %up = lm.split %x : tensor<?x22xf32> -> tensor<?x11xf32>, tensor<?x11xf32>\n"
     "%m = lm.glu silu %gate, %up : tensor<?x11xf32>\n"
     "%y = lm.linear %m, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<22x11xf32>) -> "
     "tensor<?x22xf32>\n"},
    {"GeluMul",
     22,
     {{"w", "22x11"}},
     "%gate, %up = lm.split %x : tensor<?x22xf32> -> tensor<?x11xf32>, tensor<?x11xf32>\n"
     "%m = lm.glu gelu_tanh %gate, %up : tensor<?x11xf32>\n"
     "%y = lm.linear %m, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<22x11xf32>) -> "
     "tensor<?x22xf32>\n"},
    {"Mul",
     22,
     {{"w", "22x11"}},
     "%gate, %up = lm.split %x : tensor<?x22xf32> -> tensor<?x11xf32>, tensor<?x11xf32>\n"
     "%m = lm.glu none %gate, %up : tensor<?x11xf32>\n"
     "%y = lm.linear %m, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<22x11xf32>) -> "
     "tensor<?x22xf32>\n"},
    {"SigmoidMul",
     22,
     {{"w", "22x11"}},
     "%gate, %up = lm.split %x : tensor<?x22xf32> -> tensor<?x11xf32>, tensor<?x11xf32>\n"
     "%m = lm.glu sigmoid %gate, %up : tensor<?x11xf32>\n"
     "%y = lm.linear %m, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<22x11xf32>) -> "
     "tensor<?x22xf32>\n"},
    {"SiluConvolution",
     11,
     {{"kernel", "11x4"}, {"w", "11x11"}},
     "%c = lm.conv1d %x, %kernel, %state, %batch {first = 7 : i64, silu} : (tensor<?x11xf32>, "
     "tensor<11x4xf32>, !lm.recurrent<values = 128>, !lm.batch) -> tensor<?x11xf32>\n"
     "%y = lm.linear %c, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<11x11xf32>) -> "
     "tensor<?x11xf32>\n"},
    {"GatedDelta",
     26,
     {{"kernel_rate", "3"}, {"kernel_bias", "3"}, {"w", "26x12"}},
     gatedDelta(1, "")},
    {"TiledGatedDelta",
     52,
     {{"kernel_rate", "6"}, {"kernel_bias", "6"}, {"w", "52x24"}},
     gatedDelta(2, ", tiled")},
    {"Conv1d",
     11,
     {{"kernel", "11x4"}, {"w", "11x11"}},
     "%c = lm.conv1d %x, %kernel, %state, %batch {first = 7 : i64} : (tensor<?x11xf32>, "
     "tensor<11x4xf32>, !lm.recurrent<values = 128>, !lm.batch) -> tensor<?x11xf32>\n"
     "%y = lm.linear %c, %w {site = \"w\"} : (tensor<?x11xf32>, tensor<11x11xf32>) -> "
     "tensor<?x11xf32>\n"},
    {"Multiply", 19, {}, "%y = lm.multiply %x {factor = 1.7 : f64} : tensor<?x19xf32>\n"},
    {"SoftCap", 19, {}, "%y = lm.soft_cap %x {bound = 0.9 : f64} : tensor<?x19xf32>\n"},
    {"GeluTanh", 19, {}, "%y = lm.gelu %x approximate tanh : tensor<?x19xf32>\n"},
    {"GeluErf", 19, {}, "%y = lm.gelu %x approximate none : tensor<?x19xf32>\n"},
    {"SumOverReaders",
     6,
     {{"w", "6x6"}},
     "%g = lm.gelu %x approximate tanh : tensor<?x6xf32>\n"
     "%h = lm.linear %g, %w {site = \"w\"} : (tensor<?x6xf32>, tensor<6x6xf32>) -> "
     "tensor<?x6xf32>\n"
     "%s = lm.glu silu %h, %g : tensor<?x6xf32>\n"
     "%t = lm.add %x, %s : tensor<?x6xf32>\n"
     "%y = lm.add %t, %t : tensor<?x6xf32>\n"},
    {"Rope",
     16,
     {{"table", "128x4x2"}},
     "%y = lm.rope %x, %table, %batch {head_dim = 8 : i64} : tensor<?x16xf32>, "
     "tensor<128x4x2xf32>\n"},
    {"RopeOfAPart",
     16,
     {{"table", "128x3x2"}},
     "%y = lm.rope %x, %table, %batch {head_dim = 8 : i64} : tensor<?x16xf32>, "
     "tensor<128x3x2xf32>\n"},
    {"PositionEmbedding",
     6,
     {{"w", "90x6"}},
     "%y = lm.position_embedding %x, %w, %batch : tensor<?x6xf32>, tensor<90x6xf32>\n"},
    {"Attention", 32, {{"w", "32x16"}}, attention("0")},
    {"SlidingWindow", 32, {{"w", "32x16"}}, attention("7")},
    {"BoundedAttention", 32, {{"w", "32x16"}}, attention("7", "0.8")},
};

class Gradients : public testing::TestWithParam<Case> {
protected:
  Gradients() {
    context.loadDialect<equant::EquantDialect, func::FuncDialect, ml_program::MLProgramDialect>();
    DialectRegistry registry;
    SubgraphCompiler::getDependentDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }
  static SubgraphCompiler compiler(unsigned threads) {
    EngineOptions options;
    options.threads = threads;
    options.maxRows = 16; // the way forward in pieces, the way back at once
    options.length = 80;
    return std::move(*SubgraphCompiler::create(options));
  }

  MLIRContext context;
};

} // namespace

TEST_P(Gradients, AreLimitsOfDifferences) {
  const Case &c = GetParam();
  auto module = parseSourceString<ModuleOp>(moduleText(c), &context);
  ASSERT_TRUE(module);
  auto layer = module->lookupSymbol<func::FuncOp>("layer");
  SmallVector<Value> wanted = {layer.getArgument(0)};
  for (auto load : layer.getOps<ml_program::GlobalLoadConstOp>())
    if (StringRef name = load.getGlobal().getLeafReference();
        name != "table" && !name.starts_with("kernel"))
      wanted.push_back(load.getResult());
  const int64_t tokens = 70;
  std::vector<std::vector<float>> results;
  for (unsigned threads : {2u, 1u}) {
    SubgraphCompiler subgraphs = compiler(threads);
    auto trained = TrainedLayer::create(subgraphs, layer, wanted);
    ASSERT_TRUE(succeeded(trained));
    std::vector<std::vector<float>> values = {normal(tokens * c.columns, 1, 1)};
    std::vector<std::vector<float>> memory = {std::vector<float>(values[0].size())};
    SmallVector<Matrix> places = {{values[0].data(), tokens, c.columns}};
    SmallVector<Matrix> gradients = {{memory[0].data(), tokens, c.columns}};
    for (const SubgraphWeight &weight : trained->weights())
      if (StringRef(weight.global).starts_with("kernel")) {
        const int64_t count = weight.type.getNumElements(), columns = weight.type.getShape().back();
        const auto kernel = normal(count, 0.5, 5);
        ASSERT_TRUE(trained->setWeight(weight.global,
                                       ConstMatrix(kernel.data(), count / columns, columns)));
      } else if (weight.global == "table") {
        numerics::RopeParams params;
        params.dims = 2 * weight.type.getDimSize(1);
        std::vector<float> table = *numerics::ropeTable(params, weight.type.getDimSize(0));
        ASSERT_TRUE(trained->setWeight(
            "table", ConstMatrix(table.data(), weight.type.getDimSize(0), params.dims)));
      }
    for (size_t i = 1; i < wanted.size(); ++i) {
      auto type = cast<RankedTensorType>(wanted[i].getType());
      const int64_t rows = type.getRank() == 1 ? 1 : type.getDimSize(0);
      values.push_back(normal(type.getNumElements(), 0.5, 10 + i));
      memory.emplace_back(values[i].size());
      places.push_back({values[i].data(), rows, type.getShape().back()});
      gradients.push_back({memory[i].data(), rows, type.getShape().back()});
    }
    std::vector<float> dy = normal(tokens * c.columns, 1, 2), y(dy.size());
    auto loss = [&] { // whose gradient by y is dy
      for (size_t i = 1; i < wanted.size(); ++i)
        EXPECT_TRUE(trained->setWeight(trained->global(i), places[i]));
      EXPECT_TRUE(trained->forward(places[0], Matrix(y.data(), tokens, c.columns)));
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i)
        sum += static_cast<double>(y[i]) * dy[i];
      return sum;
    };
    loss();
    ASSERT_TRUE(trained->backward(places[0], ConstMatrix(dy.data(), tokens, c.columns), gradients));
    std::vector<float> &result = results.emplace_back();
    for (size_t w = 0; w < wanted.size(); ++w) {
      result.insert(result.end(), memory[w].begin(), memory[w].end());
      for (size_t i = 0; threads == 2 && i < values[w].size(); i += 1 + values[w].size() / 24) {
        const float before = values[w][i], step = 0x1p-5f;
        auto at = [&](float offset) {
          values[w][i] = before + offset;
          double there = loss();
          values[w][i] = before;
          return there;
        };
        const double expected =
            (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
        ASSERT_NEAR(memory[w][i], expected, 2e-3 * (1 + std::abs(expected)))
            << "wanted value " << w << ", element " << i;
      }
    }
  }
  EXPECT_EQ(results[0], results[1]) << "the same bits for any number of threads";
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradients, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_F(Gradients, RowsAndTablesAreAddedUp) {
  auto module = parseSourceString<ModuleOp>(R"(
ml_program.global private @table(#ml_program.extern : tensor<5x3xf32>) : tensor<5x3xf32>
func.func private @embed(%tokens: tensor<?xi32>) -> tensor<?x3xf32> {
  %table = ml_program.global_load_const @table : tensor<5x3xf32>
  %y = lm.embedding %tokens, %table : tensor<?xi32>, tensor<5x3xf32> -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}
func.func private @rows(%x: tensor<?x3xf32>, %rows: tensor<?xi32>) -> tensor<?x3xf32> {
  %y = lm.rows %x at %rows : tensor<?x3xf32>, tensor<?xi32>
  %dx = lm.rows_gradient %y, %x at %rows : tensor<?x3xf32>, tensor<?xi32>
  return %dx : tensor<?x3xf32>
})",
                                            &context);
  ASSERT_TRUE(module);
  auto embed = module->lookupSymbol<func::FuncOp>("embed");
  Value table = cast<lm::EmbeddingOp>(*std::next(embed.front().begin())).getTable();
  auto built = lm::buildGradients(embed, {table}, "gradients");
  ASSERT_TRUE(succeeded(built));
  Block &block = built->function->front();
  SubgraphCompiler subgraphs = compiler(1);
  std::vector<float> dy = normal(12, 1, 3), gradient(15, -1), expected(15);
  const std::vector<int32_t> tokens = {4, 0, 4, 2};
  for (int64_t i = 0; i < 12; ++i)
    expected[tokens[i / 3] * 3 + i % 3] += dy[i];
  auto program = subgraphs.compile(
      {{block.getArgument(0), block.getArgument(1)}, {block.getTerminator()->getOperand(1)}});
  ASSERT_TRUE(succeeded(program));
  ASSERT_TRUE(program->run({ConstMatrix(dy.data(), 4, 3)}, {Matrix(gradient.data(), 5, 3)}, nullptr,
                           tokens));
  EXPECT_EQ(gradient, expected);

  auto rows = module->lookupSymbol<func::FuncOp>("rows");
  auto back = subgraphs.compile(
      {{rows.getArgument(0), rows.getArgument(1)}, {rows.front().getTerminator()->getOperand(0)}});
  ASSERT_TRUE(succeeded(back));
  std::vector<float> there(12, -1), put(12);
  const std::vector<int32_t> numbers = {3, 0, 1, 1};
  for (int32_t number : numbers)
    for (int64_t column = 0; column < 3; ++column)
      put[number * 3 + column] += dy[number * 3 + column];
  ASSERT_TRUE(
      back->run({ConstMatrix(dy.data(), 4, 3)}, {Matrix(there.data(), 4, 3)}, nullptr, numbers));
  EXPECT_EQ(there, put);
}
