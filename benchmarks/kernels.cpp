//===- kernels.cpp - Linear kernels over the machine's roofs --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// easyquant-kernel-bench [--threads N] [--rounds N] [--formats w8a8,w4a8,...] [--rows 1,16,...]
//                        [--shapes 960x576,...] [--group-size G] [--input-group-size 32|64|128]
//                        [--isa avx2|avx512vnni] [--json FILE]
//
// One line a kernel: what it reaches, the roof, their ratio. A round is roof, kernel, roof; the
// ratio of a round is the kernel over the mean of its two roofs, and the median of the rounds is
// printed. With one row the roof is the bandwidth of reading memory, and weights come cold from
// memory: calls go round copies that together exceed every cache. With more rows the roof is the
// rate of the instructions that do the multiplying, from registers. With --threads 1 the clock is
// the processor time of the thread, which a busy machine disturbs less.
//
//===----------------------------------------------------------------------===//

#include "../test/Codegen/CPU/KernelRunner.h"
#include "Roofs.h"

#include "easyquant/Support/Version.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

using namespace easyquant;
using namespace easyquant::cpu;
using bench::Roof;

extern "C" void omp_set_num_threads(int);

namespace {

struct Format {
  const char *name;
  WeightFormat weights;
  bool quantizedInput;
  ScaleFormat scales = ScaleFormat::F32;
  bool zeroPoints = false;
  bool isTable = false; ///< codes of a table, NF4's, a learned one's or any other's
};
constexpr Format formats[] = {{"w8a8", WeightFormat::I8, true},
                              {"w6a8_f16", WeightFormat::I6, true, ScaleFormat::F16},
                              {"w5a8_f16", WeightFormat::I5, true, ScaleFormat::F16},
                              {"w4a8", WeightFormat::I4, true},
                              {"w4a8_f16", WeightFormat::I4, true, ScaleFormat::F16},
                              {"w4a8_ui6", WeightFormat::I4, true, ScaleFormat::UI6},
                              {"t4a8", WeightFormat::I4, true, ScaleFormat::F16, false, true},
                              {"t3a8", WeightFormat::I3, true, ScaleFormat::F16, false, true},
                              {"f32", WeightFormat::F32, false},
                              {"w8a16", WeightFormat::I8, false},
                              {"w6a16_f16", WeightFormat::I6, false, ScaleFormat::F16},
                              {"w5a16_f16", WeightFormat::I5, false, ScaleFormat::F16},
                              {"w4a16", WeightFormat::I4, false},
                              {"w4a16_f16", WeightFormat::I4, false, ScaleFormat::F16},
                              {"w4a16_ui6", WeightFormat::I4, false, ScaleFormat::UI6},
                              {"w3a16_f16", WeightFormat::I3, false, ScaleFormat::F16},
                              {"w2a16_f16", WeightFormat::I2, false, ScaleFormat::F16},
                              {"w6a16_zp", WeightFormat::I6, false, ScaleFormat::F16, true},
                              {"w5a16_zp", WeightFormat::I5, false, ScaleFormat::F16, true},
                              {"w4a16_zp", WeightFormat::I4, false, ScaleFormat::F16, true},
                              {"w6a8_zp", WeightFormat::I6, true, ScaleFormat::F16, true},
                              {"w5a8_zp", WeightFormat::I5, true, ScaleFormat::F16, true},
                              {"w4a8_zp", WeightFormat::I4, true, ScaleFormat::F16, true},
                              {"t4a16", WeightFormat::I4, false, ScaleFormat::F16, false, true},
                              {"t3a16", WeightFormat::I3, false, ScaleFormat::F16, false, true},
                              {"t2a16", WeightFormat::I2, false, ScaleFormat::F16, false, true}};

/// SmolLM2-135M's linears (q, k and v as one; o; gate and up as one; down; head), then two of a 7B.
constexpr std::pair<int64_t, int64_t> defaultShapes[] = {
    {960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}, {4096, 4096}, {11008, 4096}};

struct Options {
  int threads = 2, rounds = 5;
  int roofs = 0; ///< rounds of roofs, instead of kernels
  int64_t groupSize = 32;
  int64_t inputGroup = 0; ///< of int8 activations; 0: whole rows
  std::vector<std::string> formats = {"w8a8", "w4a8", "f32"};
  std::vector<int64_t> rows = {1, 16, 128, 512};
  std::vector<std::pair<int64_t, int64_t>> shapes{std::begin(defaultShapes),
                                                  std::end(defaultShapes)};
  std::optional<std::string> isa, json;
};

constexpr size_t kColdBytes = size_t(640) << 20;

struct Free {
  void operator()(void *memory) const { std::free(memory); }
};
template <typename T> using Buffer = std::unique_ptr<T[], Free>;
template <typename T> Buffer<T> allocate(size_t count) {
  size_t bytes = (count * sizeof(T) + 4095) / 4096 * 4096;
  void *memory = std::aligned_alloc(4096, std::max<size_t>(bytes, 4096));
  std::memset(memory, 0, bytes);
  return Buffer<T>(static_cast<T *>(memory));
}

Roof roofOf(const LinearSpec &spec, const Target &target, int64_t rows) {
  if (rows == 1)
    return Roof::Read;
  bool avx2 = target.isa == Isa::AVX2;
  if (!spec.quantizedInput)
    return avx2 ? Roof::FmaAvx2 : Roof::Fma512;
  if (!avx2)
    return Roof::DpBusd512;
  const bool areBytes = spec.weights == WeightFormat::I8 || spec.numbers.codes == CodeFormat::Table;
  return areBytes ? Roof::MaddWd : Roof::MaddUbs;
}

/// Every argument of a kernel; contents are random, results are not looked at (tests do that).
class Workload {
public:
  Workload(const LinearSpec &spec, const Target &target, const KernelRunner &kernel, int64_t rows,
           const Options &options, char *cold)
      : spec(spec), kernel(kernel), m(rows), threads(options.threads) {
    int64_t padded = paddedColumns(spec.k);
    groups = groupCount(spec.k, spec.groupSize);
    dotGroups = groupCount(spec.k, spec.dotGroup());
    panels = panelCount(spec.n);
    bytes = spec.weights == WeightFormat::F32
                ? spec.n * spec.k * 4
                : panels * kPanelRows * padded * bitsOf(spec.weights) / 8;
    stride = llvm::alignTo(bytes, 4096);
    copies = m == 1 ? std::max<size_t>(kColdBytes / stride, 1) : 1;
    weights = cold;
    x = allocate<float>(m * spec.k);
    codes = allocate<int8_t>(m * padded);
    scales = allocate<float>(m * dotGroups);
    sums = allocate<int32_t>(m * dotGroups);
    scaleBytes =
        spec.weights == WeightFormat::F32
            ? 0
            : panels * kPanelRows * numerics::rowScaleBits(spec.numbers.scales, groups) / 8;
    wScales = allocate<char>(copies * scaleBytes);
    if (spec.zeroPoints)
      zeroBytes =
          panels * groups * numerics::panelFieldBytes(static_cast<int>(bitsOf(spec.weights)));
    wZeros = allocate<uint8_t>(copies * zeroBytes);
    y = allocate<float>(m * spec.n);
    scratchSize = threads * scratchBytes(spec, target);
    scratch = allocate<int8_t>(scratchSize);
    std::mt19937 rng(1);
    for (int64_t i = 0; i < m * spec.k; ++i)
      x[i] = static_cast<float>(rng() % 255) / 127.0f - 1.0f;
    for (int64_t i = 0; i < m * padded; ++i)
      codes[i] = static_cast<int8_t>(rng() % 255 - 127);
    std::fill_n(scales.get(), m * dotGroups, 0.01f);
    // Scales of two levels may have any value, and so the f16 ones with the same bytes do.
    const bool isTwoLevel = spec.numbers.scales == ScaleFormat::UI6;
    const ScaleFormat format = isTwoLevel ? ScaleFormat::F16 : spec.numbers.scales;
    const size_t width = numerics::scaleBytes(format);
    const uint32_t scale = numerics::encodeScale(0.0078125f, format);
    for (size_t i = 0; i < copies * scaleBytes; i += width)
      std::memcpy(wScales.get() + i, &scale, width);
  }

  /// Codes, scales and zero points, none of which a cache still has where a call reads them once.
  double bytesRead() const { return static_cast<double>(bytes + scaleBytes + zeroBytes); }
  double operations() const { return 2.0 * m * spec.n * spec.k; }

  void call() {
    char *w = weights + next * stride, *s = wScales.get() + next * scaleBytes;
    uint8_t *z = wZeros.get() + next * zeroBytes;
    next = (next + 1) % copies;
    int64_t padded = paddedColumns(spec.k);
    MemRef<float, 2> xView(x.get(), {m, spec.k}), yView(y.get(), {m, spec.n});
    MemRef<int8_t, 2> codesView(codes.get(), {m, padded});
    MemRef<float, 1> rowScales(scales.get(), {m});
    MemRef<float, 2> groupScales(scales.get(), {m, dotGroups});
    MemRef<int32_t, 2> sumsView(sums.get(), {m, dotGroups});
    MemRef<float, 2> floats(reinterpret_cast<float *>(w), {spec.n, spec.k});
    MemRef<int8_t, 4> packed(reinterpret_cast<int8_t *>(w),
                             spec.weights == WeightFormat::F32
                                 ? std::array<int64_t, 4>{}
                                 : packedShape(spec.weights, spec.n, spec.k));
    MemRef<int8_t, 1> scratchView(scratch.get(), {scratchSize});
    MemRef<uint8_t, 3> zerosView(z, {panels, groups, int64_t(zeroBytes) / (panels * groups)});
    MemRef<float, 1> codebook(table.data(), {int64_t(1) << bitsOf(spec.weights)});
    int64_t t = threads;
    const bool isTable = spec.numbers.codes == CodeFormat::Table;
    auto callOn = [&](auto wScalesView, auto &...input) {
      if (isTable)
        kernel(input..., packed, wScalesView, codebook, yView, scratchView, t);
      else if (spec.zeroPoints)
        kernel(input..., packed, wScalesView, zerosView, yView, scratchView, t);
      else
        kernel(input..., packed, wScalesView, yView, scratchView, t);
    };
    auto callWith = [&](auto wScalesView) {
      if (!spec.quantizedInput)
        callOn(wScalesView, xView);
      else if (spec.inputGroup)
        callOn(wScalesView, codesView, groupScales, sumsView);
      else
        callOn(wScalesView, codesView, rowScales, sumsView);
    };
    const std::array<int64_t, 3> scaleShape = {panels, groups, kPanelRows};
    if (spec.weights == WeightFormat::F32)
      kernel(xView, floats, yView, scratchView, t);
    else if (spec.numbers.scales == ScaleFormat::UI6)
      callWith(MemRef<uint8_t, 3>(reinterpret_cast<uint8_t *>(s),
                                  {panels, 1, int64_t(scaleBytes) / panels}));
    else if (spec.numbers.scales == ScaleFormat::F16)
      callWith(MemRef<uint16_t, 3>(reinterpret_cast<uint16_t *>(s), scaleShape));
    else
      callWith(MemRef<float, 3>(reinterpret_cast<float *>(s), scaleShape));
  }

  /// Seconds a call, over at least `minimum` seconds.
  double time(double minimum) {
    call();
    for (int64_t calls = 1;; calls *= 2) {
      double begin = bench::now(threads);
      for (int64_t i = 0; i < calls; ++i)
        call();
      double seconds = bench::now(threads) - begin;
      if (seconds >= minimum)
        return seconds / calls;
    }
  }

private:
  LinearSpec spec;
  const KernelRunner &kernel;
  int64_t m, groups, dotGroups, panels, scratchSize;
  int threads;
  size_t bytes, scaleBytes, zeroBytes = 0, stride, copies, next = 0;
  char *weights;
  Buffer<float> x, scales, y;
  Buffer<char> wScales;
  Buffer<uint8_t> wZeros;
  Buffer<int8_t> codes, scratch;
  Buffer<int32_t> sums;
  std::array<float, 16> table = numerics::kIQ4NL;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::json measure(const LinearSpec &spec, const Format &format, const Target &target,
                       const KernelRunner &kernel, int64_t rows, const Options &options,
                       char *cold) {
  Workload work(spec, target, kernel, rows, options, cold);
  Roof roof = roofOf(spec, target, rows);
  auto measureRoof = [&] {
    return roof == Roof::Read ? bench::measureRead(cold, kColdBytes, options.threads)
                              : bench::measureOperations(roof, options.threads);
  };
  double amount = roof == Roof::Read ? work.bytesRead() : work.operations();
  std::vector<double> rates, roofs, ratios;
  measureRoof();
  double before = measureRoof();
  for (int round = 0; round < options.rounds; ++round) {
    double rate = amount / work.time(0.03);
    double after = measureRoof();
    rates.push_back(rate);
    roofs.push_back((before + after) / 2);
    ratios.push_back(rate / roofs.back());
    before = after;
  }
  std::printf("%-9s %6lld x %-5lld M = %-4lld %8.1f %-6s of %8.1f  %5.1f %%  (%s)\n", format.name,
              static_cast<long long>(spec.n), static_cast<long long>(spec.k),
              static_cast<long long>(rows), median(rates) * 1e-9,
              roof == Roof::Read ? "GB/s" : "GOP/s", median(roofs) * 1e-9, median(ratios) * 100,
              bench::toString(roof));
  std::fflush(stdout);
  return {{"format", format.name},
          {"n", spec.n},
          {"k", spec.k},
          {"m", rows},
          {"group_size", spec.groupSize},
          {"input_group_size", spec.inputGroup},
          {"isa", target.name().str()},
          {"roof", bench::toString(roof)},
          {"unit", roof == Roof::Read ? "bytes/s" : "operations/s"},
          {"rate", median(rates)},
          {"roof_rate", median(roofs)},
          {"ratio", median(ratios)}};
}

/// The rates of all multipliers that this CPU has, in turn.
void printRoofs(int rounds, int threads) {
  std::map<Roof, std::vector<double>> rates;
  for (int round = 0; round <= rounds; ++round)
    for (Roof roof :
         {Roof::FmaAvx2, Roof::Fma512, Roof::MaddWd, Roof::MaddUbs, Roof::DpBusd512, Roof::DpBf16})
      if (bench::isHere(roof))
        if (double rate = bench::measureOperations(roof, threads); round > 0)
          rates[roof].push_back(rate);
  for (const auto &[roof, found] : rates)
    std::printf("%-22s %8.1f GOP/s, %.2f of %s\n", bench::toString(roof), median(found) * 1e-9,
                median(found) / median(rates[Roof::FmaAvx2]), bench::toString(Roof::FmaAvx2));
}

int usage(const char *problem) {
  std::fprintf(
      stderr,
      "easyquant-kernel-bench: %s\nusage: easyquant-kernel-bench [--threads N] [--rounds N] "
      "[--formats "
      "w8a8,w6a8_f16,w5a8_f16,w4a8,w4a8_f16,w4a8_ui6,t4a8,t3a8,f32,w8a16,w6a16_f16,w5a16_f16,"
      "w4a16,w4a16_f16,w4a16_ui6,w3a16_f16,w2a16_f16,w6a16_zp,w5a16_zp,w4a16_zp,w6a8_zp,w5a8_zp,"
      "w4a8_zp,t4a16,t3a16,t2a16] "
      "[--rows 1,16,128,512] [--shapes NxK,...] "
      "[--group-size G] [--input-group-size 32|64|128] [--isa avx2|avx512vnni] [--json FILE]\n"
      "       easyquant-kernel-bench --roofs ROUNDS [--threads N]\n"
      "       easyquant-kernel-bench --version\n",
      problem);
  return 1;
}

std::optional<Options> parse(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    llvm::StringRef key = argv[i];
    if (i + 1 == argc)
      return std::nullopt;
    llvm::StringRef value = argv[i + 1];
    llvm::SmallVector<llvm::StringRef> parts;
    value.split(parts, ',');
    if (key == "--threads" && !value.getAsInteger(10, options.threads) && options.threads > 0)
      continue;
    if (key == "--rounds" && !value.getAsInteger(10, options.rounds) && options.rounds > 0)
      continue;
    if (key == "--roofs" && !value.getAsInteger(10, options.roofs) && options.roofs > 0)
      continue;
    if (key == "--group-size" && !value.getAsInteger(10, options.groupSize) &&
        options.groupSize >= 0 && options.groupSize % 8 == 0)
      continue;
    if (key == "--input-group-size" && !value.getAsInteger(10, options.inputGroup) &&
        numerics::isTokenGroup(options.inputGroup))
      continue;
    if (key == "--isa" && (value == "avx2" || value == "avx512vnni")) {
      options.isa = value.str();
    } else if (key == "--json") {
      options.json = value.str();
    } else if (key == "--formats") {
      options.formats.clear();
      for (llvm::StringRef part : parts) {
        if (llvm::none_of(formats, [&](const Format &f) { return part == f.name; }))
          return std::nullopt;
        options.formats.push_back(part.str());
      }
    } else if (key == "--rows") {
      options.rows.clear();
      for (llvm::StringRef part : parts)
        if (part.getAsInteger(10, options.rows.emplace_back()) || options.rows.back() < 1)
          return std::nullopt;
    } else if (key == "--shapes") {
      options.shapes.clear();
      for (llvm::StringRef part : parts) {
        auto [n, k] = part.split('x');
        auto &shape = options.shapes.emplace_back();
        if (n.getAsInteger(10, shape.first) || k.getAsInteger(10, shape.second) ||
            shape.first < 1 || shape.second < 1)
          return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  return options;
}

} // namespace

int main(int argc, char **argv) {
  if (argc == 2 && llvm::StringRef(argv[1]) == "--version") {
    std::printf("%s\n", versionOf("easyquant-kernel-bench", LLVM_VERSION_STRING).c_str());
    return 0;
  }
  std::optional<Options> options = parse(argc, argv);
  if (!options)
    return usage("an option that it does not know, or a value that cannot be");
  Target target{Isa::AVX512VNNI};
  if (options->isa ? options->isa == "avx2" : !cpuRuns(target))
    target.isa = Isa::AVX2;
  if (!cpuRuns(target))
    return usage("this CPU does not run that instruction set");

  std::string model = bench::cpuModel();
  if (options->inputGroup && !numerics::fitsGroups(options->inputGroup, options->groupSize))
    return usage("groups of input must divide those of weights");
  std::printf("%s, %s, %d threads, groups of %lld", model.c_str(), target.name().data(),
              options->threads, static_cast<long long>(options->groupSize));
  if (options->inputGroup)
    std::printf(", int8 input in groups of %lld", static_cast<long long>(options->inputGroup));
  std::printf("\n");
  if (options->roofs > 0) {
    printRoofs(options->roofs, options->threads);
    return 0;
  }
  omp_set_num_threads(options->threads);
  // Random bytes are codes like any others; as floats they would be NaNs and denormals.
  Buffer<char> codes = allocate<char>(kColdBytes);
  nlohmann::json results = nlohmann::json::array();
  for (const Format &format : formats) {
    if (llvm::find(options->formats, format.name) == options->formats.end())
      continue;
    std::mt19937 rng(2);
    for (size_t i = 0; i < kColdBytes / 4; ++i)
      if (format.weights == WeightFormat::F32)
        reinterpret_cast<float *>(codes.get())[i] = static_cast<float>(i % 255) - 127.0f;
      else
        reinterpret_cast<uint32_t *>(codes.get())[i] = rng();
    for (auto [n, k] : options->shapes) {
      LinearSpec spec{n, k, format.weights, 0, format.quantizedInput, false, false};
      spec.numbers.scales = format.scales;
      spec.zeroPoints = format.zeroPoints;
      if (format.isTable)
        spec.numbers.codes = CodeFormat::Table;
      if (format.weights != WeightFormat::F32 && format.weights != WeightFormat::I8)
        spec.groupSize = options->groupSize;
      if (format.quantizedInput)
        spec.inputGroup = options->inputGroup;
      KernelRunner kernel(
          target, [&](mlir::ModuleOp module) { return getOrEmitLinear(module, spec, target); });
      for (int64_t rows : options->rows)
        results.push_back(measure(spec, format, target, kernel, rows, *options, codes.get()));
    }
  }
  if (options->json) {
    std::ofstream file(*options->json);
    file << nlohmann::json{{"cpu", model}, {"threads", options->threads}, {"results", results}}
                .dump(2)
         << "\n";
    if (!file.flush())
      return usage("the JSON file cannot be written");
  }
  return 0;
}
