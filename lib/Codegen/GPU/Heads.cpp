//===- Heads.cpp - Norm and rotation of queries and keys ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A warp has one head of one token in registers. Where the number of dimensions is even, a lane has
// pairs (i, i + D/2), which are rotated together; where the first R dimensions are rotated, pairs
// (i, i + R/2) of them, and such pairs of the others. Heads of values go to the cache as they are.
//
// For a basis of the head, so many lanes have columns as divide D/2: those of each lane are then as
// many apart throughout the head, and stages of the basis are between lanes, then in registers.
//
//===----------------------------------------------------------------------===//

#include "AttentionCache.h"
#include "Hadamard.h"

#include <bit>
#include <numeric>
#include <optional>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class HeadsEmitter {
public:
  HeadsEmitter(KernelBuilder &b, const HeadsSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments), parts(spec.headDim % 2 == 0 ? 2 : 1),
        lanes(lanesOf(spec)) {}

  void emit(int64_t threads);

private:
  using Values = KernelBuilder::Values;
  /// One column of each part of the head, or of its rotated or its other dimensions.
  struct Piece {
    Value column, inside; ///< inside: i1, null: certainly
    int64_t span = 0;     ///< the columns of the parts are so many apart
    bool turns = false;   ///< are its columns rotated?
    Values values;
  };
  static constexpr int64_t kWarp = 32; ///< lanes
  /// Lanes that have columns.
  static int64_t lanesOf(const HeadsSpec &spec) {
    return spec.hadamard ? std::gcd(kWarp, spec.headDim / 2) : kWarp;
  }
  /// Loads the columns [begin, end) of the head at `x`.
  void load(SmallVectorImpl<Piece> &pieces, Value x, Value lane, int64_t begin, int64_t end);
  void normalize(SmallVectorImpl<Piece> &pieces, Value head);
  void rotate(Piece &piece, Value row);
  void takeToBasis(MutableArrayRef<Piece> pieces, Value lane);
  void store(ArrayRef<Piece> pieces, Value to, Type type);
  void append(ArrayRef<Piece> pieces, bool keys, Value head, const PlaceOfRow &place);

  KernelBuilder &b;
  const HeadsSpec &spec;
  const KernelArguments &arguments;
  const int64_t parts, lanes;
};

} // namespace

void HeadsEmitter::load(SmallVectorImpl<Piece> &pieces, Value x, Value lane, int64_t begin,
                        int64_t end) {
  const int64_t span = (end - begin) / parts;
  for (int64_t first = 0; first < span; first += lanes) {
    Piece piece;
    piece.column = b.add(lane, begin + first);
    piece.span = span;
    piece.turns = spec.positions > 0 && begin == 0;
    const int64_t some = std::min(lanes, span - first);
    if (some < kWarp)
      piece.inside = b.less(lane, some);
    for (int64_t part = 0; part < parts; ++part)
      piece.values.push_back(b.guarded(piece.inside, b.zero(b.f32()), [&] {
        return b.load(b.advance(x, b.add(piece.column, part * span), b.f32()), b.f32());
      }));
    pieces.push_back(piece);
  }
}

void HeadsEmitter::normalize(SmallVectorImpl<Piece> &pieces, Value head) {
  Value squares;
  for (const Piece &piece : pieces)
    for (Value x : piece.values)
      squares = squares ? b.fma(x, x, squares) : b.mulf(x, x);
  Value mean = b.divf(b.warpSum(squares), b.constant(b.f32(), static_cast<double>(spec.headDim)));
  Value scale = b.reciprocalRootApproximate(b.addf(mean, b.constant(b.f32(), spec.epsilon)));
  auto scaled = [&](Value x) { return b.mulf(x, scale); };
  if (!spec.hasWeight()) {
    for (Piece &piece : pieces)
      piece.values = llvm::map_to_vector(piece.values, scaled);
    return;
  }
  Value weight = arguments["weight"];
  if (spec.keyHeads > 0)
    weight = b.select(b.less(head, spec.heads), weight, arguments["key_weight"]);
  for (Piece &piece : pieces)
    for (auto [part, x] : llvm::enumerate(piece.values)) {
      Value column = b.add(piece.column, static_cast<int64_t>(part) * piece.span);
      Value w = b.guarded(piece.inside, b.zero(b.f32()), [&] {
        return b.load(b.advance(weight, column, b.f32()), b.f32(), true);
      });
      x = b.mulf(scaled(x), w);
    }
}

void HeadsEmitter::rotate(Piece &piece, Value row) {
  Type pair = b.vec(2, b.f32());
  Value turn = b.guarded(piece.inside, b.zero(pair), [&] {
    return b.load(b.advance(row, b.mul(piece.column, 2), b.f32()), pair, true);
  });
  Value cosine = b.extract(turn, 0), sine = b.extract(turn, 1);
  Value minusSine = b.mulf(sine, b.constant(b.f32(), -1.0));
  Value u = piece.values[0], v = piece.values[1];
  piece.values = {b.fma(u, cosine, b.mulf(v, minusSine)), b.fma(v, cosine, b.mulf(u, sine))};
}

void HeadsEmitter::takeToBasis(MutableArrayRef<Piece> pieces, Value lane) {
  SmallVector<Values> columns;
  for (int64_t part = 0; part < parts; ++part)
    for (const Piece &piece : pieces)
      columns.push_back({piece.values[part]});
  emitHadamard(b, columns, lane, lanes, spec.hadamard);
  for (auto [i, column] : llvm::enumerate(columns))
    pieces[i % pieces.size()].values[i / pieces.size()] = column.front();
}

void HeadsEmitter::store(ArrayRef<Piece> pieces, Value to, Type type) {
  for (const Piece &piece : pieces)
    b.ifThen(piece.inside, [&] {
      for (auto [part, value] : llvm::enumerate(piece.values)) {
        Value column = b.add(piece.column, static_cast<int64_t>(part) * piece.span);
        Value element = type == b.f32() ? value : b.fromF32(saturateToHalf(b, value), Float::F16);
        b.store(element, b.advance(to, column, type));
      }
    });
}

void HeadsEmitter::append(ArrayRef<Piece> pieces, bool keys, Value head, const PlaceOfRow &place) {
  AttentionSpec attention;
  attention.kvHeads = spec.keyHeads;
  attention.headDim = spec.headDim;
  FloatCache cache(b, attention, arguments, StepSequence(b, arguments, place.sequence));
  Value position = place.position;
  store(pieces, cache.row(keys, cache.page(position), head, position), b.type(Float::F16));
}

void HeadsEmitter::emit(int64_t threads) {
  int64_t warps = threads / kWarp, heads = spec.allHeads();
  Value row = b.block(0), lane = b.rem(b.thread(), kWarp);
  Value head = b.add(b.mul(b.block(1), warps), b.div(b.thread(), kWarp));
  // All lanes of a warp have the same head.
  b.ifThen(heads % warps == 0 ? Value() : b.less(head, heads), [&] {
    Value x = b.rowOf(arguments["x"], row, arguments["x_stride"], b.f32());
    x = b.advance(x, b.mul(head, spec.headDim), b.f32());
    SmallVector<Piece> pieces;
    load(pieces, x, lane, 0, spec.rotated());
    load(pieces, x, lane, spec.rotated(), spec.headDim);
    if (spec.norm)
      normalize(pieces, head);
    std::optional<PlaceOfRow> place;
    if (spec.positions > 0 || spec.append)
      place.emplace(b, arguments, row);
    auto rotated = [&] {
      SmallVector<Piece> turned = pieces;
      if (spec.positions > 0) {
        Value table = b.rowOf(arguments["table"], place->position, spec.rotated(), b.f32());
        for (Piece &piece : turned)
          if (piece.turns)
            rotate(piece, table);
      }
      if (spec.hadamard)
        takeToBasis(turned, lane);
      return turned;
    };
    if (!spec.append)
      return store(rotated(), x, b.f32());
    b.ifThen(b.less(head, spec.heads), [&] { store(rotated(), x, b.f32()); });
    auto isHead = [&](int64_t first) {
      return b.both(b.less(first - 1, head), b.less(head, first + spec.keyHeads));
    };
    int64_t keys = spec.heads, values = keys + spec.keyHeads;
    b.ifThen(isHead(keys), [&] { append(rotated(), true, b.sub(head, keys), *place); });
    b.ifThen(isHead(values), [&] { append(pieces, false, b.sub(head, values), *place); });
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const HeadsSpec &spec, const Chip &) {
  assert((!spec.hadamard || spec.headDim % spec.hadamard == 0) && "blocks are within a head");
  assert((!spec.hadamard || spec.rotated() == spec.headDim) && "a basis needs columns as they are");
  constexpr int64_t kWarps = 4;
  Description kernel;
  std::string &name = kernel.name;
  name = fmt::format("heads_{}", spec.heads);
  if (spec.keyHeads > 0)
    name += fmt::format("_{}", spec.keyHeads);
  name += fmt::format("x{}", spec.headDim);
  if (spec.norm)
    name += fmt::format("_{}norm{:x}", spec.plainNorm ? "plain" : "",
                        std::bit_cast<uint32_t>(static_cast<float>(spec.epsilon)));
  if (spec.positions > 0)
    name += fmt::format("_rope{}", spec.positions);
  if (spec.rotated() != spec.headDim)
    name += fmt::format("_first{}", spec.rotated());
  if (spec.hadamard)
    name += fmt::format("_h{}", spec.hadamard);
  if (spec.append)
    name += "_append";
  kernel.threads = 32 * kWarps;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(spec.allHeads(), kWarps);
  kernel.parameters = Parameters()
                          .writesRows("x")
                          .constants("weight", spec.hasWeight())
                          .constants("key_weight", spec.hasWeight() && spec.keyHeads > 0)
                          .constants("table", spec.positions > 0)
                          .constants("row_places", spec.positions > 0 || spec.append)
                          .constants("sequences", spec.append)
                          .writes("cache", spec.append)
                          .constants("pages", spec.append)
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    HeadsEmitter(b, spec, arguments).emit(kernel.threads);
  });
}

} // namespace easyquant::gpu
