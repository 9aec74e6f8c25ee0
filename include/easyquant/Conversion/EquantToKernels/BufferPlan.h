//===- BufferPlan.h - Where activations live --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pure analysis of one function on activations (one block, tensors of rows): which values share
// memory, which linears add into the residual stream, which values exist only as codes, and the
// offset of each buffer in the arena. convert-equant-to-kernels emits what it decides.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOKERNELS_BUFFERPLAN_H
#define EASYQUANT_CONVERSION_EQUANTTOKERNELS_BUFFERPLAN_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace easyquant {

/// Most tokens of one call.
constexpr int64_t kMaxRows = int64_t(1) << 20;
/// Most bytes of an arena or a cache: what a process can address.
constexpr int64_t kMaxPlannedBytes = int64_t(1) << 47;

/// Buffers start at multiples of a cache line.
constexpr int64_t kBufferAlignment = 64;
constexpr int64_t alignBuffer(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// tensor<?xCxf32>: rows of tokens.
bool isActivationType(mlir::Type type);

/// What differs between the machines that buffers are planned for.
struct BufferRules {
  int64_t codeColumns = 8; ///< rows of codes are padded to a multiple of this
  /// Linears that do not read codes read halves, which the kernel that makes the activation writes,
  /// and nothing is planned for what a public function returns.
  bool gpu = false;
};

/// The codes of an activation as one kind of linear reads them: what quantizedUse gives says how
/// they are made.
using QuantizedValue = std::pair<mlir::Value, mlir::ArrayAttr>;

class BufferPlan {
public:
  /// Plans `function` for calls of at most `maxRows` (1 to kMaxRows) rows, its buffers from byte
  /// `base` of the arena on. Fails with a diagnostic if the function is not of the form above, or
  /// its buffers end behind kMaxPlannedBytes.
  static mlir::FailureOr<BufferPlan> create(mlir::func::FuncOp function, int64_t maxRows,
                                            int64_t base, BufferRules rules = {});

  /// The value whose memory `value` is stored in (itself, or what it overwrites).
  mlir::Value storageOf(mlir::Value value) const;
  /// The arena offset of a value that owns float memory, if it does.
  std::optional<int64_t> offsetOf(mlir::Value value) const;
  /// The arena offset of the codes, followed by scales, sums and zero points, each aligned to
  /// kBufferAlignment.
  int64_t offsetOf(QuantizedValue value) const { return quantized.lookup(value).offset; }
  /// True if the value is only ever read as codes, which its producer writes directly.
  bool isQuantizedOnly(mlir::Value value) const { return quantizedOnly.contains(value); }
  /// The add whose result this linear produces by adding into the other operand's memory.
  mlir::Operation *accumulatingAdd(mlir::Operation *linear) const {
    return accumulating.lookup(linear);
  }
  /// The first byte behind the function's buffers.
  int64_t end() const { return endOffset; }

private:
  struct Buffer {
    int64_t bytes = 0;
    int first = 0, last = 0; ///< positions of the ops that write it first and read it last
    int64_t offset = -1;
  };

  explicit BufferPlan(BufferRules rules) : rules(rules) {}
  void shareMemory(mlir::Block &block);
  void measure(mlir::Block &block, int64_t maxRows);
  /// The first byte behind all buffers, or more than kMaxPlannedBytes.
  int64_t place(int64_t base);

  BufferRules rules;
  llvm::DenseMap<mlir::Operation *, int> position;
  llvm::DenseMap<mlir::Value, mlir::Value> storage;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> accumulating;
  llvm::DenseSet<mlir::Value> quantizedOnly;
  llvm::MapVector<mlir::Value, Buffer> floats;
  llvm::MapVector<QuantizedValue, Buffer> quantized;
  int64_t endOffset = 0;
};

/// The plans of @forward and of the layers that it calls. The buffers of @forward come first; below
/// them, all layers use the same memory one after another.
struct ModelPlan {
  llvm::MapVector<mlir::func::FuncOp, BufferPlan> functions;
  int64_t arenaBytes = 0;

  /// Fails with a diagnostic also if maxRows is not 1 to kMaxRows, a function calls itself, or one
  /// that is not `forward` calls another or is no layer.
  static mlir::FailureOr<ModelPlan> create(mlir::ModuleOp module, mlir::func::FuncOp forward,
                                           int64_t maxRows, BufferRules rules = {});
};

/// Fails with a diagnostic of the attention `op` if a page, or the window of a sequence, has more
/// than kMaxPlannedBytes; the bytes are those of one layer.
mlir::LogicalResult verifyCacheBytes(mlir::Operation *op, int64_t layers, int64_t pageBytes,
                                     int64_t windowBytes);

/// How codes are made: the group size of the weights that read them (0: per channel), the scheme,
/// and scale and zero point where it is static. Linears for which all of it is the same share
/// codes. Or halves, the form in which linears on float activations read theirs on a GPU.
struct CodesKind {
  int64_t groupSize = 0;
  equant::SchemeAttr scheme;
  mlir::FloatAttr scale;
  mlir::IntegerAttr zeroPoint;
  mlir::UnitAttr halves{}; ///< nothing of the above then

  bool isHalves() const { return bool(halves); }
  bool isStatic() const { return bool(scale); }
  bool hasZeroPoints() const { return bool(zeroPoint); }
  mlir::ArrayAttr key() const;
  static CodesKind of(equant::LinearOp linear);
};

/// The kind of codes in which `use` reads an activation, if it is the input of a linear with a
/// quantized input; or halves, where the rules know them.
std::optional<CodesKind> quantizedUse(mlir::OpOperand &use, const BufferRules &rules = {});

/// Bytes of codes, scales, sums and zero points for `rows` rows of `columns` values, in that order,
/// each part aligned. Halves have no part but the first.
struct QuantizedBytes {
  int64_t codes, scales, sums, zeroPoints;
  int64_t total() const { return codes + scales + sums + zeroPoints; }
};
QuantizedBytes quantizedBytes(int64_t columns, const CodesKind &kind, int64_t rows,
                              const BufferRules &rules = {});

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOKERNELS_BUFFERPLAN_H
