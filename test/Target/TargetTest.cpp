//===- TargetTest.cpp - The registry of targets ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Target/Target.h"

#include "easyquant/Codegen/GPU/Chip.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/GPU/GPUTarget.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::targets;

namespace {
class TargetTest : public testing::Test {
protected:
  TargetTest() {
    for (int i = 0; i < 2; ++i) { // the second time changes nothing
      cpu::registerTarget();
      gpu::registerTarget();
    }
  }
};
} // namespace

TEST_F(TargetTest, HasEveryFamilyOnce) {
  ASSERT_EQ(families().size(), 2u);
  EXPECT_EQ(families()[0]->name, "cpu");
  EXPECT_EQ(families()[1]->name, "gpu");
  EXPECT_EQ(families()[0]->names,
            (std::vector<std::string>{"avx2", "avx512vnni", "neon-dot", "neon-i8mm"}));
  ASSERT_EQ(families()[1]->names.size(), gpu::chips().size());
  EXPECT_EQ(families()[1]->names.front(), gpu::chips().front().name);
}

TEST_F(TargetTest, FindsFamiliesByTheirTargets) {
  EXPECT_EQ(findFamily("avx512vnni").value(), findFamily("cpu").value());
  EXPECT_EQ(findFamily("sm_90a").value(), findFamily("gpu").value());
  for (const char *processor : {"x86_64", "aarch64"}) // as they are asked for
    EXPECT_EQ(findFamily(processor).value(), findFamily("cpu").value());
  auto unknown = findFamily("sm_90");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(unknown.error().message,
            "unknown target 'sm_90'; expected cpu, x86_64, aarch64, avx2, avx512vnni, neon-dot, "
            "neon-i8mm, gpu, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_120a; did you mean 'sm_90a'?");
  std::vector<const Family *> both = {families()[1], families()[0]};
  EXPECT_EQ(findFamilies({"sm_80", "cpu", "sm_86", "avx2", "aarch64"}).value(), both);
  EXPECT_EQ(findFamilies({}).value(), std::vector{families()[0]});
  EXPECT_FALSE(findFamilies({"cpu", "tpu"}));
}

TEST_F(TargetTest, ReadsRequests) {
  auto requests = parseRequests("sm_90a,cpu,sm_80,sm_90a").value();
  ASSERT_EQ(requests.size(), 2u); // in the order of families, targets in that of the text
  EXPECT_EQ(requests[0].family->name, "cpu");
  EXPECT_EQ(requests[0].targets, (std::vector<std::string>{"avx2", "avx512vnni"}));
  EXPECT_EQ(requests[1].family->name, "gpu");
  EXPECT_EQ(requests[1].targets, (std::vector<std::string>{"sm_90a", "sm_80"}));
  auto processors = parseRequests("aarch64,cpu,x86_64").value();
  ASSERT_EQ(processors.size(), 1u);
  EXPECT_EQ(processors[0].targets,
            (std::vector<std::string>{"neon-dot", "neon-i8mm", "avx2", "avx512vnni"}));
  // Chips are asked for one by one, instruction sets by their processor.
  for (const char *text : {"gpu", "avx2", "neon-dot", "", "cpu,", "cpu, sm_80", "CPU"})
    EXPECT_FALSE(parseRequests(text)) << text;
}

TEST_F(TargetTest, ChecksInstructionSets) {
  const Family &cpus = *families()[0];
  auto check = [&](std::vector<std::string> isas, const char *request) {
    recipe::OptionValues options;
    options.set(recipe::option::isas, std::move(isas));
    return cpus.checkOptions(options, parseRequests(request).value().front().targets, "W8A8")
        .value_or("");
  };
  EXPECT_EQ(check({}, "cpu,aarch64"), "");
  EXPECT_EQ(check({"avx2"}, "cpu"), "");
  EXPECT_EQ(check({"avx2", "neon-dot"}, "cpu,aarch64"), "");
  EXPECT_EQ(check({"sve"}, "aarch64"),
            "unknown instruction set 'sve'; expected avx2 or avx512vnni or neon-dot or neon-i8mm");
  EXPECT_EQ(check({"neon-dot"}, "cpu"), "instruction set 'neon-dot' goes with --target aarch64");
  EXPECT_EQ(check({"avx2"}, "cpu,aarch64"),
            "--isa avx2: expected one of aarch64, too: neon-dot or neon-i8mm");
}

TEST_F(TargetTest, SaysWhichKernelsThereAre) {
  mlir::MLIRContext context;
  context.loadDialect<equant::EquantDialect>();
  auto scheme = [&](int bits, int64_t group) {
    numerics::Scheme numbers;
    numbers.bits = bits;
    numbers.granularity = numerics::Granularity::Group;
    numbers.groupSize = group;
    return equant::SchemeAttr::get(&context, numbers);
  };
  const Family &cpus = *families()[0], &gpus = *families()[1];
  EXPECT_EQ(whyNoKernel(cpus, 64, 64, scheme(5, 8), {}), "");
  EXPECT_EQ(whyNoKernel(gpus, 64, 64, scheme(4, 32), {}), "");
  EXPECT_EQ(whyNoKernel(gpus, 64, 64, scheme(5, 32), {}), "");
  EXPECT_NE(whyNoKernel(gpus, 64, 64, scheme(5, 8), {}).find("16 or multiples of 32"),
            std::string::npos);
  EXPECT_NE(whyNoKernel(cpus, 64, 64, scheme(4, 4), {}).find("multiples of 8"), std::string::npos);
  EXPECT_EQ(otherFamily(gpus, 64, 64, scheme(5, 8), {}), "; compile it with --target cpu");
  EXPECT_EQ(otherFamily(gpus, 64, 64, scheme(4, 4), {}), ""); // which no family takes
}
