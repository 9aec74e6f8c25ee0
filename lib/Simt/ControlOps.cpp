//===- ControlOps.cpp - Branches, calls and the end -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Execution.h"
#include "Printf.h"

using namespace easyquant;
using namespace easyquant::simt;

namespace {

void branch(Warp &w, const Instruction &i, Mask m) { w.branch(static_cast<uint32_t>(i.offset), m); }

void branchIndexed(Warp &w, const Instruction &i, Mask m) {
  const std::vector<uint32_t> &table = w.launch.decoded.branchTables[i.extra];
  const uint32_t *index = w.reg<uint32_t>(i.a);
  std::array<uint32_t, kLanes> targets{};
  forEachLane(m, [&](unsigned lane) {
    if (index[lane] >= table.size())
      w.stop(Finding::BadOperand, i, 1u << lane,
             fmt::format("branches to entry {} of {}", index[lane], table.size()));
    targets[lane] = table[index[lane]];
  });
  w.splitTo(targets, m);
}

void callDirect(Warp &w, const Instruction &i, Mask m) {
  const CallSite &site = w.launch.decoded.calls[i.extra];
  w.call(*site.callee, site, m);
}

/// Lanes that call the same function go together.
void callIndirect(Warp &w, const Instruction &i, Mask m) {
  const CallSite &site = w.launch.decoded.calls[i.extra];
  const uint64_t *target = w.reg<uint64_t>(i.a);
  while (m) {
    uint64_t wanted = target[std::countr_zero(m)];
    Mask same = 0;
    forEachLane(m, [&](unsigned lane) { same |= Mask(target[lane] == wanted) << lane; });
    uint64_t index = wanted - kFunctionWindow;
    if (index >= w.launch.decoded.functions.size())
      w.stop(Finding::BadOperand, i, same,
             fmt::format("calls {:#x}, which is no function", wanted));
    w.call(*w.launch.decoded.functions[index], site, same);
    m &= ~same;
  }
}

void returns(Warp &w, const Instruction &, Mask m) { w.returnFrom(m); }
void exits(Warp &w, const Instruction &, Mask m) { w.exit(m); }
void traps(Warp &w, const Instruction &i, Mask m) {
  w.stop(Finding::Trap, i, m, "executes a trap");
}
void nothing(Warp &, const Instruction &, Mask) {}

void decodeCall(Decoder &d) {
  d.accept("uni");
  d.i.opClass = OpClass::Control;
  CallSite site;
  const std::vector<ast::Operand> &operands = d.statement->operands;
  size_t at = 0;
  const ast::Operand *results = nullptr, *arguments = nullptr;
  if (at < operands.size() && operands[at].kind == ast::Operand::List)
    results = &operands[at++];
  if (at >= operands.size() || operands[at].kind != ast::Operand::Name)
    d.fail("a call names a function");
  const ast::Operand &callee = operands[at++];
  if (at < operands.size() && operands[at].kind == ast::Operand::List)
    arguments = &operands[at++];
  while (d.hasOperand())
    d.operand(); // the prototype of an indirect call says what the arguments say already
  if (results)
    for (const ast::Operand &operand : results->items)
      site.results.push_back(d.place(operand, true));
  if (arguments)
    for (const ast::Operand &operand : arguments->items)
      site.arguments.push_back(d.place(operand, false));
  d.i.extra = d.decoded.calls.size();
  auto symbol = d.find(callee.name);
  if (symbol && symbol->kind == Decoder::Symbol::Register) {
    d.i.a = d.read(callee, Type::U64);
    d.i.run = callIndirect;
  } else if (callee.name == "vprintf") {
    d.i.run = printFormatted;
  } else if (callee.name == "__assertfail") {
    d.i.run = failAssertion;
  } else if (symbol && symbol->kind == Decoder::Symbol::Function) {
    site.callee = d.functionCode(*symbol->function);
    d.i.run = callDirect;
  } else {
    d.fail("function '{}' is not declared", callee.name);
  }
  d.decoded.calls.push_back(std::move(site));
}

void decodeBranchIndexed(Decoder &d) {
  d.expect("idx");
  d.accept("uni");
  d.i.opClass = OpClass::Control;
  d.i.a = d.read(Type::U32);
  const ast::Operand &list = d.operand();
  const auto *labels = list.kind == ast::Operand::Vector ? &list.items : d.branchTargets(list.name);
  if (!labels)
    d.fail("'{}' is no list of branch targets", list.name);
  d.i.extra = d.decoded.branchTables.size();
  d.decoded.branchTables.emplace_back(labels->size());
  for (size_t k = 0; k < labels->size(); ++k)
    d.tableTarget(d.i.extra, k, (*labels)[k].name);
  d.i.run = branchIndexed;
}

template <Handler handler> void decodePlain(Decoder &d) {
  d.accept("uni");
  d.i.opClass = OpClass::Control;
  d.i.run = handler;
}

} // namespace

void simt::addControlOps(OpcodeTable &table) {
  table["bra"] = [](Decoder &d) {
    d.accept("uni");
    d.i.opClass = OpClass::Control;
    d.branchTarget(d.operand().name);
    d.i.run = branch;
  };
  table["brx"] = decodeBranchIndexed;
  table["call"] = decodeCall;
  table["ret"] = decodePlain<returns>;
  table["exit"] = decodePlain<exits>;
  table["trap"] = decodePlain<traps>;
  table["brkpt"] = decodePlain<nothing>;
  table["pmevent"] = [](Decoder &d) {
    d.accept("mask");
    d.immediate();
    d.i.run = nothing;
  };
  table["nanosleep"] = [](Decoder &d) {
    d.expect("u32");
    d.read(Type::U32);
    d.i.run = [](Warp &w, const Instruction &, Mask) { w.yield(); };
  };
  table["griddepcontrol"] = [](Decoder &d) {
    if (d.acceptAny({"launch_dependents", "wait"}) < 0)
      d.unknown();
    d.i.run = nothing; // the launch before this one has ended
  };
  table["setmaxnreg"] = [](Decoder &d) {
    if (d.acceptAny({"inc", "dec"}) < 0 || !d.accept("sync") || !d.accept("aligned") ||
        !d.accept("u32"))
      d.unknown();
    d.immediate();
    d.i.run = nothing; // registers are not counted here
  };
}
