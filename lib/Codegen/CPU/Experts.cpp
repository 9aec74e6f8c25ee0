//===- Experts.cpp - Routing rows to experts, and back --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "VectorMath.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>

using namespace mlir;

namespace easyquant::cpu {

//===- Choosing -----------------------------------------------------------===//

std::string symbolName(const ChooseExpertsSpec &spec) {
  std::string name = llvm::formatv("choose_experts_{0}_of_{1}{2}{3}{4}", spec.chosen, spec.experts,
                                   spec.sigmoid ? "_sigmoid" : "", spec.bias ? "_bias" : "",
                                   spec.renormalize ? "_renormalized" : "");
  if (spec.factors)
    name += "_factors";
  if (spec.scale != 1.0)
    name += llvm::formatv("_scale{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.scale)));
  return name;
}

static Type choicesType(Builder &b, int64_t chosen) {
  return MemRefType::get({ShapedType::kDynamic, chosen}, b.getI32Type());
}
static Type offsetsType(Builder &b, int64_t experts) {
  return MemRefType::get({ShapedType::kDynamic, experts + 1}, b.getI32Type());
}

Description describe(const ChooseExpertsSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("logits", d.rows(spec.experts));
  d.writes("places", choicesType(d, spec.chosen));
  d.writes("weights", d.rows(spec.chosen));
  if (spec.bias)
    d.writes("scores", d.rows(spec.experts));
  d.reads("bias", d.memory({spec.experts}, d.getF32Type()), spec.bias);
  d.reads("factors", d.memory({spec.experts}, d.getF32Type()), spec.factors);
  return std::move(d.kernel);
}

/// The greatest logit of a row, of equal ones the first, among those that come behind `before` in
/// this order; (logit, expert). Numbers without an order give some expert that there is.
static SmallVector<Value> nextChoice(KernelBuilder &b, int64_t experts, Value logits, Value row,
                                     ValueRange before) {
  using arith::CmpFPredicate;
  using arith::CmpIPredicate;
  auto isAbove = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, CmpIPredicate::sgt, x, y);
  };
  auto either = [&](Value x, Value y) -> Value { return arith::OrIOp::create(b, x, y); };
  Value none = b.constant(b.i32(), int64_t(-1));
  Value least = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  SmallVector<Value> best =
      b.forLoop(0, experts, 1, ValueRange{least, none}, [&](Value expert, ValueRange best) {
        Value logit = b.load(logits, {row, expert});
        Value number = arith::IndexCastUIOp::create(b, b.i32(), expert);
        Value isBehind = either(
            b.compare(CmpFPredicate::OLT, logit, before[0]),
            b.both(b.compare(CmpFPredicate::OEQ, logit, before[0]), isAbove(number, before[1])));
        Value isBetter = either(b.compare(CmpFPredicate::OGT, logit, best[0]),
                                isAbove(b.constant(b.i32(), int64_t(0)), best[1]));
        Value takes = b.both(isBehind, isBetter);
        return SmallVector<Value>{b.select(takes, logit, best[0]),
                                  b.select(takes, number, best[1])};
      });
  best[1] = arith::MaxSIOp::create(b, best[1], b.constant(b.i32(), int64_t(0)));
  return best;
}

static Value scaled(KernelBuilder &b, const ChooseExpertsSpec &spec, Value weight) {
  return spec.scale == 1.0 ? weight : b.mulf(weight, b.constant(weight.getType(), spec.scale));
}

/// The weights of a row's choices, whose logits lie in their places.
static void emitSigmoidWeights(KernelBuilder &b, const ChooseExpertsSpec &spec, Value weights,
                               Value row) {
  const int64_t wide = b.target.lanes();
  auto score = [&](Value column, int64_t lanes) {
    return logistic(b, b.loadVector(lanes, weights, {row, column}));
  };
  Value sum;
  if (spec.renormalize)
    sum = b.addf(reduceColumns(b, 0, spec.chosen, wide, b.f32(), Combine::Add, score),
                 b.constant(b.f32(), 1e-20));
  forColumns(b, 0, spec.chosen, wide, [&](Value column, int64_t lanes) {
    Value weight = score(column, lanes);
    if (sum)
      weight = b.divf(weight, b.broadcast(sum, lanes));
    b.storeVector(scaled(b, spec, weight), weights, {row, column});
  });
}

/// The softmax of a row's choices, over all experts or the chosen ones; logits lie in the places of
/// weights.
static void emitSoftmaxWeights(KernelBuilder &b, const ChooseExpertsSpec &spec, Value logits,
                               Value weights, Value row) {
  const int64_t wide = b.target.lanes();
  Value greatest = b.load(weights, {row, 0});
  auto exponential = [&](Value of, Value column, int64_t lanes) {
    Value x = b.loadVector(lanes, of, {row, column});
    return exp(b, b.subf(x, b.broadcast(greatest, lanes)));
  };
  Value over = spec.renormalize ? weights : logits;
  Value sum = reduceColumns(
      b, 0, spec.renormalize ? spec.chosen : spec.experts, wide, b.f32(), Combine::Add,
      [&](Value column, int64_t lanes) { return exponential(over, column, lanes); });
  forColumns(b, 0, spec.chosen, wide, [&](Value column, int64_t lanes) {
    Value part = b.divf(exponential(weights, column, lanes), b.broadcast(sum, lanes));
    b.storeVector(scaled(b, spec, part), weights, {row, column});
  });
}

func::FuncOp getOrEmitChooseExperts(ModuleOp module, const ChooseExpertsSpec &spec,
                                    const Target &target) {
  const int64_t wide = target.lanes();
  auto emitRow = [&](KernelBuilder &b, const KernelArguments &in, Value row) {
    Value logits = in["logits"], places = in["places"], weights = in["weights"];
    Value keys = logits;
    if (spec.bias) { // else the order of scores is that of logits
      keys = in["scores"];
      forColumns(b, 0, spec.experts, wide, [&](Value column, int64_t lanes) {
        Value score = logistic(b, b.loadVector(lanes, logits, {row, column}));
        Value bias = b.loadVector(lanes, in["bias"], {column});
        b.storeVector(b.addf(score, bias), keys, {row, column});
      });
    }
    Value most = b.constant(b.f32(), std::numeric_limits<double>::infinity());
    b.forLoop(0, spec.chosen, 1, ValueRange{most, b.constant(b.i32(), int64_t(-1))},
              [&](Value choice, ValueRange before) {
                SmallVector<Value> next = nextChoice(b, spec.experts, keys, row, before);
                Value chosen = next[0];
                if (spec.bias) {
                  Value expert = arith::IndexCastUIOp::create(b, b.getIndexType(), next[1]);
                  chosen = b.load(logits, {row, expert});
                }
                b.store(chosen, weights, {row, choice});
                b.store(next[1], places, {row, choice});
                return next;
              });
    if (spec.sigmoid)
      emitSigmoidWeights(b, spec, weights, row);
    else
      emitSoftmaxWeights(b, spec, logits, weights, row);
    if (!spec.factors)
      return;
    b.forLoop(0, spec.chosen, 1, [&](Value choice) {
      Value expert =
          arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(places, {row, choice}));
      Value weight = b.load(weights, {row, choice});
      b.store(b.mulf(weight, b.load(in["factors"], {expert})), weights, {row, choice});
    });
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) { emitRow(b, in, row); });
      });
}

//===- Sorting ------------------------------------------------------------===//

std::string symbolName(const SortChoicesSpec &spec) {
  return llvm::formatv("sort_choices_{0}_of_{1}", spec.chosen, spec.experts);
}

Description describe(const SortChoicesSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Other);
  d.writes("places", choicesType(d, spec.chosen));
  d.writes("order", d.vector(d.getI32Type()));
  d.writes("offsets", offsetsType(d, spec.experts));
  return std::move(d.kernel);
}

/// A counting sort. While choices get their places, offsets[e] is where the next one of expert e
/// goes, which ends as where those of expert e + 1 begin.
static void emitSort(KernelBuilder &b, const SortChoicesSpec &spec, const KernelArguments &in) {
  Value places = in["places"], order = in["order"], offsets = in["offsets"];
  Value zero = b.constant(b.i32(), int64_t(0)), one = b.constant(b.i32(), int64_t(1));
  auto toIndex = [&](Value number) -> Value {
    return arith::IndexCastUIOp::create(b, b.getIndexType(), number);
  };
  auto forChoices = [&](llvm::function_ref<void(Value row, Value choice, Value expert)> body) {
    b.forLoop(0, b.size(places, 0), 1, [&](Value row) {
      b.forLoop(0, spec.chosen, 1,
                [&](Value choice) { body(row, choice, toIndex(b.load(places, {row, choice}))); });
    });
  };
  b.forLoop(0, spec.experts + 1, 1, [&](Value expert) { b.store(zero, offsets, {0, expert}); });
  forChoices([&](Value, Value, Value expert) {
    Value behind = b.add(expert, 1);
    b.store(b.addi(b.load(offsets, {0, behind}), one), offsets, {0, behind});
  });
  b.forLoop(0, spec.experts, 1, [&](Value expert) {
    Value behind = b.add(expert, 1);
    b.store(b.addi(b.load(offsets, {0, behind}), b.load(offsets, {0, expert})), offsets,
            {0, behind});
  });
  forChoices([&](Value row, Value choice, Value expert) {
    Value place = b.load(offsets, {0, expert});
    b.store(b.addi(place, one), offsets, {0, expert});
    b.store(place, places, {row, choice});
    b.store(arith::IndexCastUIOp::create(b, b.i32(), row), order, {toIndex(place)});
  });
  b.forLoop(0, spec.experts, 1, [&](Value done) {
    Value expert = b.sub(spec.experts, done);
    b.store(b.load(offsets, {0, b.sub(expert, 1)}), offsets, {0, expert});
  });
  b.store(zero, offsets, {0, 0});
}

func::FuncOp getOrEmitSortChoices(ModuleOp module, const SortChoicesSpec &spec,
                                  const Target &target) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           b.ifThen(b.equal(team.thread, 0), [&] { emitSort(b, spec, in); });
                         });
}

//===- Adding up ----------------------------------------------------------===//

std::string symbolName(const CombineSpec &spec) {
  return llvm::formatv("combine_{0}x{1}{2}", spec.chosen, spec.columns,
                       spec.shared ? "_shared" : "");
}

Description describe(const CombineSpec &spec, MLIRContext *context) {
  // Any thread may have made the rows that another one adds up.
  Describer d(context, symbolName(spec), Describer::Over::Other);
  d.reads("places", choicesType(d, spec.chosen));
  d.reads("weights", d.rows(spec.chosen));
  d.reads("x", d.rows(spec.columns));
  d.reads("shared", d.rows(spec.columns), spec.shared);
  d.reads("gate", d.rows(1), spec.shared);
  d.writes("y", d.rows(spec.columns)).shared = true;
  return std::move(d.kernel);
}

func::FuncOp getOrEmitCombine(ModuleOp module, const CombineSpec &spec, const Target &target) {
  auto emitRow = [&](KernelBuilder &b, const KernelArguments &in, Value row) {
    Value gate;
    if (spec.shared)
      gate = logistic(b, b.broadcast(b.load(in["gate"], {row, 0}), target.lanes()));
    forColumns(b, 0, spec.columns, 4 * target.lanes(), [&](Value column, int64_t lanes) {
      Value none = b.zero(b.vec(lanes, b.f32()));
      Value sum = b.forLoop(0, spec.chosen, 1, ValueRange{none}, [&](Value choice, ValueRange sum) {
        Value place =
            arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(in["places"], {row, choice}));
        Value weight = b.broadcast(b.load(in["weights"], {row, choice}), lanes);
        return SmallVector<Value>{
            b.fma(weight, b.loadVector(lanes, in["x"], {place, column}), sum[0])};
      })[0];
      if (spec.shared)
        sum = b.fma(b.broadcast(b.extract(gate, 0), lanes),
                    b.loadVector(lanes, in["shared"], {row, column}), sum);
      b.storeVector(sum, in["y"], {row, column});
    });
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) { emitRow(b, in, row); });
      });
}

} // namespace easyquant::cpu
