//===- CompiledSubgraphTest.cpp - Subgraphs against plain double precision ===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/CompiledSubgraph.h"

#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;
namespace reference = numerics::reference;

namespace {

constexpr int64_t kTokens = 37, kHidden = 24, kHeads = 3, kKVHeads = 1, kHeadDim = 8, kUp = 40;

/// A llama layer on weights that are called `p`.norm, `p`.q, ...
std::string layerText(const std::string &p, int layer) {
  std::string text;
  auto global = [&](const std::string &name, const std::string &shape) {
    text += "ml_program.global private @" + p + name + "(#ml_program.extern : tensor<" + shape +
            "xf32>) : tensor<" + shape + "xf32>\n";
  };
  auto load = [&](const std::string &name, const std::string &shape) {
    text += "%" + name + "w = ml_program.global_load_const @" + p + name + " : tensor<" + shape +
            "xf32>\n";
  };
  const std::pair<std::string, std::string> weights[] = {
      {"norm", "24"},  {"q", "24x24"},  {"k", "8x24"},     {"v", "8x24"},     {"o", "24x24"},
      {"norm2", "24"}, {"up", "40x24"}, {"gate", "40x24"}, {"down", "24x40"}, {"rope", "64x4x2"}};
  for (auto &[name, shape] : weights)
    global(name, shape);
  std::string cache = "!lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8>";
  text += "func.func private @" + p + "(%x: tensor<?x24xf32>, %batch: !lm.batch, %cache: " + cache +
          ") -> tensor<?x24xf32> {\n";
  for (auto &[name, shape] : weights)
    load(name, shape);
  auto linear = [&](const std::string &name, const std::string &in, int n, int k) {
    std::string weight = "tensor<" + std::to_string(n) + "x" + std::to_string(k) + "xf32>";
    text += "%" + name + " = lm.linear %" + in + ", %" + name + "w {site = \"" + p + name +
            "\", note = \"" + p + "\"} : (tensor<?x" + std::to_string(k) + "xf32>, " + weight +
            ") -> tensor<?x" + std::to_string(n) + "xf32>\n";
  };
  auto observe = [&](const std::string &value, int columns, const std::string &site) {
    text += "equant.observe %" + value + " {sites = [\"" + p + site +
            "\"], statistics = [\"absmax\"]} : tensor<?x" + std::to_string(columns) + "xf32>\n";
  };
  text += "%h = lm.rms_norm %x, %normw {epsilon = 1.0e-05 : f64} : tensor<?x24xf32>\n";
  observe("h", 24, "q");
  linear("q", "h", 24, 24);
  linear("k", "h", 8, 24);
  linear("v", "h", 8, 24);
  text += "%qr = lm.rope %q, %ropew, %batch {head_dim = 8 : i64} : tensor<?x24xf32>, "
          "tensor<64x4x2xf32>\n%kr = lm.rope %k, %ropew, %batch {head_dim = 8 : i64} : "
          "tensor<?x8xf32>, tensor<64x4x2xf32>\n"
          "%a = lm.attention %qr, %kr, %v, %cache, %batch {layer = " +
          std::to_string(layer) +
          " : i64, num_heads = 3 : i64, num_kv_heads = 1 : i64, head_dim = 8 : i64, scale = "
          "0.25 : f64} : tensor<?x24xf32>, tensor<?x8xf32>, " +
          cache + "\n";
  linear("o", "a", 24, 24);
  text += "%y = lm.add %x, %o : tensor<?x24xf32>\n"
          "%h2 = lm.rms_norm %y, %norm2w {epsilon = 1.0e-05 : f64} : tensor<?x24xf32>\n";
  linear("up", "h2", 40, 24);
  linear("gate", "h2", 40, 24);
  text += "%m = lm.glu silu %gate, %up : tensor<?x40xf32>\n";
  observe("m", 40, "down");
  linear("down", "m", 24, 40);
  return text + "%z = lm.add %y, %down : tensor<?x24xf32>\nreturn %z : tensor<?x24xf32>\n}\n";
}

template <typename T> struct Owned {
  std::vector<T> data;
  int64_t rows, columns;
  Owned(int64_t rows, int64_t columns) : data(rows * columns), rows(rows), columns(columns) {}
  numerics::MatrixView<T> view() { return {data.data(), rows, columns}; }
};
using Floats = Owned<float>;
using Doubles = Owned<double>;

Floats rounded(const Doubles &x) {
  Floats y(x.rows, x.columns);
  std::copy(x.data.begin(), x.data.end(), y.data.begin());
  return y;
}

class CompiledSubgraphTest : public testing::Test {
protected:
  CompiledSubgraphTest() {
    context.loadDialect<equant::EquantDialect, func::FuncDialect, ml_program::MLProgramDialect>();
    DialectRegistry registry;
    SubgraphCompiler::getDependentDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = parseSourceString<ModuleOp>(layerText("a", 0) + layerText("b", 1), &context);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float &value : input.data)
      value = normal(random);
  }

  func::FuncOp layer(StringRef name) { return module->lookupSymbol<func::FuncOp>(name); }
  Subgraph whole(StringRef name) {
    Subgraph subgraph = Subgraph::whole(layer(name));
    subgraph.observers = true;
    return subgraph;
  }
  Value named(StringRef layerName, StringRef site) { // the result of a linear
    Value found;
    layer(layerName).walk([&](lm::LinearOp op) {
      if (op.getSite() == (layerName + site).str())
        found = op.getOutput();
    });
    return found;
  }
  static SubgraphCompiler compiler(unsigned threads, int64_t maxRows) {
    EngineOptions options;
    options.threads = threads;
    options.maxRows = maxRows;
    options.length = kTokens;
    return std::move(*SubgraphCompiler::create(options));
  }
  /// Random weights, the same for the same layer.
  static void fill(CompiledSubgraph &program, int seed) {
    for (const SubgraphWeight &weight : program.weights()) {
      Matrix place = program.weight(weight.global);
      std::mt19937 random(seed + std::hash<std::string>()(weight.global.substr(1)) % 1000);
      std::normal_distribution<float> normal(0, 0.3f);
      for (int64_t i = 0; i < place.rows * place.columns; ++i)
        place.data[i] = normal(random);
      if (weight.global.find("rope") != std::string::npos) {
        numerics::RopeParams params;
        params.dims = kHeadDim;
        std::vector<float> table = *numerics::ropeTable(params, weight.type.getDimSize(0));
        std::copy(table.begin(), table.end(), place.data);
      }
    }
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  Floats input{kTokens, kHidden};
};

/// The layer once more, op by op in double precision.
Floats expectedLayer(CompiledSubgraph &p, const std::string &n, ConstMatrix x, Floats &observed) {
  auto linear = [&](const char *name, ConstMatrix in) {
    Doubles y(kTokens, p.weight(n + name).rows);
    reference::linear(in, p.weight(n + name), nullptr, y.view());
    return rounded(y);
  };
  auto norm = [&](const char *name, ConstMatrix in) {
    Doubles y(kTokens, kHidden);
    reference::rmsNorm(in, p.weight(n + name).data, 1e-5, y.view());
    return rounded(y);
  };
  auto rope = [&](Floats in) {
    Matrix table = p.weight(n + "rope");
    Doubles y(kTokens, in.columns);
    reference::rope(in.view(), std::span(table.data, table.rows * table.columns), kHeadDim, 0,
                    y.view());
    return rounded(y);
  };
  auto add = [&](ConstMatrix a, ConstMatrix b) {
    Doubles y(kTokens, kHidden);
    reference::add(a, b, y.view());
    return rounded(y);
  };
  Floats h = norm("norm", x);
  Floats q = rope(linear("q", h.view())), k = rope(linear("k", h.view())),
         v = linear("v", h.view());
  Doubles attended(kTokens, kHidden);
  reference::AttentionParams params{kHeads, kKVHeads, kHeadDim, 0.25};
  reference::attention(q.view(), k.view(), v.view(), params, 0, attended.view());
  Floats y = add(x, linear("o", rounded(attended).view()).view());
  Floats h2 = norm("norm2", y.view());
  Doubles m(kTokens, kUp);
  reference::siluMul(linear("gate", h2.view()).view(), linear("up", h2.view()).view(), m.view());
  observed = rounded(m);
  return add(y.view(), linear("down", observed.view()).view());
}

void expectNear(Floats &actual, Floats &expected) {
  for (size_t i = 0; i < expected.data.size(); ++i)
    ASSERT_NEAR(actual.data[i], expected.data[i], 2e-5 * (1 + std::abs(expected.data[i]))) << i;
}

} // namespace

TEST_F(CompiledSubgraphTest, LayerIsWhatItsOperationsAre) {
  ASSERT_TRUE(module);
  SubgraphCompiler subgraphs = compiler(2, 8); // five chunks, the last one short
  auto program = subgraphs.compile(whole("b"));
  ASSERT_TRUE(succeeded(program));
  fill(*program, 1);
  Floats output(kTokens, kHidden), found(kTokens, kUp), expectedSeen(kTokens, kUp);
  std::vector<float> before = input.data;
  int64_t calls = 0;
  auto observe = [&](const Observation &observation, const ObservedRows &seen) {
    ++calls;
    if (observation.sites != std::vector<std::string>{"bdown"})
      return;
    for (int64_t row = 0; row < seen.rows.rows; ++row)
      std::copy_n(seen.rows.row(row), kUp, found.view().row(seen.position + row));
  };
  ASSERT_TRUE(program->run({input.view()}, {output.view()}, observe));
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(input.data, before);
  Floats expected = expectedLayer(*program, "b", input.view(), expectedSeen);
  expectNear(output, expected);
  expectNear(found, expectedSeen);
}

TEST_F(CompiledSubgraphTest, EqualLayersShareCodeAndThreadsChangeNothing) {
  SubgraphCompiler one = compiler(1, 16), two = compiler(2, 16);
  auto a = one.compile(whole("a")), b = one.compile(whole("b")), other = two.compile(whole("a"));
  ASSERT_TRUE(succeeded(a) && succeeded(b) && succeeded(other));
  EXPECT_EQ(one.programs(), 1u);
  fill(*a, 1);
  fill(*b, 1);
  fill(*other, 1);
  Floats ya(kTokens, kHidden), yb(kTokens, kHidden), yo(kTokens, kHidden);
  ASSERT_TRUE(a->run({input.view()}, {ya.view()}));
  ASSERT_TRUE(b->run({input.view()}, {yb.view()}));
  ASSERT_TRUE(other->run({input.view()}, {yo.view()}));
  EXPECT_EQ(ya.data, yb.data);
  EXPECT_EQ(ya.data, yo.data);
}

TEST_F(CompiledSubgraphTest, WeightsCanBeTried) {
  SubgraphCompiler subgraphs = compiler(1, 64);
  // From gate's and up's results to the layer's, with the residual stream as a second input.
  Operation *add = layer("a").front().getTerminator()->getOperand(0).getDefiningOp();
  Subgraph subgraph{{add->getOperand(0), named("a", "gate"), named("a", "up")},
                    {add->getResult(0), named("a", "down")}};
  auto program = subgraphs.compile(subgraph);
  ASSERT_TRUE(succeeded(program));
  ASSERT_EQ(program->weights().size(), 1u);
  EXPECT_EQ(program->weights().front().global, "adown");
  Floats wide(kTokens, kUp), zero(kHidden, kUp), sum(kTokens, kHidden), down(kTokens, kHidden);
  std::fill(wide.data.begin(), wide.data.end(), 0.5f);
  fill(*program, 3);
  ASSERT_TRUE(program->run({input.view(), wide.view(), wide.view()}, {sum.view(), down.view()}));
  for (size_t i = 0; i < sum.data.size(); ++i)
    ASSERT_EQ(sum.data[i], input.data[i] + down.data[i]);
  EXPECT_NE(down.data[0], 0.0f);
  ASSERT_TRUE(program->setWeight("adown", zero.view()));
  ASSERT_TRUE(program->run({input.view(), wide.view(), wide.view()}, {sum.view(), down.view()}));
  EXPECT_EQ(sum.data, input.data);

  EXPECT_EQ(program->setWeight("aup", zero.view()).error().code, ErrorCode::NotFound);
  EXPECT_EQ(program->setWeight("adown", wide.view()).error().code, ErrorCode::InvalidArgument);
  EXPECT_FALSE(program->run({input.view()}, {sum.view(), down.view()}));
  EXPECT_FALSE(program->run({wide.view(), wide.view(), wide.view()}, {sum.view(), down.view()}));
}

/// One program for all schemes: what two linears read is rounded for one of them, or for both.
TEST_F(CompiledSubgraphTest, InputsCanBeRounded) {
  SubgraphCompiler subgraphs = compiler(2, 8);
  Value up = named("a", "up"), gate = named("a", "gate");
  Value activation = up.getDefiningOp()->getOperand(0);
  Subgraph subgraph{{activation}, {up, gate}};
  subgraph.roundings = {{up.getDefiningOp()}, {gate.getDefiningOp()}};
  auto program = subgraphs.compile(subgraph);
  ASSERT_TRUE(succeeded(program));
  fill(*program, 5);
  auto run = [&](ConstMatrix in) {
    Floats a(kTokens, kUp), b(kTokens, kUp);
    EXPECT_TRUE(program->run({in}, {a.view(), b.view()}));
    return std::pair(a.data, b.data);
  };
  const auto [plainUp, plainGate] = run(input.view());

  numerics::Scheme scheme;
  scheme.granularity = numerics::Granularity::Token;
  scheme.dynamic = true;
  Floats rounded(kTokens, kHidden);
  ASSERT_TRUE(numerics::roundTokens(input.view(), scheme, rounded.view()));
  ASSERT_NE(rounded.data, input.data);
  const auto [roundedUp, roundedGate] = run(rounded.view());
  ASSERT_NE(roundedUp, plainUp);

  const auto attribute = equant::SchemeAttr::get(&context, scheme);
  program->roundInput(1, attribute);
  EXPECT_EQ(run(input.view()), std::pair(plainUp, roundedGate));
  program->roundInput(0, attribute);
  EXPECT_EQ(run(input.view()), std::pair(roundedUp, roundedGate));
  program->roundInput(1, {});
  EXPECT_EQ(run(input.view()), std::pair(roundedUp, plainGate));
  EXPECT_EQ(subgraphs.programs(), 1u);
}

TEST_F(CompiledSubgraphTest, MissingInputIsAnError) {
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) { message = d.str(); });
  SubgraphCompiler subgraphs = compiler(1, 64);
  Subgraph subgraph{{named("a", "gate")}, {layer("a").front().getTerminator()->getOperand(0)}};
  EXPECT_TRUE(failed(subgraphs.compile(subgraph)));
  EXPECT_NE(message.find("none of its inputs"), std::string::npos) << message;
}
