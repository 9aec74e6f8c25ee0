//===- ArgumentsTest.cpp - Arguments find their parameters ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include "easyquant/Codegen/CPU/Kernels.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace easyquant;

namespace {

class ArgumentsTest : public testing::Test {
protected:
  ArgumentsTest() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect, launch::LaunchDialect,
                        memref::MemRefDialect, ml_program::MLProgramDialect>();
    module = parseSourceString<ModuleOp>(
        "func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>) -> tensor<?x8xf32> {"
        "  return %a : tensor<?x8xf32>"
        "}",
        &context);
    function = module->lookupSymbol<func::FuncOp>("f");
    program.emplace(*module);
    builder.emplace(*program, function, "step");
    x = (*builder)[function.getArgument(0)];
    y = (*builder)[function.getArgument(1)];
    kernel.name = "gelu_8";
    kernel.parameters = {{"x", x.getType()}, {"y", y.getType(), /*written=*/true}};
  }

  /// What is said while the operands of `kernel` are made; "" if nothing is.
  std::string errorOf(Arguments &arguments) {
    std::string text;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      text += diagnostic.str();
      return success();
    });
    bool isWhole = succeeded(arguments.of(function, kernel)) &&
                   succeeded(arguments.checkTaken(function, kernel));
    EXPECT_EQ(isWhole, text.empty());
    return text;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  std::optional<LaunchModule> program;
  std::optional<LaunchBuilder> builder;
  Value x, y;
  cpu::Description kernel;
};

TEST_F(ArgumentsTest, AreInTheOrderOfTheParameters) {
  Arguments arguments(*builder);
  arguments.set("y", y);
  arguments.set("x", x);
  arguments.set("bias", nullptr);
  EXPECT_EQ(errorOf(arguments), "");
  FailureOr<SmallVector<Value>> operands = arguments.of(function, kernel);
  ASSERT_TRUE(succeeded(operands));
  EXPECT_EQ(*operands, (SmallVector<Value>{x, y}));
}

TEST_F(ArgumentsTest, AreAllGiven) {
  Arguments arguments(*builder);
  arguments.set("x", x);
  EXPECT_EQ(errorOf(arguments),
            "'func.func' op its kernel gelu_8 takes 'y', which no operand gives");
}

TEST_F(ArgumentsTest, AreAllTaken) {
  Arguments arguments(*builder);
  for (const char *name : {"x", "y", "weight"})
    arguments.set(name, x);
  EXPECT_EQ(errorOf(arguments),
            "'func.func' op gives 'weight', which its kernel gelu_8 does not take");
}

TEST_F(ArgumentsTest, KnowRowsAndStrides) {
  Type index = IndexType::get(&context);
  kernel.parameters = {{"x", x.getType()}, {"x_stride", index}, {"rows", index}};
  Arguments arguments(*builder);
  arguments.set("x", builder->result(function.getArgument(1), builder->rows(x)));
  FailureOr<SmallVector<Value>> operands = arguments.of(function, kernel);
  ASSERT_TRUE(succeeded(operands));
  EXPECT_EQ(operands->back(), builder->rows(x));
  auto stride = (*operands)[1].getDefiningOp<arith::ConstantIndexOp>();
  ASSERT_TRUE(stride);
  EXPECT_EQ(stride.value(), 8);
}

TEST_F(ArgumentsTest, AreWrittenAsTheKernelSays) {
  LaunchBuilder::Access access = accessOf(function, kernel);
  EXPECT_EQ(access.writes, (SmallVector<int64_t>{1}));
  EXPECT_EQ(function->getAttr(launch::kParametersAttr),
            Builder(&context).getStrArrayAttr({"x", "y"}));
  EXPECT_EQ(function->getAttr(launch::kWritesAttr), Builder(&context).getDenseI64ArrayAttr({1}));
}

} // namespace
