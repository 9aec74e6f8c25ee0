//===- Snippet.h - Single instructions run on many operands --- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_SIMT_SNIPPET_H
#define EASYQUANT_TEST_SIMT_SNIPPET_H

#include "easyquant/Simt/Simt.h"

#include <gtest/gtest.h>

#include <random>

namespace easyquant::simt {

/// A module from a body of PTX lines and what stands before the kernel.
inline std::string moduleText(const std::string &kernel, const std::string &before = "") {
  return ".version 8.6\n.target sm_90\n.address_size 64\n" + before + kernel;
}

/// A kernel `k` of these parameters and lines.
inline std::string kernelText(const std::string &parameters, const std::string &body) {
  return ".visible .entry k(" + parameters + ")\n{\n" + body + "\nret;\n}\n";
}

template <typename T>
uint64_t upload(Device &device, const std::vector<T> &values, std::string name) {
  uint64_t address = device.allocate(values.size() * sizeof(T), std::move(name)).value();
  EXPECT_TRUE(device.copyIn(address, values.data(), values.size() * sizeof(T)));
  return address;
}

template <typename T>
std::vector<T> download(const Device &device, uint64_t address, size_t count) {
  std::vector<T> values(count);
  EXPECT_TRUE(device.copyOut(values.data(), address, count * sizeof(T)));
  return values;
}

inline LaunchReport run(Device &device, const std::string &text, const LaunchOptions &options,
                        const Arguments &arguments) {
  LaunchOptions limited = options; // a test that fails shall not hang
  limited.maxInstructions = options.maxInstructions ? options.maxInstructions : 10'000'000;
  auto module = Module::parse(text, "test.ptx");
  if (!module) {
    ADD_FAILURE() << module.error().message;
    return {};
  }
  auto report = launch(device, *module, "k", limited, arguments);
  if (!report) {
    ADD_FAILURE() << report.error().message;
    return {};
  }
  return *report;
}

inline std::string messages(const LaunchReport &report) {
  std::string all;
  for (const Finding &finding : report.findings)
    all += finding.message + "\n";
  return all;
}

/// Runs `lines` once per element: %a, %b, %c hold the elements, %d is the result. Also %p, %q are
/// predicates, %t, %u, %v are .b32.
template <typename D, typename A, typename B = A, typename C = B>
std::vector<D> perElement(const std::string &lines, const std::vector<A> &a,
                          const std::vector<B> &b = {}, const std::vector<C> &c = {}) {
  Device device;
  size_t count = a.size();
  uint64_t out = device.allocate(count * sizeof(D), "out").value();
  Arguments arguments;
  arguments.add(out).add(upload(device, a, "a"));
  arguments.add(b.empty() ? out : upload(device, b, "b"))
      .add(c.empty() ? out : upload(device, c, "c"));
  arguments.add(static_cast<uint32_t>(count));
  auto bits = [](size_t bytes) { return ".b" + std::to_string(8 * bytes) + " "; };
  auto load = [&](const char *name, const char *parameter, size_t bytes) {
    return "ld.param.u64 %at, [" + std::string(parameter) + "];\nmad.wide.u32 %at, %i, " +
           std::to_string(bytes) + ", %at;\nld.global" + bits(bytes) + name + ", [%at];\n";
  };
  std::string body = ".reg" + bits(sizeof(D)) + "%d;\n.reg" + bits(sizeof(A)) + "%a;\n.reg" +
                     bits(sizeof(B)) + "%b;\n.reg" + bits(sizeof(C)) + "%c;\n" +
                     ".reg .pred %p, %q, %in;\n.reg .b32 %i, %n, %t, %u, %v;\n.reg .b64 %at, %w;\n"
                     "mov.u32 %t, %ctaid.x;\nmov.u32 %u, %ntid.x;\nmov.u32 %v, %tid.x;\n"
                     "mad.lo.u32 %i, %t, %u, %v;\nld.param.u32 %n, [n];\n"
                     "setp.ge.u32 %in, %i, %n;\n@%in ret;\n" +
                     load("%a", "a", sizeof(A)) + (b.empty() ? "" : load("%b", "b", sizeof(B))) +
                     (c.empty() ? "" : load("%c", "c", sizeof(C))) + lines +
                     "\nld.param.u64 %at, [o];\nmad.wide.u32 %at, %i, " +
                     std::to_string(sizeof(D)) + ", %at;\nst.global" + bits(sizeof(D)) +
                     "[%at], %d;";
  LaunchOptions options;
  options.block = {128, 1, 1};
  options.grid = {static_cast<uint32_t>((count + 127) / 128), 1, 1};
  LaunchReport report =
      run(device,
          moduleText(kernelText(
              ".param .u64 o, .param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n", body)),
          options, arguments);
  EXPECT_TRUE(report.completed && report.findings.empty()) << lines << "\n" << messages(report);
  return download<D>(device, out, count);
}

/// Random integers with the ends of their range among them.
template <typename T> std::vector<T> integers(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  static const T nasty[] = {
      T(0),  T(1),  T(-1), std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T(2),
      T(31), T(32), T(33)};
  for (T &v : values) {
    uint64_t bits = random();
    v = bits % 3 == 0 ? nasty[bits / 3 % std::size(nasty)] : static_cast<T>(random() >> bits % 60);
  }
  return values;
}

/// Random floats of all magnitudes with zeros, ones, subnormals, infinities and NaN among them.
inline std::vector<float> floats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  static const float nasty[] = {0.0f,     -0.0f,    1.0f,    -1.0f,   INFINITY, -INFINITY,
                                NAN,      1e-40f,   -1e-45f, 3.4e38f, -3.4e38f, 1.17549435e-38f,
                                65504.0f, 65520.0f, 0.5f,    2.5f};
  for (float &v : values) {
    uint64_t bits = random();
    if (bits % 4 == 0)
      v = nasty[bits / 4 % std::size(nasty)];
    else if (bits % 4 == 1)
      v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    else
      v = std::ldexp(static_cast<float>(static_cast<int64_t>(random())) * 0x1p-63f,
                     static_cast<int>(random() % 24) - 12);
  }
  return values;
}

} // namespace easyquant::simt

#endif // EASYQUANT_TEST_SIMT_SNIPPET_H
