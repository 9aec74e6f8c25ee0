//===- Statistics.cpp - Counts of a launch, by class and by space ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Execution.h"

using namespace easyquant;
using namespace easyquant::simt;

const char *simt::nameOf(OpClass opClass) {
  static constexpr const char *names[] = {
      "integer", "float32", "float16",     "float64",    "convert", "compare", "move",
      "control", "load",    "store",       "atomic",     "barrier", "fence",   "shuffle",
      "dot",     "matrix",  "matrix_move", "async_copy", "special"};
  return names[static_cast<unsigned>(opClass)];
}

const char *simt::nameOf(Finding::Kind kind) {
  static constexpr const char *names[] = {"out of bounds",
                                          "misaligned access",
                                          "uninitialised read",
                                          "race",
                                          "asynchronous copy",
                                          "divergent barrier",
                                          "deadlock",
                                          "write to constant memory",
                                          "trap",
                                          "instruction limit",
                                          "bad operand"};
  return names[kind];
}

static const char *nameOf(Space space) {
  static constexpr const char *names[] = {"parameter", "parameter", "global", "constant",
                                          "shared",    "local",     "generic"};
  return names[static_cast<unsigned>(space)];
}

Statistics Launch::statistics() const {
  Statistics result;
  result.barriers = barriersCompleted;
  result.divergentBranches = divergentBranches;
  result.blocks = uint64_t(options.grid[0]) * options.grid[1] * options.grid[2];
  result.threads = result.blocks * options.block[0] * options.block[1] * options.block[2];
  result.sharedBytes = decoded.staticSharedBytes + options.dynamicSharedBytes;
  result.localBytesPerThread = localBytesPerThread;
  for (size_t pc = 0; pc < decoded.code.size(); ++pc) {
    const Counters &c = perInstruction[pc];
    const Instruction &i = decoded.code[pc];
    if (!c.issued)
      continue;
    result.warpInstructions += c.issued;
    result.laneInstructions += c.lanes;
    result.byClass[nameOf(i.opClass)] += c.issued;
    if (c.requests) {
      const char *verb = i.opClass == OpClass::Load         ? "load"
                         : i.opClass == OpClass::Store      ? "store"
                         : i.opClass == OpClass::Atomic     ? "atomic"
                         : i.opClass == OpClass::MatrixMove ? "matrix"
                         : i.opClass == OpClass::Async      ? "async"
                                                            : "other";
      Statistics::Traffic &t = result.traffic[fmt::format("{} {}", ::nameOf(i.space), verb)];
      t.requests += c.requests;
      t.bytes += c.bytes;
      t.sectors += c.sectors;
      t.wavefronts += c.wavefronts;
      t.conflicts += c.conflicts;
    }
    result.instructions.push_back({i.line, decoded.module->line(i.line), nameOf(i.opClass),
                                   c.issued, c.lanes, c.requests, c.bytes, c.sectors, c.wavefronts,
                                   c.conflicts});
  }
  return result;
}

Json::Object Statistics::toJson() const {
  Json::Object accesses;
  for (const auto &[name, t] : traffic)
    accesses[name] = Json::Object{
        {"requests", t.requests},
        {"bytes", t.bytes},
        {"sectors", t.sectors},
        {"sectors_per_request", t.requests ? double(t.sectors) / double(t.requests) : 0.0},
        {"wavefronts", t.wavefronts},
        {"bank_conflicts", t.conflicts}};
  Json::Array lines;
  for (const InstructionStatistics &i : instructions) {
    Json::Object entry{{"line", i.line},
                       {"text", i.text},
                       {"class", i.opClass},
                       {"issued", i.issued},
                       {"lanes", i.lanes}};
    if (i.requests)
      entry.merge(Json::Object{{"requests", i.requests},
                               {"bytes", i.bytes},
                               {"sectors", i.sectors},
                               {"wavefronts", i.wavefronts},
                               {"bank_conflicts", i.conflicts}});
    lines.push_back(std::move(entry));
  }
  return {{"blocks", blocks},
          {"threads", threads},
          {"warp_instructions", warpInstructions},
          {"lane_instructions", laneInstructions},
          {"lanes_per_instruction",
           warpInstructions ? double(laneInstructions) / double(warpInstructions) : 0.0},
          {"divergent_branches", divergentBranches},
          {"barriers", barriers},
          {"shared_bytes", sharedBytes},
          {"local_bytes_per_thread", localBytesPerThread},
          {"instructions_by_class", Json::Object(byClass.begin(), byClass.end())},
          {"traffic", std::move(accesses)},
          {"instructions", std::move(lines)}};
}
