//===- KernelBuilder.cpp - Shorthand for building GPU kernels -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace easyquant::gpu {

static constexpr unsigned kGlobalSpace = static_cast<unsigned>(NVVM::NVVMMemorySpace::Global);
static constexpr unsigned kSharedSpace = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);

Type KernelBuilder::type(Float element) {
  switch (element) {
  case Float::F32:
    return getF32Type();
  case Float::F16:
    return getF16Type();
  case Float::BF16:
    return getBF16Type();
  }
  llvm_unreachable("all float types are named");
}

//===- Integers -----------------------------------------------------------===//

Value KernelBuilder::i32(Int i) {
  return i.value ? i.value
                 : arith::ConstantIntOp::create(*this, getI32Type(), i.constant).getResult();
}
Value KernelBuilder::min(Int a, Int b) { return createOrFold<arith::MinSIOp>(i32(a), i32(b)); }
Value KernelBuilder::max(Int a, Int b) { return createOrFold<arith::MaxSIOp>(i32(a), i32(b)); }
Value KernelBuilder::andi(Int a, Int b) { return createOrFold<arith::AndIOp>(i32(a), i32(b)); }
Value KernelBuilder::ori(Int a, Int b) { return createOrFold<arith::OrIOp>(i32(a), i32(b)); }
Value KernelBuilder::xori(Int a, Int b) { return createOrFold<arith::XOrIOp>(i32(a), i32(b)); }
Value KernelBuilder::shl(Int a, Int bits) { return createOrFold<arith::ShLIOp>(i32(a), i32(bits)); }
Value KernelBuilder::shr(Int a, Int bits) {
  return createOrFold<arith::ShRUIOp>(i32(a), i32(bits));
}
Value KernelBuilder::shrArithmetic(Int a, Int bits) {
  return createOrFold<arith::ShRSIOp>(i32(a), i32(bits));
}
Value KernelBuilder::turnRight(Int a, Int bits) {
  Value word = i32(a);
  return LLVM::FshrOp::create(*this, word, word, i32(bits));
}
Value KernelBuilder::maskXor(Value a, int64_t mask, Int b) {
  constexpr int kTruthTable = (0xf0 & 0xcc) ^ 0xaa;
  return LLVM::InlineAsmOp::create(
             *this, i32(), ValueRange{a, i32(mask), i32(b)},
             ("lop3.b32 $0, $1, $2, $3, " + llvm::Twine(kTruthTable) + ";").str(), "=r,r,n,r",
             /*has_side_effects=*/false, /*is_align_stack=*/false,
             LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}
Value KernelBuilder::less(Int a, Int b) { return compare(arith::CmpIPredicate::slt, a, b); }
Value KernelBuilder::mulWide(Int a, Int b) {
  return createOrFold<arith::MulIOp>(createOrFold<arith::ExtSIOp>(i64(), i32(a)),
                                     createOrFold<arith::ExtSIOp>(i64(), i32(b)));
}

//===- Floats -------------------------------------------------------------===//

Value KernelBuilder::maxf(Value a, Value b) { return createOrFold<arith::MaxNumFOp>(a, b); }
Value KernelBuilder::minf(Value a, Value b) { return createOrFold<arith::MinNumFOp>(a, b); }
Value KernelBuilder::fma(Value a, Value b, Value c) { return math::FmaOp::create(*this, a, b, c); }

// No math.absf: convert-gpu-to-nvvm insists on a call of libdevice for it.
Value KernelBuilder::magnitude(Value x) {
  return bitcast(andi(bitcast(x, i32()), 0x7fffffff), f32());
}

Value KernelBuilder::toF32(Value x) {
  if (getElementTypeOrSelf(x).isF32())
    return x;
  return arith::ExtFOp::create(*this, withElement(x, f32()), x);
}
Value KernelBuilder::fromF32(Value x, Float element) {
  if (element == Float::F32)
    return x;
  return arith::TruncFOp::create(*this, withElement(x, type(element)), x);
}
Value KernelBuilder::bitcast(Value value, Type type) {
  return value.getType() == type ? value : LLVM::BitcastOp::create(*this, type, value).getResult();
}
Value KernelBuilder::extract(Value vector, int64_t lane) {
  if (!isa<VectorType>(vector.getType()))
    return vector;
  return createOrFold<vector::ExtractOp>(vector, lane);
}
KernelBuilder::Values KernelBuilder::elements(Value vector) {
  auto type = dyn_cast<VectorType>(vector.getType());
  return llvm::map_to_vector(llvm::seq<int64_t>(type ? type.getNumElements() : 1),
                             [&](int64_t lane) { return extract(vector, lane); });
}
Value KernelBuilder::join(ValueRange scalars) {
  if (scalars.size() == 1)
    return scalars.front();
  return vector::FromElementsOp::create(*this, vec(scalars.size(), scalars.front().getType()),
                                        scalars);
}

Value KernelBuilder::pair(Float element, double value) {
  llvm::APFloat x(value);
  bool lossy;
  x.convert(cast<FloatType>(type(element)).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
            &lossy);
  uint32_t bits = static_cast<uint32_t>(x.bitcastToAPInt().getZExtValue());
  return i32(static_cast<int32_t>(bits << 16 | bits));
}
Value KernelBuilder::pair(Value scalar) { return bitcast(join({scalar, scalar}), i32()); }
Value KernelBuilder::pairFma(Float element, Value a, Value b, Value c) {
  VectorType two = vec(2, type(element));
  return bitcast(LLVM::FMAOp::create(*this, bitcast(a, two), bitcast(b, two), bitcast(c, two)),
                 i32());
}

Value KernelBuilder::exp2Approximate(Value x) {
  return intrinsic("llvm.nvvm.ex2.approx", f32(), x);
}
Value KernelBuilder::reciprocalApproximate(Value x) {
  return intrinsic("llvm.nvvm.rcp.approx.ftz.f", f32(), x);
}
Value KernelBuilder::reciprocalRootApproximate(Value x) {
  return intrinsic("llvm.nvvm.rsqrt.approx.f", f32(), x);
}

//===- Memory -------------------------------------------------------------===//

Value KernelBuilder::advance(Value pointer, Int count, Type element) {
  if (!count.value)
    return count.constant == 0 ? pointer
                               : LLVM::GEPOp::create(*this, pointer.getType(), element, pointer,
                                                     LLVM::GEPArg(count.constant))
                                     .getResult();
  return LLVM::GEPOp::create(*this, pointer.getType(), element, pointer, LLVM::GEPArg(count.value));
}
Value KernelBuilder::rowOf(Value pointer, Value row, Int stride, Type element) {
  return advance(pointer, mulWide(row, stride), element);
}

static uint64_t bytesOf(Type type) {
  int64_t lanes = 1;
  if (auto vector = dyn_cast<VectorType>(type))
    lanes = vector.getNumElements();
  return lanes * getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8;
}
Value KernelBuilder::load(Value pointer, Type type, bool constant) {
  return LLVM::LoadOp::create(*this, type, pointer, bytesOf(type), /*isVolatile=*/false,
                              /*isNonTemporal=*/false, /*isInvariant=*/constant);
}
void KernelBuilder::store(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, bytesOf(value.getType()));
}

Value KernelBuilder::global(StringRef name, int64_t bytes, bool external) {
  auto module = getInsertionBlock()->getParentOp()->getParentOfType<mlir::gpu::GPUModuleOp>();
  auto existing = module.lookupSymbol<LLVM::GlobalOp>(name);
  if (!existing) {
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPointToStart(module.getBody());
    existing = LLVM::GlobalOp::create(
        *this, LLVM::LLVMArrayType::get(i8(), bytes), /*isConstant=*/false,
        external ? LLVM::Linkage::External : LLVM::Linkage::Internal, name, Attribute(),
        /*alignment=*/128, kSharedSpace);
  }
  return LLVM::AddressOfOp::create(*this, existing);
}
Value KernelBuilder::sharedMemory(int64_t bytes) {
  auto function = getInsertionBlock()->getParentOp()->getParentOfType<mlir::gpu::GPUFuncOp>();
  if (!function)
    function = cast<mlir::gpu::GPUFuncOp>(getInsertionBlock()->getParentOp());
  return global((function.getName() + "_shared").str(), bytes, /*external=*/false);
}
Value KernelBuilder::dynamicSharedMemory() { return global("dynamic_shared", 0, true); }

void KernelBuilder::copyAsync16(Value shared, Value global, Value valid) {
  Value bytes = valid ? select(valid, i32(16), i32(0)) : Value();
  NVVM::CpAsyncOp::create(*this, shared, global, 16, NVVM::LoadCacheModifierKind::CG, bytes);
}
void KernelBuilder::copyAsync(Value shared, Value global, Value bytes) {
  NVVM::CpAsyncOp::create(*this, shared, global, 16, NVVM::LoadCacheModifierKind::CG, bytes);
}
void KernelBuilder::commitCopies() { NVVM::CpAsyncCommitGroupOp::create(*this); }
void KernelBuilder::waitForCopies(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(*this, static_cast<int32_t>(pending));
}

//===- Threads ------------------------------------------------------------===//

Value KernelBuilder::thread() { return NVVM::ThreadIdXOp::create(*this, i32()); }
Value KernelBuilder::block(int64_t dimension) {
  if (dimension == 0)
    return NVVM::BlockIdXOp::create(*this, i32());
  if (dimension == 1)
    return NVVM::BlockIdYOp::create(*this, i32());
  return NVVM::BlockIdZOp::create(*this, i32());
}
Value KernelBuilder::warp() {
  // Code that depends on the quotient alone would be code for lanes that may go apart.
  return NVVM::ShflOp::create(*this, i32(), i32(-1), div(thread(), 32), i32(0), i32(31),
                              NVVM::ShflKind::idx, UnitAttr());
}
void KernelBuilder::warpBarrier() { NVVM::SyncWarpOp::create(*this, i32(-1)); }
void KernelBuilder::barrier() { NVVM::Barrier0Op::create(*this); }

Value KernelBuilder::shuffleXor(Value value, int64_t mask) {
  return NVVM::ShflOp::create(*this, value.getType(), i32(-1), value, i32(mask), i32(31),
                              NVVM::ShflKind::bfly, UnitAttr());
}
Value KernelBuilder::warpSum(Value value) {
  if (value.getType().isInteger(32))
    return NVVM::ReduxOp::create(*this, i32(), value, NVVM::ReduxKind::ADD, i32(-1));
  for (int64_t mask = 16; mask > 0; mask /= 2)
    value = addf(value, shuffleXor(value, mask));
  return value;
}
Value KernelBuilder::warpMaxUnsigned(Value value) {
  return NVVM::ReduxOp::create(*this, i32(), value, NVVM::ReduxKind::UMAX, i32(-1));
}
void KernelBuilder::atomicAddShared(Value value, Value pointer) {
  LLVM::AtomicRMWOp::create(*this, LLVM::AtomicBinOp::add, pointer, value,
                            LLVM::AtomicOrdering::monotonic);
}

void KernelBuilder::fence() {
  LLVM::CallIntrinsicOp::create(*this, getStringAttr("llvm.nvvm.membar.gl"), ValueRange());
}
void KernelBuilder::ifLastBlock(Int most, Value counter, Value shared,
                                llvm::function_ref<void()> body) {
  fence();
  barrier(); // also: all are through with shared memory
  ifThen(equal(thread(), 0), [&] {
    store(LLVM::AtomicRMWOp::create(*this, LLVM::AtomicBinOp::uinc_wrap, counter, i32(most),
                                    LLVM::AtomicOrdering::monotonic, "device"),
          shared);
  });
  barrier();
  ifThen(equal(load(shared, i32()), most), [&] {
    fence();
    body();
  });
}

//===- Tensor cores -------------------------------------------------------===//

/// The four members of a struct.
static KernelBuilder::Values membersOf(KernelBuilder &b, Value aggregate) {
  KernelBuilder::Values members;
  for (int64_t i = 0; i < 4; ++i)
    members.push_back(LLVM::ExtractValueOp::create(b, aggregate, i));
  return members;
}

KernelBuilder::Values KernelBuilder::loadMatrix4(Value shared, bool transposed) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(), SmallVector<Type>(4, i32()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(getContext(), 8, 8);
  auto layout = transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row;
  return membersOf(*this, NVVM::LdMatrixOp::create(*this, type, shared, 4, layout, shape,
                                                   NVVM::LdStMatrixEltType::B16));
}

using OperandTypes = std::array<NVVM::MMATypes, 2>;
static constexpr std::array kLayouts = {NVVM::MMALayout::row, NVVM::MMALayout::col};

KernelBuilder::Values KernelBuilder::multiplyBytes(ValueRange a, ValueRange w, ValueRange c) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(), SmallVector<Type>(4, i32()));
  // Saturation changes nothing inside the bounds of K, and is the form that all chips share.
  return membersOf(*this, NVVM::MmaOp::create(*this, type, a, w, c, ArrayRef<int64_t>{16, 8, 32},
                                              std::nullopt, NVVM::MMAIntOverflow::satfinite,
                                              OperandTypes{NVVM::MMATypes::s8, NVVM::MMATypes::s8},
                                              kLayouts));
}

KernelBuilder::Values KernelBuilder::multiplyFP8(ValueRange a, ValueRange w, ValueRange c) {
  // nvvm.mma.sync does not know these products, which LLVM has.
  Type type = LLVM::LLVMStructType::getLiteral(getContext(), SmallVector<Type>(4, f32()));
  Values operands(a);
  llvm::append_range(operands, w);
  llvm::append_range(operands, c);
  return membersOf(*this,
                   intrinsic("llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32", type, operands));
}

KernelBuilder::Values KernelBuilder::multiplyBlocks(ValueRange a, ValueRange w, ValueRange c,
                                                    Value aScales, int64_t aThread, Value wScales,
                                                    int64_t wThread) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(), SmallVector<Type>(4, f32()));
  auto selector = [&](int64_t i) -> Value {
    return arith::ConstantOp::create(*this, getI16IntegerAttr(static_cast<int16_t>(i)));
  };
  return membersOf(*this, NVVM::MmaBlockScaleOp::create(
                              *this, type, a, w, c, aScales, selector(0), selector(aThread),
                              wScales, selector(0), selector(wThread), ArrayRef<int64_t>{16, 8, 64},
                              OperandTypes{NVVM::MMATypes::e2m1, NVVM::MMATypes::e2m1},
                              NVVM::ScaleVecSize::X4, NVVM::BlockScaleFormat::UE4M3,
                              NVVM::MMABlockScaleKind::MXF4NVF4));
}

KernelBuilder::Values KernelBuilder::multiplyFloats(Float half, ValueRange a, ValueRange w,
                                                    ValueRange c) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(), SmallVector<Type>(4, f32()));
  bool isBF16 = half == Float::BF16;
  // The operands of f16 are vectors in NVVM, those of bf16 words.
  auto operands = [&](ValueRange words) {
    return isBF16 ? Values(words) : llvm::map_to_vector(words, [&](Value word) {
      return bitcast(word, vec(2, getF16Type()));
    });
  };
  NVVM::MMATypes element = isBF16 ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  return membersOf(*this,
                   NVVM::MmaOp::create(*this, type, operands(a), operands(w), c,
                                       ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt,
                                       OperandTypes{element, element}, kLayouts));
}

//===- Integers of bytes --------------------------------------------------===//

Value KernelBuilder::dp4a(Value a, Value b, Value c) {
  VectorType bytes = vec(4, i8());
  return NVVM::DotAccumulate4WayOp::create(*this, i32(), bitcast(a, bytes),
                                           NVVM::DotAccumulateType::SIGNED, bitcast(b, bytes),
                                           NVVM::DotAccumulateType::SIGNED, c);
}
Value KernelBuilder::permute(Value a, Value b, Int selector) {
  return intrinsic("llvm.nvvm.prmt", i32(), {a, b, i32(selector)});
}
Value KernelBuilder::intrinsic(StringRef name, Type type, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(*this, type, getStringAttr(name), operands).getResult(0);
}

Value KernelBuilder::opaque(Value value) {
  StringRef same = isa<LLVM::LLVMPointerType>(value.getType()) ? "=l,0" : "=r,0";
  // A text that is empty leaves LLVM's order of instructions such that attention of heads of 256
  // spills.
  return LLVM::InlineAsmOp::create(*this, value.getType(), value, "// the same", same,
                                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(),
                                   ArrayAttr())
      .getResult(0);
}

//===- Control flow -------------------------------------------------------===//

Value KernelBuilder::guarded(Value condition, Value otherwise, llvm::function_ref<Value()> body) {
  return guardedAll(condition, otherwise, [&] { return Values{body()}; }).front();
}

KernelBuilder::Values KernelBuilder::guardedAll(Value condition, ValueRange otherwise,
                                                llvm::function_ref<Values()> body) {
  if (!condition)
    return body();
  auto op = scf::IfOp::create(*this, TypeRange(otherwise), condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  Values values = body();
  scf::YieldOp::create(*this, values);
  setInsertionPointToStart(op.elseBlock());
  scf::YieldOp::create(*this, otherwise);
  return Values(op.getResults());
}

//===- Kernels ------------------------------------------------------------===//

void registerKernelDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::gpu::GPUDialect,
                  mlir::LLVM::LLVMDialect, mlir::math::MathDialect, mlir::NVVM::NVVMDialect,
                  mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  // convert-gpu-to-nvvm lowers branches as their dialect says, if it does.
  mlir::cf::registerConvertControlFlowToLLVMInterface(registry);
}

Description getOrEmitKernel(mlir::gpu::GPUModuleOp module, const Description &description,
                            BuildKernel build, BuildKernel early) {
  if (module.lookupSymbol(description.name))
    return description;
  KernelBuilder b(module.getLoc(), module.getContext());
  SmallVector<Type> types;
  for (const Parameter &parameter : description.parameters)
    types.push_back(parameter.kind == Parameter::Pointer
                        ? LLVM::LLVMPointerType::get(b.getContext(), kGlobalSpace)
                    : parameter.kind == Parameter::I32 ? b.i32()
                                                       : b.f32());
  b.setInsertionPointToEnd(module.getBody());
  auto function = mlir::gpu::GPUFuncOp::create(b, description.name, b.getFunctionType(types, {}));
  function->setAttr(mlir::gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(description.threads), 1, 1}));
  if (description.blocksPerSM > 0)
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      b.getI32IntegerAttr(static_cast<int32_t>(description.blocksPerSM)));
  for (auto [i, parameter] : llvm::enumerate(description.parameters)) {
    if (parameter.kind != Parameter::Pointer)
      continue;
    function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                        b.getI64IntegerAttr(parameter.alignment));
    // Nobody writes memory that a kernel reads meanwhile. LLVM loses this fact for single loads,
    // and ptxas would wait for each before it begins another behind a store or a barrier.
    if (!parameter.written) {
      function.setArgAttr(i, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
      function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
    }
  }
  b.setInsertionPointToStart(&function.getBody().front());
  if (description.beginsNext)
    NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
  if (early)
    early(b, KernelArguments(description, function.getArguments()));
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
  KernelBuilder::Values behind;
  for (auto [parameter, argument] :
       llvm::zip_equal(description.parameters, function.getArguments()))
    behind.push_back(parameter.kind != Parameter::Pointer || parameter.constant
                         ? Value(argument)
                         : b.opaque(argument));
  build(b, KernelArguments(description, behind));
  mlir::gpu::ReturnOp::create(b);
  return description;
}

} // namespace easyquant::gpu
