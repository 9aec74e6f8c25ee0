//===- Team.cpp - The threads that run a step together --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Team.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace easyquant::cpu {

// The state: what threads count up, what they watch, and what they only read (the address of the
// stop flag, and the looks before the first yield), each in a cache line of its own. The watched
// word is twice the number of barriers passed, plus 1 if the last one found that the team is to
// stop.
static constexpr int32_t kArrived = 0, kPassed = 64, kStop = 128, kSpins = 136;
static constexpr int64_t kStateBytes = 192;

/// How a thread waits: it looks for some tens of microseconds, and then offers its CPU to others
/// between looks, soon where the team has more threads than there are CPUs. (Where others compete
/// for the CPUs, a thread that yields comes back late, and then it is the one that is waited for.)
/// Behind these it sleeps between looks, for such a wait is that of host code.
static constexpr int64_t kPatientSpins = 2000, kCrowdedSpins = 100, kYields = 4000;
static constexpr int64_t kSleepMicroseconds = 50;

Team Team::of(ValueRange arguments) {
  ValueRange last = arguments.take_back(3);
  return {last[0], last[1], last[2]};
}

void Team::appendTypes(MLIRContext *context, SmallVectorImpl<Type> &types) {
  Type index = IndexType::get(context);
  types.append({LLVM::LLVMPointerType::get(context), index, index});
}

/// A function of the C library or of libomp.
static LLVM::LLVMFuncOp declare(ModuleOp module, StringRef name, ArrayRef<Type> arguments) {
  if (auto existing = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return existing;
  auto b = OpBuilder::atBlockBegin(module.getBody());
  auto type = LLVM::LLVMFunctionType::get(b.getI32Type(), arguments);
  return LLVM::LLVMFuncOp::create(b, module.getLoc(), name, type);
}

namespace {

/// Atomic words of the state.
struct StateAccess {
  ImplicitLocOpBuilder &b;
  Value state;

  Value at(int32_t offset) {
    return LLVM::GEPOp::create(b, state.getType(), b.getI8Type(), state,
                               ArrayRef<LLVM::GEPArg>{offset});
  }
  Value load(Value address, LLVM::AtomicOrdering ordering) {
    return LLVM::LoadOp::create(b, b.getI32Type(), address, /*alignment=*/4, /*isVolatile=*/false,
                                /*isNonTemporal=*/false, /*isInvariant=*/false,
                                /*isInvariantGroup=*/false, ordering);
  }
  void store(Value value, Value address, LLVM::AtomicOrdering ordering) {
    LLVM::StoreOp::create(b, value, address, /*alignment=*/4, /*isVolatile=*/false,
                          /*isNonTemporal=*/false, /*isInvariantGroup=*/false, ordering);
  }
  Value word(int64_t value) {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, predicate, x, y);
  }
  /// i32 0 or 1.
  Value isAskedToStop();
};

} // namespace

Value StateAccess::isAskedToStop() {
  Value flag = LLVM::LoadOp::create(b, state.getType(), at(kStop));
  Value null = LLVM::ZeroOp::create(b, state.getType());
  Value isGiven = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, flag, null);
  auto asked = scf::IfOp::create(b, TypeRange(b.getI32Type()), isGiven, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(asked.thenBlock());
  Value value = load(flag, LLVM::AtomicOrdering::monotonic);
  Value isSet = compare(arith::CmpIPredicate::ne, value, word(0));
  scf::YieldOp::create(b, ValueRange(arith::ExtUIOp::create(b, b.getI32Type(), isSet)));
  b.setInsertionPointToStart(asked.elseBlock());
  scf::YieldOp::create(b, ValueRange(word(0)));
  return asked.getResult(0);
}

/// Looks until the watched word is no longer `before`; gives what it is then.
static Value emitWait(ImplicitLocOpBuilder &b, ModuleOp module, const Target &target,
                      StateAccess &access, Value passed, Value before) {
  Value spins = LLVM::LoadOp::create(b, b.getI32Type(), access.at(kSpins));
  Value most = arith::AddIOp::create(b, spins, access.word(kYields));
  auto loop = scf::WhileOp::create(b, TypeRange{b.getI32Type(), b.getI32Type()},
                                   ValueRange{access.word(0), before});
  OpBuilder::InsertionGuard guard(b);
  Block *look = b.createBlock(&loop.getBefore(), {}, {b.getI32Type(), b.getI32Type()},
                              {b.getLoc(), b.getLoc()});
  Value now = access.load(passed, LLVM::AtomicOrdering::acquire);
  Value waits = access.compare(arith::CmpIPredicate::eq, now, before);
  scf::ConditionOp::create(b, waits, ValueRange{look->getArgument(0), now});
  Block *pause = b.createBlock(&loop.getAfter(), {}, {b.getI32Type(), b.getI32Type()},
                               {b.getLoc(), b.getLoc()});
  Value looks = pause->getArgument(0);
  auto isBefore = [&](Value count) {
    return access.compare(arith::CmpIPredicate::slt, looks, count);
  };
  auto choose = [&](Value condition, llvm::function_ref<void()> first,
                    llvm::function_ref<void()> second) {
    auto op = scf::IfOp::create(b, condition, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(op.thenBlock());
    first();
    b.setInsertionPointToStart(op.elseBlock());
    second();
  };
  choose(
      isBefore(spins),
      [&] {
        if (!target.isArm()) {
          LLVM::CallIntrinsicOp::create(b, b.getStringAttr("llvm.x86.sse2.pause"), ValueRange());
          return;
        }
        // An instruction barrier, which takes about as long as x86's pause; the hint YIELD takes no
        // time.
        LLVM::CallIntrinsicOp::create(b, b.getStringAttr("llvm.aarch64.isb"),
                                      ValueRange(access.word(15)));
      },
      [&] {
        choose(
            isBefore(most),
            [&] { LLVM::CallOp::create(b, declare(module, "sched_yield", {}), ValueRange()); },
            [&] {
              LLVM::CallOp::create(b, declare(module, "usleep", {b.getI32Type()}),
                                   ValueRange(access.word(kSleepMicroseconds)));
            });
      });
  // It stays where it is in a long wait.
  Value next = arith::MinSIOp::create(b, arith::AddIOp::create(b, looks, access.word(1)), most);
  scf::YieldOp::create(b, ValueRange{next, pause->getArgument(1)});
  return loop.getResult(1);
}

/// Centralized: the last thread to come lets the others go.
static func::FuncOp getOrEmitBarrier(ModuleOp module, const Target &target) {
  constexpr StringLiteral name = "team_barrier";
  if (auto existing = module.lookupSymbol<func::FuncOp>(name))
    return existing;
  MLIRContext *context = module.getContext();
  auto b = ImplicitLocOpBuilder::atBlockEnd(module.getLoc(), module.getBody());
  auto type = b.getFunctionType({LLVM::LLVMPointerType::get(context), b.getIndexType()},
                                TypeRange(b.getI1Type()));
  auto barrier = func::FuncOp::create(b, name, type);
  barrier.setPrivate();
  barrier->setAttr("passthrough", b.getStrArrayAttr({"noinline"}));
  b.setInsertionPointToStart(barrier.addEntryBlock());
  Value threads = barrier.getArgument(1);
  StateAccess access{b, barrier.getArgument(0)};

  auto branch = [&](Value condition, llvm::function_ref<Value()> first,
                    llvm::function_ref<Value()> second) {
    auto op = scf::IfOp::create(b, TypeRange(b.getI32Type()), condition, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(op.thenBlock());
    scf::YieldOp::create(b, ValueRange(first()));
    b.setInsertionPointToStart(op.elseBlock());
    scf::YieldOp::create(b, ValueRange(second()));
    return op.getResult(0);
  };
  auto meet = [&]() -> Value {
    Value arrived = access.at(kArrived), passed = access.at(kPassed);
    Value before = access.load(passed, LLVM::AtomicOrdering::monotonic);
    Value others = LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::add, arrived, access.word(1),
                                             LLVM::AtomicOrdering::acq_rel);
    Value count = arith::IndexCastOp::create(b, b.getI32Type(), threads);
    Value isLast = access.compare(arith::CmpIPredicate::eq,
                                  arith::AddIOp::create(b, others, access.word(1)), count);
    return branch(
        isLast,
        [&] {
          access.store(access.word(0), arrived, LLVM::AtomicOrdering::monotonic);
          Value even = arith::AndIOp::create(b, before, access.word(-2));
          Value next = arith::AddIOp::create(b, even, access.word(2));
          Value now = arith::OrIOp::create(b, next, access.isAskedToStop());
          access.store(now, passed, LLVM::AtomicOrdering::release);
          return now;
        },
        [&] { return emitWait(b, module, target, access, passed, before); });
  };
  Value one = arith::ConstantIndexOp::create(b, 1);
  Value alone = access.compare(arith::CmpIPredicate::eq, threads, one);
  Value word = branch(alone, [&] { return access.isAskedToStop(); }, meet);
  Value stops = arith::TruncIOp::create(b, b.getI1Type(), word);
  func::ReturnOp::create(b, stops);
  return barrier;
}

Value emitBarrier(ImplicitLocOpBuilder &b, ModuleOp module, const Target &target,
                  const Team &team) {
  return func::CallOp::create(b, getOrEmitBarrier(module, target),
                              ValueRange{team.state, team.threads})
      .getResult(0);
}

void emitTeam(ImplicitLocOpBuilder &b, ModuleOp module, Value threads, Value stop,
              llvm::function_ref<void(ImplicitLocOpBuilder &, const Team &)> body) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value bytes = LLVM::ConstantOp::create(b, b.getI64Type(), b.getI64IntegerAttr(kStateBytes));
  Value state = LLVM::AllocaOp::create(b, pointer, b.getI8Type(), bytes, /*alignment=*/64);
  StateAccess access{b, state};
  access.store(access.word(0), access.at(kArrived), LLVM::AtomicOrdering::monotonic);
  access.store(access.word(0), access.at(kPassed), LLVM::AtomicOrdering::monotonic);
  if (!stop)
    stop = LLVM::ZeroOp::create(b, pointer);
  LLVM::StoreOp::create(b, stop, access.at(kStop));
  auto ask = [&](StringRef name) -> Value {
    Value number = LLVM::CallOp::create(b, declare(module, name, {}), ValueRange()).getResult();
    return arith::IndexCastUIOp::create(b, b.getIndexType(), number);
  };

  Value zero = arith::ConstantIndexOp::create(b, 0), one = arith::ConstantIndexOp::create(b, 1);
  Value alone = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, threads, one);
  auto branch = scf::IfOp::create(b, alone, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body(b, {state, zero, one});
  b.setInsertionPointToStart(branch.elseBlock());
  Value fits =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ule, threads, ask("omp_get_num_procs"));
  Value spins =
      arith::SelectOp::create(b, fits, access.word(kPatientSpins), access.word(kCrowdedSpins));
  LLVM::StoreOp::create(b, spins, access.at(kSpins));
  omp::ParallelOperands clauses;
  clauses.numThreads = arith::IndexCastOp::create(b, b.getI32Type(), threads);
  auto region = omp::ParallelOp::create(b, clauses);
  b.createBlock(&region.getRegion());
  // libomp may grant fewer threads than were asked for.
  Value thread = ask("omp_get_thread_num");
  body(b, {state, thread, ask("omp_get_num_threads")});
  omp::TerminatorOp::create(b);
}

} // namespace easyquant::cpu
