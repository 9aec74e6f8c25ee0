//===- DescribeTest.cpp - Kernels are as they are described ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Codegen/CPU/Team.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace easyquant::cpu;

namespace {

class DescribeTest : public testing::Test {
protected:
  DescribeTest() {
    context
        .loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect,
                     memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
    module = ModuleOp::create(UnknownLoc::get(&context));
  }

  /// The names of the parameters of a spec's kernel, which the function has, "=" before those that
  /// are written.
  template <typename Spec>
  std::string parametersOf(func::FuncOp (*emit)(ModuleOp, const Spec &, const Target &),
                           const Spec &spec) {
    Description kernel = describe(spec, &context);
    func::FuncOp function = emit(*module, spec, Target{});
    EXPECT_EQ(function.getSymName(), kernel.name);
    EXPECT_EQ(symbolName(spec), kernel.name);
    SmallVector<Type> types;
    std::set<std::string> names;
    std::string text;
    for (const Parameter &parameter : kernel.parameters) {
      types.push_back(parameter.type);
      names.insert(parameter.name);
      text +=
          (text.empty() ? "" : " ") + std::string(parameter.written ? "=" : "") + parameter.name;
      EXPECT_TRUE(isa<MemRefType>(parameter.type) || (!parameter.written && !parameter.shared));
    }
    Team::appendTypes(&context, types);
    EXPECT_EQ(SmallVector<Type>(function.getArgumentTypes()), types);
    EXPECT_EQ(names.size(), kernel.parameters.size());
    return text;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(DescribeTest, RowOps) {
  RowSpec norm{RowOp::LayerNorm, 8, 1e-5};
  EXPECT_EQ(parametersOf(getOrEmitRowOp, norm), "x weight bias =y");
  norm.quantization = RowQuantization::Static;
  norm.zeroPoints = true;
  EXPECT_EQ(parametersOf(getOrEmitRowOp, norm),
            "x weight bias scale zero =codes =scales =sums =zeros");
  RowSpec online{RowOp::SiluMul, 8};
  online.quantization = RowQuantization::Online;
  online.stateFields = 2;
  EXPECT_EQ(parametersOf(getOrEmitRowOp, online),
            "gate up state sequences first =codes =scales =sums =extrema");
  RowSpec given{RowOp::Quantize, 8};
  given.absMaxGiven = true;
  EXPECT_EQ(parametersOf(getOrEmitRowOp, given), "x absmax =codes =scales =sums");
  EXPECT_EQ(parametersOf(getOrEmitRowGradient, {RowOp::RmsNorm, 8, 8, 1e-5}), "dy x weight =dx");
  EXPECT_EQ(parametersOf(getOrEmitRowGradient, {RowOp::SiluMul, 8}), "dy gate up =dgate =dup");
  EXPECT_EQ(parametersOf(getOrEmitHeadNorm, {2, 4, 1e-5}), "=x weight");
  EXPECT_EQ(parametersOf(getOrEmitMaskClusters, {12, 4, 2}), "=logits scores clusters");
  EXPECT_EQ(parametersOf(getOrEmitRope, {2, 4, 16}), "=x table sequences");
  EXPECT_EQ(parametersOf(getOrEmitConv1d, {8, 3, 64, /*bias=*/true}),
            "x w bias =state first sequences =y");
  EXPECT_EQ(parametersOf(getOrEmitGatedDelta, {1, 8, 2, 8, /*tiled=*/false, 128}),
            "q k v decay beta log_rate bias =state first sequences =y");
  EXPECT_EQ(parametersOf(getOrEmitAdvance, {2, 0, 0.5}), "extrema =state sequences");
}

TEST_F(DescribeTest, Linears) {
  LinearSpec spec{8, 16};
  EXPECT_EQ(parametersOf(getOrEmitLinear, spec), "x w =y =scratch");
  spec.weights = WeightFormat::I4;
  spec.groupSize = 8;
  spec.zeroPoints = spec.quantizedInput = spec.inputZeroPoints = spec.bias = true;
  EXPECT_EQ(parametersOf(getOrEmitLinear, spec),
            "codes scales sums zeros w wscales wzeros wsums bias =y =scratch");
  LinearSpec sums{8, 16, WeightFormat::I8, 0, /*quantizedInput=*/true};
  sums.sums = true;
  EXPECT_EQ(parametersOf(getOrEmitLinear, sums), "codes sums w =y =scratch");
  LinearSpec table{8, 16, WeightFormat::I4};
  table.numbers = {CodeFormat::Table, ScaleFormat::F32, /*outer=*/true};
  EXPECT_EQ(parametersOf(getOrEmitLinear, table), "x w wscales wouter codebook =y =scratch");
  EXPECT_EQ(parametersOf(getOrEmitRescale, {8, {}, /*bias=*/true}), "sums scales wscales bias =y");
  EmbeddingSpec embedding{40, 16, WeightFormat::I8};
  embedding.sharded = true;
  EXPECT_EQ(parametersOf(getOrEmitEmbedding, embedding), "tokens w wscales rank =y");
}

TEST_F(DescribeTest, AttentionSharesRowsUntilItsThreadsMeet) {
  auto sharedBy = [&](const AttentionSpec &spec) {
    Description kernel = describe(spec, &context);
    std::string text = kernel.meets ? "meets:" : "";
    for (const Parameter &parameter : kernel.parameters)
      if (parameter.shared)
        text += " " + parameter.name;
    return text;
  };
  AttentionSpec spec{4, 2, 16, 0.25};
  EXPECT_EQ(parametersOf(getOrEmitAttention, spec),
            "q k v =cache pages sequences layer =y =scratch");
  EXPECT_EQ(sharedBy(spec), "meets: k v");
  AttentionSpec rotating = spec;
  rotating.positions = 32;
  EXPECT_EQ(parametersOf(getOrEmitAttention, rotating),
            "=q =k v =cache pages sequences layer table =y =scratch");
  EXPECT_EQ(sharedBy(rotating), "meets: q k v");
  AttentionSpec codes = spec;
  codes.kv = KVQuantization{4, 16, 16, 4};
  EXPECT_EQ(parametersOf(getOrEmitAttention, codes),
            "q k v =cache pages sequences layer window windows =y =scratch");
  EXPECT_EQ(sharedBy(codes), "");
}

} // namespace
