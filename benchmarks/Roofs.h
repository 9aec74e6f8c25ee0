//===- Roofs.h - What the machine could do at best --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A roof is measured, never looked up: clocks and memory of shared machines drift within minutes,
// so that only ratios taken within one run mean anything.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_BENCHMARKS_ROOFS_H
#define EASYQUANT_BENCHMARKS_ROOFS_H

#include <cstddef>
#include <string>

namespace easyquant::bench {

enum class Roof {
  FmaAvx2,   ///< vfmadd231ps, 256 bits
  Fma512,    ///< vfmadd231ps, 512 bits
  MaddWd,    ///< vpmaddwd + vpaddd, 256 bits
  MaddUbs,   ///< vpmaddubsw + vpaddw, 256 bits
  DpBusd512, ///< vpdpbusd, 512 bits
  DpBf16,    ///< vdpbf16ps, 512 bits
  Read,      ///< reading memory
};
const char *toString(Roof roof);
/// Does this CPU have the instruction?
bool isHere(Roof roof);

/// Operations a second (a multiply-add is two) of independent chains in registers, on `threads`
/// threads at once; about 10 ms.
double measureOperations(Roof roof, int threads);
/// Bytes a second that `threads` threads read from `bytes` bytes at `data`, each its own part.
double measureRead(const void *data, size_t bytes, int threads);

/// Seconds on the clock of measurements with that many threads: one thread is timed by the
/// processor time that it got, so that a busy machine does not count against it; more by the wall.
double now(int threads);

/// "AMD EPYC 7R13" or the like, from /proc/cpuinfo.
std::string cpuModel();

} // namespace easyquant::bench

#endif // EASYQUANT_BENCHMARKS_ROOFS_H
