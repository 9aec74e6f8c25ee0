//===- ProfilerHook.cpp - Announcing kernel calls to a profiler -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProfilerHook.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace easyquant;

/// The branch is in a function of its own, so that a converted model reads as calls.
func::FuncOp ProfilerHook::getOrEmitCall(ImplicitLocOpBuilder &b) {
  if (callee)
    return callee;
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  OpBuilder detached(b.getContext());
  callee = func::FuncOp::create(
      detached, b.getLoc(), "call_profiler",
      b.getFunctionType({pointer, pointer, b.getI64Type(), pointer}, TypeRange()));
  callee.setPrivate();
  symbols.insert(callee);

  Block *body = callee.addEntryBlock();
  auto inner = ImplicitLocOpBuilder::atBlockEnd(b.getLoc(), body);
  Value function = body->getArgument(0);
  Value null = LLVM::ZeroOp::create(inner, pointer);
  Value isGiven = LLVM::ICmpOp::create(inner, LLVM::ICmpPredicate::ne, function, null);
  scf::IfOp::create(inner, isGiven, [&](OpBuilder &builder, Location loc) {
    ValueRange arguments = body->getArguments().drop_front();
    auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                            llvm::to_vector(arguments.getTypes()));
    LLVM::CallOp::create(builder, loc, type, body->getArguments());
    scf::YieldOp::create(builder, loc);
  });
  func::ReturnOp::create(inner);
  return callee;
}

LLVM::GlobalOp ProfilerHook::getOrEmitText(ImplicitLocOpBuilder &b, StringRef site) {
  LLVM::GlobalOp &text = texts[site];
  if (text)
    return text;
  std::string bytes = site.str() + '\0';
  OpBuilder detached(b.getContext());
  text = LLVM::GlobalOp::create(
      detached, b.getLoc(), LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size()),
      /*isConstant=*/true, LLVM::Linkage::Private, "site", b.getStringAttr(bytes));
  // The programs of several instruction sets then share their texts.
  text.setUnnamedAddr(LLVM::UnnamedAddr::Global);
  symbols.insert(text);
  return text;
}

void ProfilerHook::emit(ImplicitLocOpBuilder &b, Value function, Value context, int64_t phase,
                        StringRef site) {
  Value number = LLVM::ConstantOp::create(b, b.getI64Type(), phase);
  Value text = LLVM::AddressOfOp::create(b, getOrEmitText(b, site));
  func::CallOp::create(b, getOrEmitCall(b), ValueRange{function, context, number, text});
}
