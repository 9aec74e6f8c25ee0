//===- Linear.cpp - Linear kernels: tiling and driver ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Linear.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace easyquant::cpu {

//===- Names and tilings --------------------------------------------------===//

std::string symbolName(const LinearSpec &spec) {
  std::string name = llvm::formatv("linear_{0}x{1}_{2}", spec.n, spec.k, nameOf(spec.weights));
  if (spec.fullRange)
    name += "_full";
  name += nameOf(spec.numbers);
  if (spec.zeroPoints)
    name += "_zp";
  if (spec.groupSize)
    name += "_g" + llvm::utostr(spec.groupSize);
  if (spec.quantizedInput)
    name += spec.inputZeroPoints ? "_q8_zp" : "_q8";
  if (spec.inputGroup)
    name += "_own" + llvm::utostr(spec.inputGroup);
  if (spec.bias)
    name += "_bias";
  if (spec.accumulate)
    name += "_acc";
  if (spec.sums)
    name += "_sums";
  if (spec.experts)
    name += "_experts" + llvm::utostr(spec.experts);
  return name;
}

namespace {
/// Register tiles and the row count from which unpacking pays, measured with
/// easyquant-kernel-bench.
struct TileShape {
  Isa isa;
  Dot dot;
  int64_t rows, columns, gemvRows;
};
} // namespace

static constexpr TileShape tileShapes[] = {
    // 12 accumulators of 8 lanes, 2 vectors of weights, 1 broadcast, 1 product: all 16 registers.
    {Isa::AVX2, Dot::Float, 6, 16, 3},
    {Isa::AVX2, Dot::Widened, 6, 8, 8},
    {Isa::AVX2, Dot::Saturated, 6, 16, 5},
    {Isa::AVX512VNNI, Dot::Float, 8, 32, 3},
    {Isa::AVX512VNNI, Dot::Vnni, 12, 32, 1},
    // As on AVX2, a vector being two registers. The rows' codes stay in registers for two steps.
    // Not measured on a machine.
    {Isa::NeonDot, Dot::Float, 6, 16, 3},
    {Isa::NeonDot, Dot::Signed, 4, 16, 2},
    {Isa::NeonI8mm, Dot::Float, 6, 16, 3},
    {Isa::NeonI8mm, Dot::Matrix, 8, 8, 2},
};
/// With groups, the sums of the groups share the 32 registers with the accumulators: so many rows,
/// or with sdot so many columns.
static constexpr int64_t kGroupedVnniRows = 6, kGroupedSignedColumns = 8, kGroupedMatrixRows = 4;

/// The weights that tiles read and the rows of a tile should stay in the second-level cache, and
/// the weights that one tile of a slab reads in the first-level cache.
static constexpr int64_t kChunkBytes = 256 * 1024;
static constexpr int64_t kSlabTileBytes = 20 * 1024;
static constexpr int64_t kMaxChunkPanels = 8;

LinearTiling::LinearTiling(const LinearSpec &spec, const Target &target) {
  const bool bytes = spec.weights == WeightFormat::I8 || spec.numbers.codes == CodeFormat::Table;
  dot = !spec.quantizedInput            ? Dot::Float
        : target.isa == Isa::NeonDot    ? Dot::Signed
        : target.isa == Isa::NeonI8mm   ? Dot::Matrix
        : target.isa == Isa::AVX512VNNI ? Dot::Vnni
        : bytes                         ? Dot::Widened
                                        : Dot::Saturated;
  const TileShape *shape = llvm::find_if(
      tileShapes, [&](const TileShape &s) { return s.isa == target.isa && s.dot == dot; });
  tileRows = shape->rows;
  tileColumns = shape->columns;
  gemvRows = shape->gemvRows;
  if (dot == Dot::Vnni && groupCount(spec.k, spec.dotGroup()) > 1)
    tileRows = kGroupedVnniRows;
  if (dot == Dot::Signed && groupCount(spec.k, spec.dotGroup()) > 1)
    tileColumns = kGroupedSignedColumns;
  if (dot == Dot::Matrix && groupCount(spec.k, spec.dotGroup()) > 1)
    tileRows = kGroupedMatrixRows;

  int64_t padded = paddedColumns(spec.k);
  slabColumns = chainColumns = padded;
  paramsBytes = 0;
  chunkPanels = 1;
  activationBytes = 0;
  switch (dot) {
  case Dot::Float: {
    // Slabs of about the same number of groups, or columns.
    const bool hasGroups = groupCount(spec.k, spec.groupSize) > 1;
    const int64_t unit = hasGroups ? spec.groupSize : 8;
    const int64_t most = std::max<int64_t>(kSlabTileBytes / (tileColumns * 4) / unit, 1);
    const int64_t units = llvm::divideCeil(padded, unit);
    slabColumns = unit * llvm::divideCeil(units, llvm::divideCeil(units, most));
    chainColumns = hasGroups ? unit : slabColumns;
    panelBytes = slabColumns * kPanelRows * 4;
    const int64_t params = spec.weights == WeightFormat::F32 ? 0 : spec.numbers.minima ? 2 : 1;
    paramsBytes = params * chainsPerSlab() * kPanelRows * 4;
    if (spec.numbers.minima)
      activationBytes = llvm::alignTo(tileRows * chainsPerSlab() * 4, 64);
    break;
  }
  case Dot::Widened:
    panelBytes = padded * kPanelRows * 2;
    activationBytes = llvm::alignTo(tileRows * padded * 2, 64);
    break;
  case Dot::Saturated: {
    panelBytes = padded * kPanelRows;
    int64_t groupSteps = (spec.dotGroup() ? spec.dotGroup() : padded) / 4;
    int64_t chunks = llvm::divideCeil(groupSteps, correctedSteps(bitsOf(spec.weights)));
    activationBytes =
        llvm::alignTo(tileRows * groupCount(spec.k, spec.dotGroup()) * chunks * 4, 64);
    break;
  }
  case Dot::Vnni:
    panelBytes = 0;
    break;
  case Dot::Signed:
  case Dot::Matrix:
    panelBytes = padded * kPanelRows;
    break;
  }
  // The codes of a tile's rows, and what is prepared from them, serve all panels of a chunk.
  if (dot != Dot::Float) {
    const int64_t read = panelBytes ? panelBytes : padded * kPanelRows * bitsOf(spec.weights) / 8;
    chunkPanels = std::clamp<int64_t>(kChunkBytes / read, 1, kMaxChunkPanels);
    chunkPanels = std::min(chunkPanels, panelCount(spec.n));
  }
  sumsBytes = spec.inputGroup && spec.inputZeroPoints
                  ? groupCount(spec.k, spec.inputGroup) * kPanelRows * 4
                  : 0;
}

int64_t LinearTiling::scratchBytes() const {
  return llvm::alignTo(chunkPanels * (panelBytes + sumsBytes) + activationBytes + paramsBytes, 64);
}

int64_t scratchBytes(const LinearSpec &spec, const Target &target) {
  return LinearTiling(spec, target).scratchBytes();
}

int64_t LinearKernel::groupSteps() const {
  return (spec.dotGroup() ? spec.dotGroup() : paddedColumns(spec.k)) / 4;
}
int64_t LinearKernel::groupChunks() const {
  return llvm::divideCeil(groupSteps(), correctedSteps());
}
int64_t LinearKernel::fullGroups() const { return paddedColumns(spec.k) / 4 / groupSteps(); }
int64_t LinearKernel::lastSteps() const { return paddedColumns(spec.k) / 4 % groupSteps(); }

//===- Arguments ----------------------------------------------------------===//

Description describe(const LinearSpec &spec, MLIRContext *context) {
  constexpr int64_t dynamic = ShapedType::kDynamic;
  const int64_t groups = groupCount(spec.k, spec.dotGroup());
  Describer d(context, symbolName(spec), Describer::Over::Other);
  if (spec.quantizedInput) {
    d.reads("codes", d.memory({dynamic, paddedColumns(spec.k)}, d.getI8Type()));
    d.reads("scales",
            spec.inputGroup ? d.memory({dynamic, groups}, d.getF32Type())
                            : d.vector(d.getF32Type()),
            !spec.sums);
    d.reads("sums", d.memory({dynamic, groups}, d.getI32Type()));
    d.reads("zeros",
            spec.inputGroup ? d.memory({dynamic, groups}, d.getI32Type())
                            : d.vector(d.getI32Type()),
            spec.inputZeroPoints);
  } else {
    d.reads("x", d.rows(spec.k));
  }
  readWeight(d, {spec.weights, spec.numbers, spec.weightRows(), spec.k, spec.groupSize,
                 spec.zeroPoints,
                 /*scales=*/!spec.sums});
  d.reads("wsums", d.memory({panelCount(spec.weightRows()), groups, kPanelRows}, d.getI32Type()),
          spec.inputZeroPoints && !spec.inputGroup);
  d.reads("bias", d.memory({spec.weightRows()}, d.getF32Type()), spec.bias);
  d.reads("offsets", d.memory({dynamic, spec.experts + 1}, d.getI32Type()), spec.experts != 0);
  d.writes("y", rowsType(d, spec.n, spec.sums ? d.getI32Type() : Type()));
  d.writes("scratch", d.vector(d.getI8Type())).shared = true;
  return std::move(d.kernel);
}

/// Finds the arguments, and lays out this thread's part of the scratch.
static void bindArguments(LinearKernel &k, const KernelArguments &in) {
  KernelBuilder &b = k.b;
  k.x = in.first();
  k.xScales = in.find("scales");
  k.xSums = in.find("sums");
  k.xZeros = in.find("zeros");
  k.weights = in["w"];
  if (k.spec.weights != WeightFormat::F32)
    k.weights = b.collapse(k.weights, 1);
  k.wScales = in.find("wscales");
  k.wZeros = in.find("wzeros");
  k.wMinima = in.find("wminima");
  k.wOuter = in.find("wouter");
  if (Value codebook = in.find("codebook"); codebook && k.spec.quantizedInput) {
    auto [bytes, unit] = loadInt8Codebook(b, k.spec.weights, codebook);
    k.codebook = k.offset() ? b.xori(bytes, 0x80) : bytes;
    k.unit = unit;
  } else if (codebook) {
    k.codebook = loadCodebook(b, k.spec.weights, codebook);
  }
  k.wSums = in.find("wsums");
  k.bias = in.find("bias");
  k.offsets = in.find("offsets");
  k.y = in["y"];
  Value scratch = in["scratch"];
  Value base = b.mul(k.thread, k.tiling.scratchBytes());
  const LinearTiling &tiling = k.tiling;
  int64_t tiles = tiling.tilesPerPanel(), steps = paddedColumns(k.spec.k) / 4;
  switch (tiling.dot) {
  case Dot::Float:
    k.unpacked = b.view(scratch, base,
                        b.memref({1, tiles, tiling.slabColumns, tiling.tileColumns}, b.f32()));
    if (tiling.paramsBytes) {
      const int64_t chains = tiling.chainsPerSlab();
      Value params = b.add(base, tiling.panelBytes);
      k.slabScales = b.view(scratch, params, b.memref({chains, kPanelRows}, b.f32()));
      if (k.wMinima) {
        k.slabMinima = b.view(scratch, b.add(params, chains * kPanelRows * 4),
                              b.memref({chains, kPanelRows}, b.f32()));
        k.rowSums = b.view(scratch, b.add(params, tiling.paramsBytes),
                           b.memref({tiling.tileRows, chains}, b.f32()));
      }
    }
    break;
  case Dot::Widened:
    k.unpacked =
        b.view(scratch, base,
               b.memref({tiling.chunkPanels, tiles, steps, tiling.tileColumns * 4}, b.i16()));
    k.widened = b.view(scratch, b.add(base, tiling.chunkPanels * tiling.panelBytes),
                       b.memref({tiling.tileRows, steps}, b.i64()));
    break;
  case Dot::Saturated:
    k.corrections = b.view(scratch, b.add(base, tiling.chunkPanels * tiling.panelBytes),
                           b.memref({tiling.tileRows, k.groups * k.groupChunks()}, b.i32()));
    [[fallthrough]];
  case Dot::Signed:
  case Dot::Matrix:
    k.unpacked =
        b.view(scratch, base,
               b.memref({tiling.chunkPanels, tiles, steps, tiling.tileColumns * 4}, b.i8()));
    break;
  case Dot::Vnni:
    break;
  }
  if (tiling.sumsBytes)
    k.wSums = b.view(scratch,
                     b.add(base, tiling.chunkPanels * tiling.panelBytes + tiling.activationBytes),
                     b.memref({tiling.chunkPanels, k.groups, kPanelRows}, b.i32()));
}

//===- Driver -------------------------------------------------------------===//

/// All rows of x in register tiles; the last tile has what is left over.
static void forRowTiles(LinearKernel &k, Value count,
                        llvm::function_ref<void(int64_t rows, Value firstRow)> body) {
  KernelBuilder &b = k.b;
  b.forLoop(0, count, k.tiling.tileRows, [&](Value firstRow) {
    Value rows = b.min(b.sub(count, firstRow), k.tiling.tileRows);
    b.switchOn(rows, 1, k.tiling.tileRows, [&](int64_t tile) { body(tile, firstRow); });
  });
}

/// The tiles of a panel that hold columns < N.
static Value tilesOf(LinearKernel &k, Value panel) {
  KernelBuilder &b = k.b;
  int64_t columns = k.tiling.tileColumns, tiles = k.tiling.tilesPerPanel();
  int64_t used = llvm::divideCeil(k.spec.n, columns);
  return used % tiles ? b.min(b.sub(used, b.mul(panel, tiles)), tiles) : b.index(tiles);
}

static void emitIntegerGemm(LinearKernel &k, Value count, Value begin, Value end) {
  KernelBuilder &b = k.b;
  b.forLoop(begin, end, k.tiling.chunkPanels, [&](Value chunk) {
    Value panels = b.min(b.sub(end, chunk), k.tiling.chunkPanels);
    if (k.tiling.panelBytes || k.tiling.sumsBytes)
      b.forLoop(0, panels, 1, [&](Value slot) {
        Value panel = b.add(chunk, slot);
        emitUnpack(k, panel, slot, b.index(0), b.index(k.tiling.slabColumns));
        emitWeightSums(k, panel, slot);
      });
    forRowTiles(k, count, [&](int64_t rows, Value firstRow) {
      if (k.tiling.activationBytes)
        emitPrepareRows(k, rows, firstRow);
      b.forLoop(0, panels, 1, [&](Value slot) {
        Value panel = b.add(chunk, slot);
        k.wSumsAt = k.tiling.sumsBytes ? slot : panel;
        b.forLoop(0, tilesOf(k, panel), 1,
                  [&](Value tile) { emitIntegerTile(k, rows, firstRow, panel, slot, tile); });
      });
    });
  });
}

static void emitFloatGemm(LinearKernel &k, Value count, Value begin, Value end) {
  KernelBuilder &b = k.b;
  b.forLoop(begin, end, 1, [&](Value panel) {
    b.forLoop(0, k.spec.k, k.tiling.slabColumns, [&](Value slab) {
      Value columns = b.min(b.sub(k.spec.k, slab), k.tiling.slabColumns);
      emitUnpack(k, panel, b.index(0), slab, columns);
      forRowTiles(k, count, [&](int64_t rows, Value firstRow) {
        emitPrepareRows(k, rows, firstRow, slab, columns);
        b.forLoop(0, tilesOf(k, panel), 1, [&](Value tile) {
          emitFloatTile(k, rows, firstRow, panel, tile, slab, columns);
        });
      });
    });
  });
}

/// Few rows: panels are streamed.
static void emitFewRows(LinearKernel &k, Value count, Value begin, Value end) {
  KernelBuilder &b = k.b;
  if (k.tiling.dot != Dot::Float)
    return b.forLoop(begin, end, 1, [&](Value panel) {
      k.wSumsAt = k.tiling.sumsBytes ? b.index(0) : panel;
      emitWeightSums(k, panel, k.wSumsAt);
      b.forLoop(0, count, 1, [&](Value row) { emitGemv(k, 1, 1, panel, row); });
    });
  b.switchOn(count, 1, k.tiling.gemvRows, [&](int64_t rows) {
    // One row meets two panels together where one has too few chains of sums, or is quickly
    // unpacked (easyquant-kernel-bench).
    const bool pairs = b.target.lanes() == 16 || k.spec.weights == WeightFormat::I8;
    const bool isPacked = k.spec.weights != WeightFormat::F32;
    const int64_t together = rows == 1 && pairs && isPacked ? 2 : 1;
    b.forLoop(begin, end, together, [&](Value panel) {
      auto emit = [&](int64_t panels) { emitGemv(k, panels, rows, panel, b.index(0)); };
      if (together == 1)
        return emit(1);
      b.ifThenElse(b.less(b.add(panel, 1), end), [&] { emit(2); }, [&] { emit(1); });
    });
  });
}

/// The panels [begin, end) with all rows of x.
static void emitPanels(LinearKernel &k, Value begin, Value end) {
  KernelBuilder &b = k.b;
  Value count = b.size(k.y, 0);
  b.ifThenElse(
      b.less(k.tiling.gemvRows, count),
      [&] {
        if (k.spec.quantizedInput)
          emitIntegerGemm(k, count, begin, end);
        else
          emitFloatGemm(k, count, begin, end);
      },
      [&] { emitFewRows(k, count, begin, end); });
}

/// The linear of one expert: its rows of x and y, and its part of the weight.
static LinearKernel expertOf(const LinearKernel &all, Value expert, Value firstRow, Value rows) {
  KernelBuilder &b = all.b;
  LinearKernel k = all;
  for (Value *memory : {&k.x, &k.xScales, &k.xSums, &k.xZeros, &k.y})
    *memory = b.part(*memory, firstRow, rows);
  const bool isFloat = k.spec.weights == WeightFormat::F32;
  const int64_t pieces = isFloat ? k.spec.n : panelCount(k.spec.n);
  Value first = b.mul(expert, pieces);
  for (Value *memory : {&k.weights, &k.wScales, &k.wZeros, &k.wMinima, &k.wOuter})
    *memory = b.part(*memory, first, pieces);
  if (!k.tiling.sumsBytes) // else the kernel takes them, in scratch
    k.wSums = b.part(k.wSums, first, pieces);
  k.bias = b.part(k.bias, b.mul(expert, k.spec.n), k.spec.n);
  return k;
}

/// The panels of all experts that have rows, each as often as it has rows, are shared out in one
/// piece a thread.
static void emitExperts(LinearKernel &k, const Team &team) {
  KernelBuilder &b = k.b;
  const int64_t panels = panelCount(k.spec.n);
  auto [begin, end] = shareOf(b, b.mul(b.size(k.y, 0), panels), team);
  Value firstUnit = begin, lastUnit = end;
  auto offset = [&](Value expert) -> Value {
    return arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(k.offsets, {0, expert}));
  };
  b.forLoop(0, k.spec.experts, 1, [&](Value expert) {
    Value row = offset(expert), rows = b.sub(offset(b.add(expert, 1)), row);
    auto emit = [&] {
      // Panel p of the expert has the units from `before` + p * rows on; it is that of the thread
      // that has the first of them.
      Value before = b.mul(row, panels);
      auto panelAt = [&](Value unit) {
        Value units = b.sub(b.max(unit, before), before);
        return b.min(b.createOrFold<arith::DivUIOp>(b.add(units, b.sub(rows, 1)), rows), panels);
      };
      Value first = panelAt(firstUnit), last = panelAt(lastUnit);
      b.ifThenElse(
          b.less(first, last),
          [&] {
            LinearKernel own = expertOf(k, expert, row, rows);
            emitPanels(own, first, last);
          },
          [] {});
    };
    b.ifThenElse(b.less(0, rows), emit, [] {});
  });
}

func::FuncOp getOrEmitLinear(ModuleOp module, const LinearSpec &spec, const Target &target) {
  assert(spec.groupSize % 8 == 0 && (!spec.inputZeroPoints || spec.quantizedInput));
  assert(spec.inputGroup == 0 ||
         (spec.quantizedInput && numerics::isTokenGroup(spec.inputGroup) && !spec.sums &&
          numerics::fitsGroups(spec.inputGroup, spec.groupSize)));
  assert(!spec.sums || (spec.quantizedInput && groupCount(spec.k, spec.groupSize) == 1 &&
                        !spec.bias && !spec.accumulate && !spec.numbers.outer));
  assert(!spec.numbers.minima || (spec.groupSize && !spec.zeroPoints && !spec.sums));
  assert(spec.experts == 0 || spec.weights == WeightFormat::F32 || spec.n % kPanelRows == 0);
  assert(spec.weights != WeightFormat::F32 || (!spec.quantizedInput && !spec.zeroPoints));
  assert(spec.numbers.codes == CodeFormat::Integer || !spec.zeroPoints);
  assert(spec.numbers.codes == CodeFormat::Integer || !spec.quantizedInput ||
         (spec.numbers.codes == CodeFormat::Table && !spec.sums));
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           LinearKernel k{b, spec, LinearTiling(spec, target)};
                           k.groups = groupCount(spec.k, spec.dotGroup());
                           k.thread = team.thread;
                           bindArguments(k, in);
                           if (spec.experts)
                             return emitExperts(k, team);
                           auto [begin, end] = shareOf(b, panelCount(spec.n), team);
                           emitPanels(k, begin, end);
                         });
}

} // namespace easyquant::cpu
