//===- ConstantTensors.h - Constant expressions -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A weight, norm weight or bias is a global, a global whose rows or columns equivalence transforms
// have scaled (equant.scale), or that is rotated (equant.hadamard), or a part of such
// (tensor.extract_slice): some of its rows or columns. Here are such expressions without the IR,
// and what computes them, a few rows at a time.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_CONSTANTTENSORS_H
#define EASYQUANT_WEIGHTS_CONSTANTTENSORS_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Formats/ComputedConstants.h"
#include "easyquant/Formats/ModelSource.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace easyquant::equant {

struct ConstantStep;

/// Columns in pieces of one width, left to right, each `stride` columns behind the one before.
struct ColumnPieces {
  int64_t first = 0, width = 0, count = 1, stride = 0;

  int64_t total() const { return width * count; }
  /// Takes them of a row; `to` may lie in it, not behind what it takes.
  template <typename T> void take(const T *row, T *to) const {
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(row + first + i * stride, width, to + i * width);
  }
  /// The same in units of `group` columns.
  ColumnPieces inGroups(int64_t group) const;
  /// Equal for equal ones.
  std::string key() const;
};

/// Keeps the pieces of each of `rows` rows of `width` values.
template <typename T>
void takeColumns(std::vector<T> &values, int64_t rows, int64_t width, const ColumnPieces &pieces) {
  for (int64_t row = 0; row < rows; ++row)
    pieces.take(values.data() + row * width, values.data() + row * pieces.total());
  values.resize(rows * pieces.total());
}

/// The pieces that equant.all_slice takes along columns: where each begins, and its extent.
ColumnPieces columnPieces(llvm::ArrayRef<std::pair<int64_t, int64_t>> pieces);

/// A vector or a matrix of constants: a global or a part of it, scaled and rotated any number of
/// times.
struct ConstantTensor {
  std::string global;
  /// The file of a computed global. Empty: a tensor of the model.
  std::string file, stamp;
  bool isStored = false; ///< a part of a weight that the model has in codes
  /// The type that the model's file has its values in, where that is F16 or BF16 and known.
  formats::DType fileType = formats::DType::F32;
  std::vector<int64_t> stored;       ///< the shape of the global
  std::vector<int64_t> first, shape; ///< of the part: where it begins, its extents
  std::vector<ConstantStep> steps;   ///< of the part, in order of application
  bool isOfFirstRank = false;        ///< zeros on the ranks behind it
  bool isZeros = false;              ///< this is a rank behind it

  /// Elements of a row; a vector has one element a row.
  int64_t columns() const;
  bool isComputed() const { return !file.empty(); }
  bool isPart() const { return shape != stored; }
  /// Is it the global as it is?
  bool isGlobal() const { return steps.empty() && !isPart() && !isOfFirstRank; }
  /// The part from `offsets` on, counted from `first`, of `sizes`, that lies in this one.
  void cut(llvm::ArrayRef<int64_t> offsets, llvm::ArrayRef<int64_t> sizes);
  /// The rows that are rotated together; 1 if none are.
  int64_t rowBlock() const;
  /// The last step that rotates rows; null if there is none.
  const ConstantStep *rowRotation() const;
  /// Equal for equal expressions.
  std::string key() const;
  /// Where the whole tensor of a computed global is.
  formats::ComputedPlace place(formats::DType type) const;
};

/// equant.scale, or equant.hadamard if there is a block.
struct ConstantStep {
  int64_t block = 0;
  ConstantTensor factor = {}; ///< a vector
  int64_t axis = 0;           ///< 0: rows have factors or blocks; 1: columns have
  bool divide = false;
  int64_t first = 0; ///< rows before it are not rotated

  bool isRotation(int64_t ofAxis) const { return block != 0 && axis == ofAxis; }
};

/// A value, or a part of it.
struct Part {
  mlir::Value whole;
  /// What tensor.extract_slice takes of it; empty: all.
  llvm::SmallVector<int64_t, 2> offsets, sizes;
};
/// Looks through one tensor.extract_slice. Fails with a diagnostic at `loc` that names `site` where
/// it is none of static offsets and sizes within a vector or a matrix, or has strides.
mlir::FailureOr<Part> matchPart(mlir::Location loc, llvm::StringRef site, mlir::Value value,
                                int64_t rank);

/// The operands of a tree of equant.concat, left to right; the value itself if it is none.
llvm::SmallVector<mlir::Value> concatenated(mlir::Value value);

/// Rows of a constant, or columns of all of its rows, that lie apart in it.
struct ConstantPieces {
  llvm::SmallVector<ConstantTensor, 1> rows; ///< one behind the other
  std::optional<ColumnPieces> columns;       ///< that are taken of them; none: all
};

/// Looks through the ops that make a constant.
class ConstantMatcher {
public:
  explicit ConstantMatcher(mlir::ModuleOp module, int64_t rank = 0) : rank(rank), symbols(module) {}

  /// Whose part a shard.all_slice takes.
  const int64_t rank;

  /// The global with external contents that a tensor is loaded from, be it the model's or computed.
  /// Null if it is none.
  mlir::ml_program::GlobalOp getExternGlobal(mlir::Value value) const;

  /// Fails with a diagnostic at `loc` that names `site` and the op which makes no constant, or
  /// where more than kMaxDepth of them lie on each other.
  mlir::FailureOr<ConstantTensor> match(mlir::Location loc, llvm::StringRef site,
                                        mlir::Value value) const {
    return match(loc, site, value, /*depth=*/0);
  }
  static constexpr int kMaxDepth = 64;
  /// The same of a value that may be pieces of a constant (equant.all_slice).
  mlir::FailureOr<ConstantPieces> matchPieces(mlir::Location loc, llvm::StringRef site,
                                              mlir::Value value) const;

private:
  mlir::FailureOr<ConstantTensor> match(mlir::Location loc, llvm::StringRef site, mlir::Value value,
                                        int depth) const;

  mlir::SymbolTable symbols;
};

/// The tensors that the globals of a module name. Reading is thread-safe.
class ConstantReader {
public:
  /// Opens what `lm.source` names. Fails with a diagnostic.
  static mlir::FailureOr<ConstantReader> open(mlir::ModuleOp module);

  const formats::ModelSource &source() const { return model; }
  const formats::ComputedConstants &computed() const { return work; }

  /// Can it be read: are all its tensors there, with their shapes and stamps, and computed ones
  /// with their type? Errors name file and
  /// tensor: NotFound, Corrupt.
  Result<void> check(const ConstantTensor &tensor, formats::DType type = formats::DType::F32) const;

  /// Rows firstRow .. firstRow + rows - 1, row-major, into rows * columns() elements. Every value
  /// is finite. Errors: those of ModelSource::readRows and ComputedConstants::readRows; Corrupt
  /// when a scaled value is not finite, naming the tensor, the value and the factor.
  Result<void> readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                        std::span<float> out) const;
  /// The same of integers, computed or of a weight that the model has in codes: codes, zero points.
  Result<void> readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                        std::span<int8_t> out) const;
  Result<void> readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                        std::span<int32_t> out) const;

private:
  ConstantReader(formats::ModelSource model, formats::ComputedConstants work)
      : model(std::move(model)), work(std::move(work)) {}
  Result<void> scale(const ConstantStep &step, const ConstantTensor &tensor, int64_t firstRow,
                     int64_t rows, std::span<float> values) const;
  Result<void> readBlocks(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                          std::span<float> out) const;

  formats::ModelSource model;
  formats::ComputedConstants work;
};

/// The folder `work`, which `equant.work` names from then on; if it is empty, the one that
/// `equant.work` names. Fails with a diagnostic if there is neither.
mlir::FailureOr<std::string> getWorkFolder(mlir::ModuleOp module, llvm::StringRef work);

/// Is there a file of an earlier run with these metadata, or with this stamp? A remark names a
/// damaged one, which is removed, so that it is computed again.
bool isIntact(mlir::Location loc, const std::filesystem::path &file,
              const formats::FileMetadata &metadata);
bool isIntact(mlir::Location loc, const formats::ComputedConstants &work, llvm::StringRef file,
              llvm::StringRef stamp);

/// Declares the computed tensor `name` of `file` before the first function; one of this name that
/// is there already gets the new type, file and stamp.
mlir::ml_program::GlobalOp declareComputed(mlir::ModuleOp module, llvm::StringRef name,
                                           mlir::RankedTensorType type, llvm::StringRef file,
                                           llvm::StringRef stamp);

/// A load of `global` at the builder's place.
/// A part of a weight that the model's source has in codes, by the name of partName. A global of
/// that name goes.
mlir::ml_program::GlobalOp declareStored(mlir::ModuleOp module, llvm::StringRef name,
                                         mlir::RankedTensorType type);

mlir::Value loadGlobal(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::ml_program::GlobalOp global);

/// Is what an extern global names there, in the shape that the IR says? Asked before anybody
/// allocates by that shape. Fails with a diagnostic.
mlir::LogicalResult checkGlobal(mlir::ml_program::GlobalOp global, const ConstantReader &reader);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_CONSTANTTENSORS_H
