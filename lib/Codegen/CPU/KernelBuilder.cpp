//===- KernelBuilder.cpp - Shorthand for building kernels -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "Instructions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

using namespace mlir;

namespace easyquant::cpu {

MemRefType rowsType(Builder &b, int64_t columns, Type element) {
  auto layout =
      StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
  return MemRefType::get({ShapedType::kDynamic, columns}, element ? element : b.getF32Type(),
                         layout);
}

Parameter &Describer::add(StringRef name, Type type) {
  const bool isShared = over == Over::Rows && isa<MemRefType>(type);
  return kernel.parameters.emplace_back(Parameter{name.str(), type, /*written=*/false, isShared});
}

static SmallVector<Value> indices(KernelBuilder &b, ArrayRef<Index> at) {
  return llvm::map_to_vector(at, [&](Index i) { return b.index(i); });
}

//===- Constants and indices ----------------------------------------------===//

Value KernelBuilder::index(Index i) {
  return i.value ? i.value : arith::ConstantIndexOp::create(*this, i.constant).getResult();
}

Value KernelBuilder::constant(Type type, int64_t value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr = getIntegerAttr(element, APInt(element.getIntOrFloatBitWidth(), value,
                                                 /*isSigned=*/true, /*implicitTrunc=*/true));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(*this, attr);
}

Value KernelBuilder::min(Index a, Index b) { return fold<arith::MinUIOp>(a, b); }
Value KernelBuilder::max(Index a, Index b) { return fold<arith::MaxUIOp>(a, b); }
Value KernelBuilder::less(Index a, Index b) { return compare(arith::CmpIPredicate::ult, a, b); }
Value KernelBuilder::size(Value memref, int64_t dim) {
  return createOrFold<memref::DimOp>(memref, dim);
}

//===- Memory -------------------------------------------------------------===//

Value KernelBuilder::load(Value memref, ArrayRef<Index> at) {
  return memref::LoadOp::create(*this, memref, indices(*this, at));
}
void KernelBuilder::store(Value value, Value memref, ArrayRef<Index> at) {
  memref::StoreOp::create(*this, value, memref, indices(*this, at));
}
Value KernelBuilder::loadVector(int64_t lanes, Value memref, ArrayRef<Index> at) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  return vector::LoadOp::create(*this, vec(lanes, element), memref, indices(*this, at));
}
void KernelBuilder::storeVector(Value vector, Value memref, ArrayRef<Index> at) {
  vector::StoreOp::create(*this, vector, memref, indices(*this, at));
}
Value KernelBuilder::loadFirst(Index count, int64_t lanes, Value memref, ArrayRef<Index> at) {
  VectorType type = vec(lanes, cast<MemRefType>(memref.getType()).getElementType());
  Value mask = vector::CreateMaskOp::create(*this, vec(lanes, getI1Type()), index(count));
  return vector::MaskedLoadOp::create(*this, type, memref, indices(*this, at), mask, zero(type));
}
void KernelBuilder::storeFirst(Index count, Value vector, Value memref, ArrayRef<Index> at) {
  int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  Value mask = vector::CreateMaskOp::create(*this, vec(lanes, getI1Type()), index(count));
  vector::MaskedStoreOp::create(*this, memref, indices(*this, at), mask, vector);
}
Value KernelBuilder::gather(Value memref, ArrayRef<Index> at, Value offsets) {
  const int64_t lanes = cast<VectorType>(offsets.getType()).getNumElements();
  VectorType type = vec(lanes, cast<MemRefType>(memref.getType()).getElementType());
  Value all = vector::ConstantMaskOp::create(*this, vec(lanes, getI1Type()), ArrayRef{lanes});
  return vector::GatherOp::create(*this, type, memref, indices(*this, at), offsets, all,
                                  zero(type));
}
Value KernelBuilder::view(Value bytes, Index offset, MemRefType type) {
  return memref::ViewOp::create(*this, type, bytes, index(offset), ValueRange());
}
Value KernelBuilder::part(Value memref, Index first, Index count) {
  if (!memref)
    return {};
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<OpFoldResult> offsets(type.getRank(), getIndexAttr(0)), sizes,
      strides(type.getRank(), getIndexAttr(1));
  offsets[0] = index(first);
  sizes.push_back(index(count));
  for (int64_t extent : type.getShape().drop_front())
    sizes.push_back(getIndexAttr(extent));
  return memref::SubViewOp::create(*this, memref, offsets, sizes, strides);
}
Value KernelBuilder::collapse(Value memref, int64_t keep) {
  int64_t rank = cast<MemRefType>(memref.getType()).getRank();
  SmallVector<ReassociationIndices> groups;
  for (int64_t d = 0; d < keep; ++d)
    groups.push_back({d});
  ReassociationIndices last(rank - keep);
  std::iota(last.begin(), last.end(), keep);
  groups.push_back(last);
  return memref::CollapseShapeOp::create(*this, memref, groups);
}

//===- Arithmetic ---------------------------------------------------------===//

Value KernelBuilder::addi(Value a, Value b) { return createOrFold<arith::AddIOp>(a, b); }
Value KernelBuilder::subi(Value a, Value b) { return createOrFold<arith::SubIOp>(a, b); }
Value KernelBuilder::muli(Value a, Value b) { return createOrFold<arith::MulIOp>(a, b); }
Value KernelBuilder::andi(Value a, int64_t mask) {
  return createOrFold<arith::AndIOp>(a, constant(a.getType(), mask));
}
Value KernelBuilder::xori(Value a, int64_t mask) {
  return createOrFold<arith::XOrIOp>(a, constant(a.getType(), mask));
}
Value KernelBuilder::ori(Value a, Value b) { return createOrFold<arith::OrIOp>(a, b); }
Value KernelBuilder::shl(Value a, int64_t bits) {
  return createOrFold<arith::ShLIOp>(a, constant(a.getType(), bits));
}
Value KernelBuilder::shrLogical(Value a, int64_t bits) {
  return createOrFold<arith::ShRUIOp>(a, constant(a.getType(), bits));
}
Value KernelBuilder::shrArithmetic(Value a, int64_t bits) {
  return createOrFold<arith::ShRSIOp>(a, constant(a.getType(), bits));
}
Value KernelBuilder::fma(Value a, Value b, Value c) {
  return vector::FMAOp::create(*this, a, b, c);
}
Value KernelBuilder::signExtend(Value integers, Type element) {
  return arith::ExtSIOp::create(*this, withElement(integers, element), integers);
}
Value KernelBuilder::zeroExtend(Value integers, Type element) {
  return arith::ExtUIOp::create(*this, withElement(integers, element), integers);
}
Value KernelBuilder::broadcast(Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(*this, vec(lanes, scalar.getType()), scalar);
}
Value KernelBuilder::bitcast(Value vector, VectorType type) {
  return createOrFold<vector::BitCastOp>(type, vector);
}
Value KernelBuilder::shuffle(Value a, Value b, ArrayRef<int64_t> mask) {
  return vector::ShuffleOp::create(*this, a, b, mask);
}
Value KernelBuilder::slice(Value vector, int64_t first, int64_t count) {
  SmallVector<int64_t> mask(count);
  std::iota(mask.begin(), mask.end(), first);
  return shuffle(vector, vector, mask);
}
Value KernelBuilder::join(Value low, Value high) {
  SmallVector<int64_t> mask(2 * cast<VectorType>(low.getType()).getNumElements());
  std::iota(mask.begin(), mask.end(), 0);
  return shuffle(low, high, mask);
}
Value KernelBuilder::extract(Value vector, int64_t lane) {
  return vector::ExtractOp::create(*this, vector, lane);
}

Value KernelBuilder::sumLanes(Value vector) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(vector));
  for (int64_t n = cast<VectorType>(vector.getType()).getNumElements() / 2; n > 0; n /= 2) {
    Value low = slice(vector, 0, n), high = slice(vector, n, n);
    vector = isFloat ? addf(low, high) : addi(low, high);
  }
  return extract(vector, 0);
}

SmallVector<Value> KernelBuilder::transpose8(ArrayRef<Value> rows) {
  assert(rows.size() == 8 && "an 8 x 8 block");
  SmallVector<Value> in(rows), out(8);
  // Interleave pairs of rows, then pairs of pairs, each within 128-bit halves; last the halves.
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = shuffle(in[2 * i], in[2 * i + 1], {0, 8, 1, 9, 4, 12, 5, 13});
    out[2 * i + 1] = shuffle(in[2 * i], in[2 * i + 1], {2, 10, 3, 11, 6, 14, 7, 15});
  }
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 2; ++i) {
      Value a = out[4 * half + i], c = out[4 * half + 2 + i];
      in[4 * half + 2 * i] = shuffle(a, c, {0, 1, 8, 9, 4, 5, 12, 13});
      in[4 * half + 2 * i + 1] = shuffle(a, c, {2, 3, 10, 11, 6, 7, 14, 15});
    }
  for (int i = 0; i < 4; ++i) {
    out[i] = shuffle(in[i], in[4 + i], {0, 1, 2, 3, 8, 9, 10, 11});
    out[4 + i] = shuffle(in[i], in[4 + i], {4, 5, 6, 7, 12, 13, 14, 15});
  }
  return out;
}

//===- Machine instructions -----------------------------------------------===//

Value KernelBuilder::intrinsic(StringRef name, Type type, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(*this, type, getStringAttr(name), operands).getResult(0);
}

Value KernelBuilder::dotU8S8(Value acc, Value u8, Value s8) {
  return x86::dotU8S8(*this, acc, u8, s8);
}
Value KernelBuilder::dotS8S8(Value acc, Value a, Value c) { return arm::dotS8S8(*this, acc, a, c); }
Value KernelBuilder::dotPairs(Value a, Value c) {
  return target.isArm() ? arm::dotPairs(*this, a, c) : x86::dotPairs(*this, a, c);
}
Value KernelBuilder::lookup(Value table, Value index) {
  return target.isArm() ? arm::lookup(*this, table, index) : x86::lookup(*this, table, index);
}
Value KernelBuilder::lookupBytes(Value table, Value index) {
  return target.isArm() ? arm::lookupBytes(*this, table, index)
                        : x86::lookupBytes(*this, table, index);
}

Value KernelBuilder::floats(ArrayRef<float> values) {
  VectorType type = vec(std::ssize(values), f32());
  return arith::ConstantOp::create(*this, DenseElementsAttr::get(type, values));
}

void KernelBuilder::prefetch(Value memref, ArrayRef<Index> at, bool first) {
  memref::PrefetchOp::create(*this, memref, indices(*this, at), /*isWrite=*/false,
                             /*localityHint=*/first ? 3 : 2, /*isDataCache=*/true);
}

//===- Control flow -------------------------------------------------------===//

void KernelBuilder::ifThenElse(Value condition, llvm::function_ref<void()> thenBody,
                               llvm::function_ref<void()> elseBody) {
  auto op = scf::IfOp::create(*this, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  thenBody();
  setInsertionPointToStart(op.elseBlock());
  elseBody();
}

void KernelBuilder::switchOn(Value selector, int64_t first, int64_t last,
                             llvm::function_ref<void(int64_t)> body) {
  SmallVector<int64_t> cases(last - first + 1);
  std::iota(cases.begin(), cases.end(), first);
  auto op = scf::IndexSwitchOp::create(*this, TypeRange(), selector, cases, cases.size());
  OpBuilder::InsertionGuard guard(*this);
  for (auto [value, region] : llvm::zip_equal(cases, op.getCaseRegions())) {
    setInsertionPointToStart(&region.emplaceBlock());
    body(value);
    scf::YieldOp::create(*this);
  }
  setInsertionPointToStart(&op.getDefaultRegion().emplaceBlock());
  scf::YieldOp::create(*this);
}

std::pair<Value, Value> shareOf(KernelBuilder &b, Index count, const Team &team) {
  auto boundary = [&](Value t) {
    return b.createOrFold<arith::DivUIOp>(b.mul(count, t), team.threads);
  };
  return {boundary(team.thread), boundary(b.add(team.thread, 1))};
}

func::FuncOp getOrEmitFunction(ModuleOp module, StringRef name, const Target &target,
                               TypeRange arguments,
                               llvm::function_ref<void(KernelBuilder &, ValueRange)> build) {
  if (auto existing = module.lookupSymbol<func::FuncOp>(name))
    return existing;
  KernelBuilder b(module.getLoc(), module.getContext(), target);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType(arguments, {}));
  function.setPrivate();
  b.setInsertionPointToStart(function.addEntryBlock());
  build(b, function.getArguments());
  func::ReturnOp::create(b);
  return function;
}

func::FuncOp getOrEmitKernel(
    ModuleOp module, const Description &kernel, const Target &target,
    llvm::function_ref<void(KernelBuilder &, const KernelArguments &, const Team &)> build) {
  SmallVector<Type> types =
      llvm::map_to_vector(kernel.parameters, [](const Parameter &p) { return p.type; });
  Team::appendTypes(module.getContext(), types);
  return getOrEmitFunction(module, kernel.name, target, types,
                           [&](KernelBuilder &b, ValueRange args) {
                             build(b, KernelArguments(kernel, args.drop_back(3)), Team::of(args));
                           });
}

} // namespace easyquant::cpu
