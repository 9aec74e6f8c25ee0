//===- MutateIR.cpp - Damaged modules -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MutateIR.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant::test;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

std::string easyquant::test::edgeNumber(Random &random) {
  static const StringRef kEdges[] = {"0",
                                     "1",
                                     "2",
                                     "3",
                                     "5",
                                     "7",
                                     "8",
                                     "9",
                                     "15",
                                     "16",
                                     "17",
                                     "24",
                                     "31",
                                     "32",
                                     "33",
                                     "64",
                                     "100",
                                     "127",
                                     "128",
                                     "129",
                                     "255",
                                     "256",
                                     "1000",
                                     "1024",
                                     "4096",
                                     "65535",
                                     "65536",
                                     "1000003",
                                     "1048576",
                                     "1048577",
                                     "100000000",
                                     "2147483647",
                                     "2147483648",
                                     "4294967296",
                                     "1099511627776",
                                     "4611686018427387904",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "18446744073709551615",
                                     "-1",
                                     "-2147483648",
                                     "-9223372036854775808"};
  return random.pick(kEdges).str();
}

/// [begin, end) of a run of characters of a kind that begins at or after a random place.
static std::pair<size_t, size_t> findRun(StringRef text, Random &random,
                                         llvm::function_ref<bool(char)> isKind) {
  size_t begin = random.below(text.size());
  while (begin > 0 && isKind(text[begin - 1]))
    --begin;
  while (begin < text.size() && !isKind(text[begin]))
    ++begin;
  size_t end = begin;
  while (end < text.size() && isKind(text[end]))
    ++end;
  return {begin, end};
}

static bool isWordCharacter(char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; }

void easyquant::test::mutateNumber(std::string &text, Random &random) {
  auto [begin, end] = findRun(text, random, llvm::isDigit);
  if (begin < end)
    text.replace(begin, end - begin, edgeNumber(random));
}

void easyquant::test::mutateText(std::string &text, Random &random) {
  switch (random.below(8)) {
  case 0:
  case 1:
  case 2:
    return mutateNumber(text, random);
  case 3:
  case 4: { // a word by another one of the module
    auto [begin, end] = findRun(text, random, isWordCharacter);
    auto [from, to] = findRun(text, random, isWordCharacter);
    text.replace(begin, end - begin, text.substr(from, to - from));
    return;
  }
  case 5: { // all of a word
    auto [begin, end] = findRun(text, random, isWordCharacter);
    auto [from, to] = findRun(text, random, isWordCharacter);
    std::string old = text.substr(begin, end - begin), fresh = text.substr(from, to - from);
    if (random.oneIn(2) && llvm::all_of(old, llvm::isDigit))
      fresh = edgeNumber(random);
    std::string result;
    for (size_t at = 0; !old.empty();) {
      size_t next = text.find(old, at);
      result += text.substr(at, next - at);
      if (next == std::string::npos)
        break;
      bool whole = (next == 0 || !isWordCharacter(text[next - 1])) &&
                   (next + old.size() == text.size() || !isWordCharacter(text[next + old.size()]));
      result += whole ? fresh : old;
      at = next + old.size();
    }
    if (!old.empty())
      text = std::move(result);
    return;
  }
  default: { // a line away, twice, or elsewhere
    SmallVector<StringRef> lines;
    StringRef(text).split(lines, '\n');
    size_t from = random.below(lines.size());
    StringRef line = lines[from];
    if (!random.oneIn(3))
      lines.erase(lines.begin() + from);
    if (!random.oneIn(3))
      lines.insert(lines.begin() + random.below(lines.size()), line);
    text = llvm::join(lines, "\n");
    return;
  }
  }
}

//===----------------------------------------------------------------------===//
// Attributes and types
//===----------------------------------------------------------------------===//

namespace {

class Mutator {
public:
  Mutator(ModuleOp module, Random &random) : module(module), random(random) {
    module.walk([&](Operation *op) {
      if (op == module)
        return;
      ops.push_back(op);
      llvm::append_range(values, op->getResults());
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::append_range(values, block.getArguments());
    });
    for (auto function : module.getOps<func::FuncOp>())
      functions.push_back(function);
  }
  void run();

private:
  Attribute mutate(Attribute attribute);
  Type mutate(Type type);
  std::string word();
  NamedAttribute anyAttribute();
  void mutateAttribute(Operation *op);
  void replaceType();
  void replaceOperand(Operation *op);
  void eraseOp(Operation *op);
  void moveOp(Operation *op);
  void changeCall();
  void changeFunction();

  MLIRContext *context() { return module.getContext(); }
  /// Prints it, damages the text and parses that again; null if it is none any more.
  template <typename T, typename Parse> T throughText(T thing, Parse parse) {
    std::string text;
    llvm::raw_string_ostream(text) << thing;
    mutateText(text, random);
    return parse(text);
  }

  ModuleOp module;
  Random &random;
  SmallVector<Operation *> ops;
  SmallVector<Value> values;
  SmallVector<func::FuncOp> functions;
};

} // namespace

/// A string or symbol of the module, or a strange one.
std::string Mutator::word() {
  static const StringRef kWords[] = {"",      "x",      "re:(",   "re:.*",   "lm_head",
                                     "gptq",  "search", "linear", "layer_0", "forward",
                                     "a.b.c", "minmax", "absmax", "i8"};
  if (random.oneIn(8))
    return std::string(5000, 'n');
  if (random.oneIn(2) || ops.empty())
    return random.pick(kWords).str();
  SmallVector<std::string> found;
  random.pick(ops)->getAttrDictionary().walk([&](Attribute attribute) {
    if (auto text = dyn_cast<StringAttr>(attribute))
      found.push_back(text.str());
    if (auto symbol = dyn_cast<SymbolRefAttr>(attribute))
      found.push_back(symbol.getRootReference().str());
  });
  return found.empty() ? random.pick(kWords).str() : random.pick(found);
}

Attribute Mutator::mutate(Attribute attribute) {
  Builder b(context());
  return llvm::TypeSwitch<Attribute, Attribute>(attribute)
      .Case([&](BoolAttr value) { return b.getBoolAttr(!value.getValue()); })
      .Case([&](IntegerAttr value) -> Attribute {
        unsigned width =
            isa<IndexType>(value.getType()) ? 64 : value.getType().getIntOrFloatBitWidth();
        if (width == 0)
          return value;
        APInt number = APInt(128, edgeNumber(random), 10).trunc(width);
        return IntegerAttr::get(value.getType(), number);
      })
      .Case([&](FloatAttr value) -> Attribute {
        double kEdges[] = {0.0,
                           -0.0,
                           -1.0,
                           0.5,
                           1.0,
                           1e-300,
                           1e300,
                           1e-45,
                           3.4e38,
                           100.0,
                           std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()};
        return FloatAttr::get(value.getType(), random.pick(kEdges));
      })
      .Case([&](StringAttr) { return b.getStringAttr(word()); })
      .Case([&](SymbolRefAttr) { return FlatSymbolRefAttr::get(context(), word()); })
      .Case([&](TypeAttr value) { return TypeAttr::get(mutate(value.getValue())); })
      .Case([&](ArrayAttr array) {
        SmallVector<Attribute> elements(array.begin(), array.end());
        size_t at = random.below(elements.size());
        if (elements.empty() || random.oneIn(4))
          elements.push_back(anyAttribute().getValue());
        else if (random.oneIn(3))
          elements.erase(elements.begin() + at);
        else
          elements[at] = mutate(elements[at]);
        return b.getArrayAttr(elements);
      })
      .Case([&](DictionaryAttr dictionary) -> Attribute {
        NamedAttrList fields(dictionary);
        if (fields.empty() || random.oneIn(5)) {
          fields.set(word(), anyAttribute().getValue());
        } else {
          StringAttr name = random.pick(dictionary.getValue()).getName();
          if (random.oneIn(3))
            fields.erase(name);
          else
            fields.set(name, mutate(dictionary.get(name)));
        }
        // A name is never empty, which the printer could not print.
        if (fields.get(""))
          fields.erase("");
        return fields.getDictionary(context());
      })
      .Default([&](Attribute other) {
        Attribute changed = throughText(
            other, [&](const std::string &text) { return parseAttribute(text, context()); });
        return changed ? changed : other;
      });
}

Type Mutator::mutate(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || random.oneIn(4)) {
    Type changed =
        throughText(type, [&](const std::string &text) { return parseType(text, context()); });
    return changed ? changed : type;
  }
  SmallVector<int64_t> shape(tensor.getShape());
  size_t at = random.below(shape.size());
  Builder b(context());
  switch (random.below(6)) {
  case 0: {
    Type kElements[] = {b.getF32Type(),      b.getF16Type(),      b.getF64Type(),
                        b.getI8Type(),       b.getI1Type(),       b.getIntegerType(4),
                        b.getIntegerType(2), b.getIntegerType(3), b.getIntegerType(6),
                        b.getI32Type(),      b.getIndexType()};
    return tensor.clone(random.pick(kElements));
  }
  case 1:
    if (!shape.empty())
      shape.erase(shape.begin() + at);
    break;
  case 2:
    shape.insert(shape.begin() + at, random.oneIn(2) ? ShapedType::kDynamic : 1);
    break;
  case 3:
    if (!shape.empty())
      shape[at] = ShapedType::isDynamic(shape[at]) ? 8 : ShapedType::kDynamic;
    break;
  default:
    int64_t extent = 0;
    if (!shape.empty() && !StringRef(edgeNumber(random)).getAsInteger(10, extent) && extent >= 0)
      shape[at] = extent;
  }
  return tensor.clone(shape);
}

NamedAttribute Mutator::anyAttribute() {
  for (int tries = 0; tries < 8 && !ops.empty(); ++tries)
    if (DictionaryAttr dictionary = random.pick(ops)->getAttrDictionary(); !dictionary.empty())
      return random.pick(dictionary.getValue());
  Builder b(context());
  return b.getNamedAttr("equant.plan", b.getUnitAttr());
}

void Mutator::mutateAttribute(Operation *op) {
  DictionaryAttr attributes = op->getAttrDictionary();
  if (attributes.empty() || random.oneIn(6)) {
    NamedAttribute other = anyAttribute();
    op->setAttr(other.getName(), other.getValue());
    return;
  }
  NamedAttribute chosen = random.pick(attributes.getValue());
  if (random.oneIn(6))
    op->removeAttr(chosen.getName());
  else
    op->setAttr(chosen.getName(), mutate(chosen.getValue()));
}

/// Replaces the type of one value, or a type wherever it occurs; then the module stays consistent.
void Mutator::replaceType() {
  if (values.empty())
    return;
  Value value = random.pick(values);
  Type from = value.getType(), to = mutate(from);
  if (random.oneIn(3))
    return value.setType(to);
  AttrTypeReplacer replacer;
  if (auto tensor = dyn_cast<RankedTensorType>(from);
      tensor && tensor.getRank() > 0 && random.oneIn(2)) {
    // One extent, wherever it is: a model of another size.
    int64_t extent = random.pick(tensor.getShape()), fresh = 0;
    if (StringRef(edgeNumber(random)).getAsInteger(10, fresh) || fresh < 0)
      return;
    replacer.addReplacement([=](RankedTensorType type) {
      SmallVector<int64_t> shape(type.getShape());
      llvm::replace(shape, extent, fresh);
      return type.clone(shape);
    });
  } else {
    replacer.addReplacement([=](Type type) { return type == from ? to : type; });
  }
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void Mutator::replaceOperand(Operation *op) {
  if (op->getNumOperands() == 0 || values.empty())
    return;
  OpOperand &operand = random.pick(op->getOpOperands());
  for (int tries = 0; tries < 20; ++tries) {
    Value value = random.pick(values);
    if (value.getType() != operand.get().getType() && tries < 15)
      continue;
    return operand.set(value);
  }
}

void Mutator::eraseOp(Operation *op) {
  if (op->getNumRegions() != 0 && !random.oneIn(4))
    return;
  for (Value result : op->getResults()) {
    if (result.use_empty())
      continue;
    auto like =
        llvm::find_if(op->getOperands(), [&](Value v) { return v.getType() == result.getType(); });
    if (like == op->operand_end())
      return;
    result.replaceAllUsesWith(*like);
  }
  op->erase();
}

void Mutator::moveOp(Operation *op) {
  Operation *other = random.pick(ops);
  if (op->isAncestor(other))
    return;
  if (random.oneIn(2))
    return op->moveBefore(other);
  Operation *copy = op->clone();
  OpBuilder(other).insert(copy);
  for (auto [old, fresh] : llvm::zip_equal(op->getResults(), copy->getResults()))
    old.replaceUsesWithIf(fresh, [&](OpOperand &) { return random.oneIn(2); });
}

/// Another callee, or one more call, which may be of the function itself, a layer or the entry.
void Mutator::changeCall() {
  if (functions.empty())
    return;
  func::FuncOp callee = random.pick(functions), caller = random.pick(functions);
  SmallVector<func::CallOp> calls;
  module.walk([&](func::CallOp call) { calls.push_back(call); });
  if (!calls.empty() && random.oneIn(3)) {
    random.pick(calls).setCallee(callee.getSymName());
    return;
  }
  if (caller.isExternal())
    return;
  SmallVector<Value> operands;
  for (Type type : callee.getArgumentTypes()) {
    auto like = llvm::find_if(caller.getArguments(), [&](Value v) { return v.getType() == type; });
    if (like == caller.getArguments().end())
      return;
    operands.push_back(*like);
  }
  OpBuilder builder = OpBuilder::atBlockTerminator(&caller.front());
  if (random.oneIn(2))
    builder.setInsertionPointToStart(&caller.front());
  auto call = func::CallOp::create(builder, caller.getLoc(), callee, operands);
  if (call.getNumResults() != 1)
    return;
  for (Value operand : operands)
    if (operand.getType() == call.getResult(0).getType())
      operand.replaceUsesWithIf(call.getResult(0), [&](OpOperand &use) {
        return use.getOwner() != call && random.oneIn(2);
      });
}

void Mutator::changeFunction() {
  if (functions.empty())
    return;
  func::FuncOp function = random.pick(functions);
  switch (random.below(5)) {
  case 0: { // twice
    func::FuncOp copy = function.clone();
    SymbolTable(module).insert(copy);
    return;
  }
  case 1: // only declared
    function.eraseBody();
    function.setPrivate();
    return;
  case 2:
    random.oneIn(2) ? function.setPrivate() : function.setPublic();
    return;
  case 3: { // renamed, with its calls or without
    std::string name = word();
    if (name.empty())
      return;
    StringAttr fresh = StringAttr::get(context(), name);
    if (random.oneIn(2))
      (void)SymbolTable::replaceAllSymbolUses(function, fresh, module);
    function.setSymNameAttr(fresh);
    return;
  }
  default: // a block more
    if (!function.isExternal()) {
      Block *block = function.addBlock();
      OpBuilder::atBlockEnd(block).clone(*function.front().getTerminator());
    }
  }
}

void Mutator::run() {
  if (ops.empty())
    return;
  Operation *op = random.pick(ops);
  switch (random.below(12)) {
  case 0:
    return mutateAttribute(module);
  case 1:
  case 2:
  case 3:
    return mutateAttribute(op);
  case 4:
  case 5:
  case 6:
    return replaceType();
  case 7:
    return replaceOperand(op);
  case 8:
    return eraseOp(op);
  case 9:
    return moveOp(op);
  case 10:
    return changeCall();
  default:
    return changeFunction();
  }
}

void easyquant::test::mutateModule(ModuleOp module, Random &random) {
  Mutator(module, random).run();
}
