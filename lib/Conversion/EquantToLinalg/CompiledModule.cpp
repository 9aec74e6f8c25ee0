//===- CompiledModule.cpp - A module of upstream ops, run here ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLinalg/CompiledModule.h"

#include "TensorBuilder.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;
using namespace easyquant;

static constexpr StringLiteral kObserve = "easyquant_observe", kRun = "easyquant_run";
static constexpr StringLiteral kCalledFromC = "llvm.emit_c_interface";
static constexpr StringLiteral kAccess = "bufferization.access";

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

static void buildBuffers(OpPassManager &pm) {
  pm.addPass(createConvertElementwiseToLinalgPass());
  bufferization::OneShotBufferizePassOptions buffers;
  buffers.bufferizeFunctionBoundaries = true;
  buffers.functionBoundaryTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  pm.addPass(bufferization::createOneShotBufferizePass(buffers));
  bufferization::buildBufferDeallocationPipeline(pm);
  pm.addPass(createConvertBufferizationToMemRefPass());
}

/// bf16 has no arithmetic on most machines.
static void buildLoops(OpPassManager &pm) {
  pm.addPass(createConvertLinalgToLoopsPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  arith::ArithEmulateUnsupportedFloatsOptions narrow;
  narrow.sourceTypeStrs = {"bf16"};
  pm.addPass(arith::createArithEmulateUnsupportedFloats(narrow));
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  pm.addPass(arith::createArithExpandOpsPass(expand));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

void CompiledModule::getDependentDialects(DialectRegistry &registry) {
  OpPassManager pm(ModuleOp::getOperationName());
  buildBuffers(pm);
  buildLoops(pm);
  pm.getDependentDialects(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

//===----------------------------------------------------------------------===//
// What is added to a module
//===----------------------------------------------------------------------===//

void CompiledModule::addObserver(OpBuilder &builder, Location loc, ModuleOp module, int64_t number,
                                 Value tensor) {
  TensorBuilder b(loc, builder);
  auto row = RankedTensorType::get({ShapedType::kDynamic}, b.getF32Type());
  auto function = module.lookupSymbol<func::FuncOp>(kObserve);
  if (!function) {
    function =
        func::FuncOp::create(loc, kObserve, b.getFunctionType({b.getI64Type(), row}, TypeRange()));
    function.setPrivate();
    function->setAttr(kCalledFromC, b.getUnitAttr());
    function.setArgAttr(1, kAccess, b.getStringAttr("read"));
    module.push_back(function);
  }
  auto type = TensorBuilder::typeOf(tensor);
  if (!type.getElementType().isF32())
    tensor = arith::ExtFOp::create(b, type.clone(b.getF32Type()), tensor);
  if (type.getRank() != 1)
    tensor = b.merge(tensor, 0, type.getRank());
  if (tensor.getType() != row)
    tensor = tensor::CastOp::create(b, row, tensor);
  Value which = arith::ConstantOp::create(b, b.getI64IntegerAttr(number));
  func::CallOp::create(b, function, ValueRange{which, tensor});
}

/// A function of the same arguments and no results, which C++ calls.
static void addEntry(ModuleOp module, func::FuncOp function) {
  OpBuilder builder(module.getContext());
  Location loc = function.getLoc();
  auto entry = func::FuncOp::create(
      loc, kRun, builder.getFunctionType(function.getArgumentTypes(), TypeRange()));
  entry->setAttr(kCalledFromC, builder.getUnitAttr());
  module.push_back(entry);
  builder.setInsertionPointToStart(entry.addEntryBlock());
  func::CallOp::create(builder, loc, function, entry.getArguments());
  func::ReturnOp::create(builder, loc);
  function.setPrivate();
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

/// Whom the module that runs in this thread hands values to.
static thread_local const CompiledModule::Observer *current = nullptr;

static void observe(int64_t number, StridedMemRefType<float, 1> *values) {
  (*current)(number, {values->data + values->offset, static_cast<size_t>(values->sizes[0])});
}

FailureOr<CompiledModule> CompiledModule::compile(ModuleOp module, StringRef name) {
  addEntry(module, module.lookupSymbol<func::FuncOp>(name));
  PassManager pm(module.getContext());
  (void)applyPassManagerCLOptions(pm);
  buildBuffers(pm);
  if (failed(pm.run(module)))
    return failure();
  if (auto function = module.lookupSymbol<func::FuncOp>(kObserve))
    function.removeArgAttr(1, kAccess); // LLVM has none of this name
  // Loops in their place need no library of MLIR's at run time.
  module.walk([](memref::CopyOp copy) {
    if (!isa<MemRefType>(copy.getSource().getType()))
      return;
    OpBuilder builder(copy);
    linalg::makeMemRefCopyOp(builder, copy.getLoc(), copy.getSource(), copy.getTarget());
    copy.erase();
  });
  pm.clear();
  buildLoops(pm);
  if (failed(pm.run(module)))
    return failure();

  static const bool initialized =
      !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  if (!initialized)
    return emitError(module.getLoc()) << "no code can be made for this machine";
  auto optimize = makeOptimizingTransformer(/*optLevel=*/2, /*sizeLevel=*/0, nullptr);
  ExecutionEngineOptions options;
  options.transformer = optimize;
  options.enableGDBNotificationListener = options.enablePerfNotificationListener = false;
  auto engine = ExecutionEngine::create(module, options);
  if (!engine)
    return emitError(module.getLoc()) << llvm::toString(engine.takeError());
  (*engine)->registerSymbols([](llvm::orc::MangleAndInterner interner) {
    llvm::orc::SymbolMap symbols;
    symbols[interner(("_mlir_ciface_" + kObserve).str())] = {
        llvm::orc::ExecutorAddr::fromPtr(&observe), llvm::JITSymbolFlags::Exported};
    return symbols;
  });
  CompiledModule compiled;
  compiled.engine = std::move(*engine);
  return compiled;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// A descriptor of memory as LLVM code has it: two pointers, the offset, sizes and strides.
static std::vector<int64_t> describe(ModuleArgument &argument) {
  const auto address = reinterpret_cast<int64_t>(argument.bytes.data());
  std::vector<int64_t> words = {address, address, 0};
  words.insert(words.end(), argument.shape.begin(), argument.shape.end());
  std::vector<int64_t> strides(argument.shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0; stride *= argument.shape[i])
    strides[i] = stride;
  words.insert(words.end(), strides.begin(), strides.end());
  return words;
}

Result<void> CompiledModule::run(MutableArrayRef<ModuleArgument> arguments,
                                 const Observer &observer) {
  std::vector<std::vector<int64_t>> descriptors;
  for (ModuleArgument &argument : arguments)
    descriptors.push_back(describe(argument));
  std::vector<void *> pointers;
  for (std::vector<int64_t> &words : descriptors)
    pointers.push_back(words.data());
  SmallVector<void *> packed;
  for (void *&pointer : pointers)
    packed.push_back(&pointer);
  const std::string name = ("_mlir_ciface_" + kRun).str();
  current = &observer;
  std::string problem;
  llvm::CrashRecoveryContext::Enable();
  llvm::CrashRecoveryContext guard;
  const bool returned = guard.RunSafely([&] {
    if (llvm::Error error = engine->invokePacked(name, packed))
      problem = llvm::toString(std::move(error));
  });
  llvm::CrashRecoveryContext::Disable();
  current = nullptr;
  if (!returned)
    return makeError(ErrorCode::InvalidArgument,
                     "the program ended itself: an assertion of it failed, or an index lies beyond "
                     "a tensor; expected inputs that it takes");
  if (!problem.empty())
    return makeError(ErrorCode::InvalidArgument, "{}", problem);
  return {};
}
