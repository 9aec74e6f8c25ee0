//===- LaunchListTest.cpp - A model as a list of launches -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/LaunchList.h"

#include "TestFiles.h"

#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

using namespace easyquant;
using namespace easyquant::formats;
using nlohmann::json;

namespace {

using Kind = LaunchArgument::Kind;
using Parameter = LaunchKernel::Parameter;
constexpr int64_t kWeights = 4096;

LaunchList goodList() {
  LaunchList list;
  list.maxRows = 512;
  list.arenaBytes = 1 << 20;
  list.stateBytes = 64;
  list.partialBytes = 544;
  list.partialCounters = 2;
  list.pieces = {{1, 8, 5, 256, 0, 0}, {9, 0, 21, 0, -28, 100}};
  list.cache = {64, 4096, 128};
  list.constants = {std::byte(0x00), std::byte(0x7f), std::byte(0xff)};
  list.kernels = {{"norm",
                   {Parameter::Pointer, Parameter::Pointer, Parameter::I32},
                   {{{1, 1}, {1, 0}, {1, 0}}},
                   128,
                   0},
                  {"cut", {Parameter::F32}, {{{4, 16}, {3, 0}, {1, 0}}}, 256, 4096}};
  for (auto [name, pointers, numbers] : {std::tuple("keep", 3, 3), std::tuple("change", 2, 1),
                                         std::tuple("weigh", 6, 1), std::tuple("choose", 7, 1)}) {
    LaunchKernel kernel = {name, {}, {{{1, 1}, {2, 0}, {1, 0}}}, 256, 0};
    kernel.parameters.assign(pointers, Parameter::Pointer);
    kernel.parameters.insert(kernel.parameters.end(), numbers, Parameter::I32);
    list.kernels.push_back(kernel);
  }
  list.choosing = {2, 3, 4, 5};
  using enum Parameter;
  list.kernels.push_back(
      {"gather", {Pointer, I32, Pointer, Pointer, I32, I32}, {{{1, 1}, {1, 0}, {1, 0}}}, 128, 0});
  list.drafting = {6,
                   /*fixedPosition=*/true,
                   {{"mtp.norm",
                     Phase::Other,
                     0,
                     Launch::Over::Rows,
                     1,
                     0,
                     {{Kind::Hidden}, {Kind::NextHidden}, {Kind::Rows}}}}};
  list.launches = {{"a.norm",
                    Phase::Quantize,
                    0,
                    Launch::Over::LogitRows,
                    1,
                    8,
                    {{Kind::Weights, 64}, {Kind::LogitRows}, {Kind::Rows}}},
                   {"b",
                    Phase::Attention,
                    0,
                    Launch::Over::Pieces,
                    1,
                    0,
                    {{Kind::Cache, 2048}, {Kind::Pieces, 1}, {Kind::Integer, 0, -5}}},
                   {"c",
                    Phase::Gemm,
                    0,
                    Launch::Over::Rows,
                    1,
                    0,
                    {{Kind::Arena, 4096}, {Kind::State}, {Kind::Rows}},
                    /*collective=*/std::nullopt,
                    /*multiple=*/8,
                    /*result=*/{{0, 4}}},
                   {"d",
                    Phase::Comm,
                    0,
                    Launch::Over::Rows,
                    1,
                    0,
                    {{Kind::Arena, 8192}},
                    /*collective=*/0},
                   {"e",
                    Phase::Comm,
                    0,
                    Launch::Over::LogitRows,
                    1,
                    0,
                    {{Kind::Logits}},
                    /*collective=*/1}};
  list.collectives = {{CollectiveCall::AllReduce, Reduction::Sum, "i32", 64, "d"},
                      {CollectiveCall::AllGather, std::nullopt, "f32", 96, "e"}};
  list.restore = {{"b",
                   Phase::Other,
                   0,
                   Launch::Over::Rows,
                   1,
                   0,
                   {{Kind::Constants, 2}, {Kind::Pages}, {Kind::Rows}}}};
  return list;
}

json goodDocument() {
  return json::parse(launchListText({{"sm_80", goodList()}, {"sm_90a", goodList()}}));
}

Result<LaunchList> parse(const json &document, const std::string &chip = "sm_80") {
  return parseLaunchList(document.dump(), "p.json", chip, kWeights);
}

TEST(LaunchList, IsReadAsItWasWritten) {
  Result<LaunchList> list = parse(goodDocument());
  ASSERT_VALUE(list);
  EXPECT_EQ(*list, goodList());
  const json launches = goodDocument()["chips"]["sm_80"]["launches"];
  EXPECT_EQ(launches[0]["over"], "logit_rows");
  EXPECT_EQ(launches[0]["arguments"],
            json::parse(R"([["weights", 64], ["logit_rows"], ["rows"]])"));
  EXPECT_EQ(launches[1]["over"], "pieces");
  EXPECT_EQ(launches[1]["arguments"],
            json::parse(R"([["cache", 2048], ["pieces", 1], ["i32", -5]])"));
  EXPECT_EQ(launches[2]["multiple"], 8);
  EXPECT_FALSE(launches[1].contains("multiple"));
  EXPECT_EQ(launches[2]["result"], json::parse("[0, 4]"));
  EXPECT_FALSE(launches[1].contains("result"));
  EXPECT_EQ(launches[3]["collective"], 0);
  EXPECT_FALSE(launches[3].contains("kernel"));
}

TEST(LaunchList, NeedNotChooseTokens) {
  LaunchList plain = goodList();
  plain.choosing = std::nullopt;
  plain.drafting = std::nullopt; // which chooses, too
  const json document = json::parse(launchListText({{"sm_80", plain}}));
  EXPECT_TRUE(document["chips"]["sm_80"]["choosing"].is_null());
  EXPECT_TRUE(document["chips"]["sm_80"]["drafting"].is_null());
  Result<LaunchList> list = parse(document);
  ASSERT_VALUE(list);
  EXPECT_EQ(*list, plain);
}

TEST(LaunchList, KnowsItsGrid) {
  LaunchKernel cut = goodList().kernels[1];
  EXPECT_EQ(cut.gridFor(1), (std::array<uint32_t, 3>{4, 3, 1}));
  EXPECT_EQ(cut.gridFor(33), (std::array<uint32_t, 3>{12, 3, 1}));
}

TEST(LaunchList, NamesAChipThatIsNotThere) {
  EXPECT_ERROR(parse(goodDocument(), "sm_75"), ErrorCode::NotFound,
               "p.json: has no program for sm_75");
}

TEST(LaunchList, RefusesAnotherVersion) {
  json document = goodDocument();
  for (int version : {4, 5, 6, 8}) {
    document["format_version"] = version;
    EXPECT_ERROR(parse(document), ErrorCode::Unsupported,
                 "p.json: format_version: found " + std::to_string(version) + ", expected 7",
                 "recompile");
  }
}

TEST(LaunchList, RefusesWhatDoesNotFit) {
  struct Case {
    const char *pointer;
    json value;
    std::string_view message;
  };
  const Case cases[] = {
      {"/max_rows", 0, "max_rows: found 0"},
      {"/arena_bytes", -1, "arena_bytes: found -1"},
      {"/constants", "0g", "constants: found \"0g\", expected bytes as lower-case hex digits"},
      {"/kernels/0/parameters/1", "i64",
       "kernels[0].parameters[1]: found \"i64\", expected \"pointer\", \"i32\" or \"f32\""},
      {"/kernels/0/threads", 2048, "kernels[0].threads: found 2048"},
      {"/kernels/0/shared_bytes", 1 << 20, "kernels[0].shared_bytes: found"},
      {"/kernels/0/grid/1", json::array({70000, 0}), "kernels[0].grid[1]: found 70000 x 1 blocks"},
      {"/kernels/0/grid/1", json::array({64, 1}),
       "launches[2].kernel.grid[1]: found 64 x 4096 blocks"},
      {"/launches/2/multiple", 0, "launches[2].multiple: found 0"},
      {"/drafting/gather", 2,
       "drafting.gather: found 2, expected one of the 7 kernels that gathers"},
      {"/drafting/launches/0/kernel", 9, "drafting.launches[0].kernel: found 9"},
      {"/drafting/launches/0/arguments/0", json::array({"recurrent"}),
       "drafting.launches[0].arguments: found [\"recurrent\"], expected what the head has"},
      {"/launches/2/result", json::array({2, 4}), "launches[2].result: found 2"},
      {"/launches/2/result", json::array({0, 1 << 20}), "launches[2].result: found 0"},
      {"/launches/2/multiple", 5000, "launches[2].multiple: found 5000"},
      {"/max_rows", 1 << 30,
       "launches[2].multiple: found 8, expected no more than 2^31 - 1 rows in a step of "
       "1073741824"},
      {"/launches/3/multiple", 2, "launches[3].multiple: found 2, expected none of a collective"},
      {"/kernels/0/grid/0", json::array({0, 0}), "kernels[0].grid[0]: found 0 x 1 blocks"},
      {"/kernels/0/grid", json::array({1}),
       "kernels[0].grid: found an array, expected an array of 3"},
      {"/launches/0/kernel", 7, "launches[0].kernel: found 7, expected one of the 7 kernels"},
      {"/launches/0/kernel", 1, "launches[0].arguments: found 3, expected the 1 that cut takes"},
      {"/launches/0/phase", "sleep", "launches[0].phase: found \"sleep\""},
      {"/launches/0/over", "row",
       "launches[0].over: found \"row\", expected \"rows\", \"logit_rows\" or \"pieces\""},
      {"/launches/1/over", "rows",
       "launches[1].over: found rows, expected pieces where it takes some, which are of one cut; "
       "it takes 1"},
      {"/restore/0/over", "pieces", "restore[0].over: found pieces, expected pieces where"},
      {"/launches/1/arguments/1", json::array({"pieces", 2}),
       "launches[1].arguments[1]: found [\"pieces\",2], expected a place inside"},
      {"/launches/1/arguments/1", json::array({"arena", 0, 256}),
       "launches[1].arguments[1]: found [\"arena\",0,256], expected where"},
      {"/pieces/0/min_rows", 0, "pieces[0].min_rows: found 0"},
      {"/pieces/1/origin", 1, "pieces[1].origin: found 1"},
      {"/partial_counters", -1, "partial_counters: found -1"},
      {"/partial_counters", 1 << 21, "partial_counters: found 2097152"},
      {"/partial_bytes", int64_t(1) << 31, "partial_bytes: found 2147483648"},
      {"/launches/0/arguments/0", json::array({"weights", kWeights}),
       "launches[0].arguments[0]: found [\"weights\",4096], expected a place inside"},
      {"/launches/0/arguments/0", json::array({"weights", -1}),
       "launches[0].arguments[0]: found [\"weights\",-1], expected where"},
      {"/launches/0/arguments/0", json::array({"tokens", 1}),
       "launches[0].arguments[0]: found [\"tokens\",1], expected where"},
      {"/launches/0/arguments/0", json::array({"rows"}),
       "launches[0].arguments[0]: found [\"rows\"], expected what its kernel takes"},
      {"/launches/1/arguments/0", json::array({"cache", 4096}), "launches[1].arguments[0]: found"},
      {"/launches/1/arguments/2", json::array({"i32"}),
       "launches[1].arguments[2]: found [\"i32\"]"},
      {"/restore/0/arguments/0", json::array({"constants", 3}), "restore[0].arguments[0]: found"},
      {"/launches/3/collective", 2, "launches[3].collective: found 2, expected one of the 2"},
      {"/launches/3/over", "pieces", "launches[3].over: found pieces, expected rows"},
      {"/launches/3/arguments", json::array(), "launches[3].arguments: found 0, expected the one"},
      {"/launches/3/arguments/0", json::array({"weights", 0}),
       "launches[3].arguments[0]: found [\"weights\"], expected logits to be gathered, or rows"},
      {"/launches/3/arguments/0", json::array({"arena", (1 << 20) - 512 * 64 * 4 + 16}),
       "launches[3].arguments[0]: found"},
      {"/launches/4/arguments/0", json::array({"arena", 0}), "launches[4].arguments[0]: found"},
      {"/collectives/0/columns", std::numeric_limits<int32_t>::max(),
       "launches[3].arguments[0]: found"},
      {"/choosing/keep", 3,
       "choosing.keep: found 3, expected one of the 7 kernels that takes 3 pointers and 3 i32"},
      {"/choosing/change", 2,
       "choosing.change: found 2, expected one of the 7 kernels that takes 2 pointers and 1 i32"},
      {"/choosing/weigh", 7, "choosing.weigh: found 7, expected one of the 7 kernels"},
      {"/choosing/choose", 1, "choosing.choose: found 1, expected one of the 7 kernels"},
      {"/choosing/choose", -1, "choosing.choose: found -1"},
      {"/collectives/0/columns", 0, "collectives[0].columns: found 0"},
      {"/collectives/1/call", "gather", "collectives[1].call: found \"gather\""},
  };
  for (const Case &wrong : cases) {
    SCOPED_TRACE(wrong.pointer);
    json document = goodDocument();
    document["chips"]["sm_80"][json::json_pointer(wrong.pointer)] = wrong.value;
    EXPECT_ERROR(parse(document), ErrorCode::Corrupt, "p.json: chips.sm_80.", wrong.message);
    EXPECT_TRUE(parse(document, "sm_90a")) << "the other chip's program is whole";
  }
}

} // namespace
