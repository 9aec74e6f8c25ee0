//===- LaunchBuilder.h - Builds the launches of a step ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_KERNELLIBRARY_LAUNCHBUILDER_H
#define EASYQUANT_KERNELLIBRARY_LAUNCHBUILDER_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Launch/Analysis/Memory.h"
#include "easyquant/Formats/Cache.h"
#include "easyquant/Formats/GpuStep.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

namespace easyquant {

using launch::Phase;

/// A constant of the weights that a step reads.
struct WeightGlobal {
  mlir::MemRefType type;
  int64_t offset; ///< in the artifact's data
};

/// What is the same in all steps of a module.
struct LaunchModule {
  explicit LaunchModule(mlir::ModuleOp module) : module(module), symbols(module) {}

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  int64_t maxRows = 0;
  /// Rows of elements narrower than f32 are padded to a multiple of so many.
  int64_t rowPadding = 8;
  std::string cacheType = "f32"; ///< of what is float in the cache
  /// May the rows of arguments and results lie any distance apart?
  bool stridedArguments = true;
  llvm::MapVector<mlir::StringAttr, WeightGlobal> weights;
};

struct KernelOps;
/// A kernel that makes codes with online scales reads and tracks one site of one state; others have
/// nothing to do with states. Else an error of `op`.
mlir::LogicalResult checkOnline(equant::QuantizeRowsOp op, const KernelOps &kernel);

/// Ops that one kernel computes: an op, or those of a fusion.
struct KernelOps {
  mlir::Operation *whole;                      ///< the op, or the fusion
  llvm::SmallVector<mlir::Operation *, 2> ops; ///< one, or those of the fusion in their order

  explicit KernelOps(mlir::Operation *op);
  mlir::Operation *first() const { return ops.front(); }
  /// The second op, if it is of this kind.
  template <typename OpT> OpT next() const {
    return ops.size() > 1 ? llvm::dyn_cast<OpT>(ops[1]) : OpT();
  }
  /// The first op of this kind; null if there is none.
  template <typename OpT> OpT find() const {
    for (mlir::Operation *op : ops)
      if (auto found = llvm::dyn_cast<OpT>(op))
        return found;
    return OpT();
  }
};

/// What `bench --breakdown` and profilers name an op by.
std::string siteOf(mlir::Operation *op);

/// The numbers of rows for which a launch happens; a second one of 0: no limit.
using RowRange = std::pair<int64_t, int64_t>;

class LaunchBuilder {
public:
  using Copy = std::function<mlir::LogicalResult(LaunchBuilder &, mlir::Value, mlir::Value)>;

  /// A step without ops that takes what `source` takes, then memory for its results.
  LaunchBuilder(LaunchModule &program, mlir::func::FuncOp source, llvm::StringRef name);

  mlir::func::FuncOp step() const { return stepOp; }
  mlir::ModuleOp module() const { return program.module; }
  mlir::MLIRContext *context() { return b.getContext(); }
  int64_t maxRows() const { return program.maxRows; }

  /// What follows is for these ops.
  void begin(const KernelOps &kernel);
  /// Their results, in the memory that was given to them, are those of the fusion.
  void end(const KernelOps &kernel);

  /// Where a value lies that is there: memory, or a number.
  mlir::Value operator[](mlir::Value value);
  /// The same of a constant, where an attribute of its global says that it lies.
  mlir::FailureOr<mlir::Value> weight(mlir::Value value, llvm::StringRef offsetAttribute);
  /// The same of a part of a packed weight; null where it has no such part.
  mlir::FailureOr<mlir::Value> weight(mlir::Value value, numerics::WeightTensor part);
  /// The same of a part of activations in codes.
  mlir::Value part(mlir::Value rows, equant::RowsType::Part part) const {
    return rowParts.lookup({rows, static_cast<int>(part)});
  }
  bool hasWeight(mlir::Value value, llvm::StringRef offsetAttribute) const {
    return memories.contains(value) || globalAttribute<mlir::IntegerAttr>(value, offsetAttribute);
  }
  /// An attribute of the global that a constant is loaded from; null if there is none.
  template <typename AttrT> AttrT globalAttribute(mlir::Value value, llvm::StringRef name) const {
    mlir::ml_program::GlobalOp global = globalOf(value);
    return global ? global->getAttrOfType<AttrT>(name) : AttrT();
  }
  /// Memory for `rows` rows of a result: that of the step's result, if it is one.
  mlir::Value result(mlir::Value value, mlir::Value rows);
  /// The same for a part of activations in codes; null where they have no such part.
  mlir::Value result(mlir::Value value, equant::RowsType::Part part, mlir::Value rows);
  /// Memory for `rows` rows that are no op's result.
  mlir::Value buffer(mlir::Type type, mlir::Value rows);
  /// `multiple` times as many rows, which buffers may have.
  mlir::Value timesRows(mlir::Value rows, int64_t multiple);
  /// The memory of `operand` for a result that is an update of it, or a copy if others read it.
  mlir::FailureOr<mlir::Value> inPlace(mlir::Value result, mlir::Value operand, const Copy &copy);
  /// The same where a fusion has seen to it that nobody else reads it.
  mlir::Value overwrite(mlir::Value result, mlir::Value operand);
  /// Where a linear's result goes: added into the residual stream, if the fusion says so.
  mlir::Value linearResult(const KernelOps &kernel, mlir::Value rows);
  /// The step's memory for the extrema of rows, two numbers for each site of a state. `rows` are
  /// given where it may be the first time. Null if nothing was noted, or if the state has other
  /// sites.
  mlir::Value extrema(mlir::Value state, mlir::Value rows = {});
  /// Results that are parts of memory that is there.
  void setMemory(mlir::Value value, mlir::Value memory) { memories[value] = memory; }

  /// How many rows memory has that is there.
  mlir::Value rows(mlir::Value memory) const { return rowCounts.lookup(memory); }
  mlir::Value columns(mlir::Value memory, int64_t first, int64_t count) {
    return columns(memory, b.getIndexAttr(first), count);
  }
  /// The columns of rank r among `ranks` that share them evenly.
  mlir::Value columnsOfRank(mlir::Value memory, int64_t ranks);
  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value constant(mlir::TypedAttr value) { return mlir::arith::ConstantOp::create(b, value); }
  mlir::Value scratch(int64_t bytes, bool perThread);
  mlir::Value counters(int64_t count);
  /// The pieces of attention, and memory for their partial sums: bytes, and int32s, of a place.
  mlir::Value pieces(const formats::PieceCut &cut);
  mlir::Value partials(int64_t bytes);
  mlir::Value partialCounters(int64_t count);
  /// What is given at run time beside the model's own arguments: "rank", a number; in memory
  /// "pages", "sliding_pages" and "row_states" (int64s), and "row_places" (a RowPlace of each row).
  mlir::Value argument(llvm::StringRef name);
  /// Names an argument of the model's own.
  void setName(mlir::Value value, llvm::StringRef name);

  /// The byte of a page, and of a sequence's window, where a layer's part begins, behind those of
  /// the layers before it; and the bytes of all windows.
  struct CachePlace {
    int64_t page = 0, window = 0, windows = 0;
    bool slides = false; ///< the page is one of those of layers with a window
  };
  /// Where the layer of an attention lies in the cache, `spec` being that of its kernel; an error
  /// if the first attention has another cache. `slide`: layers that read a window have pages of
  /// their own.
  template <typename AttentionSpec>
  mlir::FailureOr<CachePlace> placeInCache(mlir::Operation *attention, AttentionSpec spec,
                                           bool rotatesKeys, bool slide) {
    auto sizesOf = [&](int64_t kvHeads, int64_t headDim) -> formats::CacheSizes {
      spec.kvHeads = kvHeads;
      spec.headDim = headDim;
      const auto bytes = cacheBytes(spec);
      return {.pageTokens = bytes.pageTokens, .pageBytes = bytes.page, .windowBytes = bytes.window};
    };
    return layOutCache(attention, sizesOf, rotatesKeys, slide);
  }
  /// The cache from a byte on.
  mlir::Value cache(mlir::Value cache, int64_t offset) {
    mlir::Value all = (*this)[cache];
    return launch::CacheOp::create(b, all.getType(), all, offset);
  }

  /// What a kernel does to its operands: which it writes, and which the threads of a team share.
  struct Access {
    llvm::SmallVector<int64_t> writes, shares;
    bool meets = false;
  };
  void launch(mlir::SymbolRefAttr kernel, mlir::ValueRange operands, Phase phase,
              const Access &access, std::optional<RowRange> rows = std::nullopt);
  /// The caller reads `operands` and writes `results`.
  void launchHost(int64_t call, mlir::ValueRange operands, mlir::ValueRange results);
  /// Starts the step's next collective, in place: an all_reduce, or without `reduction` an
  /// all_gather. What it gives is waited for where it is read first.
  void startCollective(mlir::Value memory, std::optional<launch::Reduction> reduction,
                       mlir::Value result);
  /// Waits for `result`, if it is that of a collective under way.
  void await(mlir::Value result);
  void awaitAll();

private:
  using SizesOfHeads = llvm::function_ref<formats::CacheSizes(int64_t kvHeads, int64_t headDim)>;
  mlir::FailureOr<CachePlace> layOutCache(mlir::Operation *attention, SizesOfHeads sizesOf,
                                          bool rotatesKeys, bool slide);

  mlir::Value columns(mlir::Value memory, mlir::OpFoldResult first, int64_t count);
  mlir::MemRefType memoryType(mlir::Type type) const;
  mlir::Value fusionResult(mlir::Value value) const;
  mlir::ml_program::GlobalOp globalOf(mlir::Value value) const;
  mlir::Value constant(mlir::Value value, llvm::StringRef name, mlir::RankedTensorType type,
                       int64_t offset);

  LaunchModule &program;
  mlir::func::FuncOp stepOp;
  mlir::ImplicitLocOpBuilder b;
  std::string site; ///< of what is being launched
  llvm::DenseMap<mlir::Value, mlir::Value> memories, rowCounts;
  llvm::DenseMap<mlir::Value, int64_t> multiples;                    ///< of counts of rows
  llvm::DenseMap<std::pair<mlir::Value, int>, mlir::Value> rowParts; ///< of activations in codes
  llvm::DenseMap<mlir::Value, mlir::Value> fused; ///< results in fusions to those of the fusion
  llvm::DenseMap<std::pair<mlir::Value, mlir::Attribute>, mlir::Value> weights;
  llvm::DenseMap<mlir::Value, mlir::Value> outputs; ///< what is returned to where it goes
  llvm::StringMap<mlir::Value> arguments;
  mlir::Value extremaBuffer;                                   ///< of a step with online scales
  llvm::MapVector<mlir::Value, launch::CollectiveOp> underWay; ///< by their results
  int64_t collectives = 0;
};

} // namespace easyquant

#endif // EASYQUANT_KERNELLIBRARY_LAUNCHBUILDER_H
