//===- LinearTimerTest.cpp - What is timed --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LinearTimer.h"

#include "LinearModule.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Execution/CompiledSubgraph.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

namespace {

class LinearTimerTest : public testing::Test {
protected:
  LinearTimerTest() {
    context.loadDialect<equant::EquantDialect, func::FuncDialect, ml_program::MLProgramDialect>();
    DialectRegistry registry;
    SubgraphCompiler::getDependentDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  equant::SchemeAttr scheme(StringRef text) {
    return text.empty() ? equant::SchemeAttr()
                        : cast<equant::SchemeAttr>(
                              parseAttribute(("#equant.scheme<" + text + ">").str(), &context));
  }
  TimedLinear linear(StringRef weight, StringRef input, int64_t rows, int64_t columns) {
    return {RankedTensorType::get({rows, columns}, Float32Type::get(&context)), scheme(weight),
            scheme(input)};
  }
  /// The module of a linear, as its kernels are chosen.
  std::string fused(const TimedLinear &timed) {
    LinearModule built = LinearModule::of(UnknownLoc::get(&context), timed);
    PassManager pm(&context);
    pm.addPass(equant::createLegalizeActivations({"cpu"}));
    pm.addPass(equant::createFuseKernels({"cpu"}));
    EXPECT_TRUE(succeeded(pm.run(*built.module)));
    std::string text;
    llvm::raw_string_ostream stream(text);
    built.module->print(stream);
    return text;
  }

  MLIRContext context;
};

TEST_F(LinearTimerTest, OneKernelRotatesAndQuantizes) {
  TimedLinear timed = linear("i8, symmetric, channel, hadamard = 64",
                             "i8, symmetric, token, dynamic, hadamard = 64", 64, 128);
  std::string text = fused(timed);
  const size_t fusion = text.find("equant.fusion"), rotation = text.find("equant.hadamard"),
               codes = text.find("equant.quantize_rows"),
               product = text.find("equant.packed_linear");
  EXPECT_TRUE(fusion < rotation && rotation < codes && codes < product && product < text.size())
      << text;
  EXPECT_EQ(text.find("equant.fusion", fusion + 1), std::string::npos) << text;
  timed.comesRotated = true;
  text = fused(timed);
  EXPECT_EQ(text.find("equant.hadamard"), std::string::npos) << text;
  EXPECT_NE(text.find("equant.quantize_rows"), std::string::npos) << text;
}

TEST_F(LinearTimerTest, GroupsAndSumsAreThoseOfTheModel) {
  std::string text = fused(
      linear("i4, asymmetric, group = 64", "i8, symmetric, token, group = 32, dynamic", 64, 128));
  EXPECT_NE(text.find("!equant.rows<?x128, #equant.scheme<i8, symmetric, token, group = 32, "
                      "dynamic>, sums = 32"),
            std::string::npos)
      << text;
}

TEST_F(LinearTimerTest, EverySchemeIsTimedForBothNumbersOfRows) {
  const std::pair<StringRef, StringRef> schemes[] = {
      {"i8, symmetric, channel", ""},
      {"i4, asymmetric, group = 32", ""},
      {"i4, symmetric, group = 64, hadamard = 64", ""},
      {"i8, symmetric, channel", "i8, symmetric, token, dynamic"},
      {"i8, symmetric, channel", "i8, asymmetric, tensor"},
      {"i8, symmetric, channel, hadamard = 64", "i8, symmetric, tensor, hadamard = 64"},
      {"i5, asymmetric, group = 64, hadamard = 64", "i8, symmetric, token, dynamic, hadamard = 64"},
      {"i4, symmetric, group = 64, hadamard = 32",
       "i8, symmetric, token, group = 32, dynamic, hadamard = 32"},
      {"i8, symmetric, channel", "i8, asymmetric, token, group = 64, dynamic"},
      {"f4E2M1FN, group = 32, scale = f8E8M0FNU", ""},
      {"f8E4M3FN, channel", "f8E4M3FN, token, dynamic"},
  };
  auto timer = LinearTimer::create(/*threads=*/1);
  ASSERT_TRUE(timer) << timer.error().message;
  for (auto [weight, input] : schemes) {
    auto found =
        timer->millisecondsOf(UnknownLoc::get(&context), linear(weight, input, 96, 128), {1, 512});
    ASSERT_TRUE(succeeded(found)) << weight.str() << " | " << input.str();
    ASSERT_EQ(found->size(), 2u);
    for (double milliseconds : *found)
      EXPECT_TRUE(milliseconds > 0 && std::isfinite(milliseconds));
  }
}

} // namespace
