//===- Collective.h - What ranks exchange in a step -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_COLLECTIVE_H
#define EASYQUANT_FORMATS_COLLECTIVE_H

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace easyquant::formats {

enum class CollectiveCall { AllReduce, AllGather };
inline constexpr const char *kCollectiveCallNames[] = {"all_reduce", "all_gather"};
constexpr std::span<const char *const> namesOf(CollectiveCall) { return kCollectiveCallNames; }

/// What an AllReduce combines numbers by.
enum class Reduction { Sum, Max, Min };
inline constexpr const char *kReductionNames[] = {"sum", "max", "min"};
constexpr std::span<const char *const> namesOf(Reduction) { return kReductionNames; }

/// An exchange among ranks that a program asks of its caller: model.so by services
/// (Formats/Step.h), a launch list between launches.
struct Collective {
  CollectiveCall call = CollectiveCall::AllReduce;
  std::optional<Reduction> reduction; ///< of an AllReduce
  std::string type;                   ///< of elements: "f32", "i32"
  int64_t columns = 0;                ///< elements of a row, of all ranks together
  std::string site;
  bool operator==(const Collective &) const = default;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_COLLECTIVE_H
