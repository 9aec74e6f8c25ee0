//===- FileTensors.cpp - Which tensors the artifact has -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/FileTensors.h"

#include "easyquant/Dialect/LM/Analysis/WhyF32.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/Packing.h"
#include "easyquant/Weights/WeightLayouts.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using formats::DType;
using ml_program::GlobalOp;
using numerics::WeightTensor;

namespace {

/// Kernels read whole lines of so many bytes.
constexpr int64_t kAlignment = 64;

class TensorLister {
public:
  explicit TensorLister(const TargetWeights &target) : target(target) {}

  std::vector<FileTensor> list();

private:
  std::string uniqueName(const std::string &name);
  void addWeight(const ConstantWeight &weight);
  void addFloat(const FloatConstant &constant, std::string name);
  void addBF16(const FloatConstant &constant);

  const TargetWeights &target;
  llvm::StringSet<> names; ///< of all tensors
  llvm::DenseMap<const FloatConstant *, std::string> nameOf;
  std::vector<FileTensor> aligned, others, bf16; ///< one behind the other
};

} // namespace

/// "a.q_proj.weight" for one global; "a.q_proj+k_proj+v_proj.weight" for several. Several parts of
/// one lie one behind the other.
static std::string joinNames(SmallVector<StringRef> globals) {
  globals.erase(llvm::unique(globals), globals.end());
  auto [name, suffix] = globals.front().rsplit('.');
  std::string joined = name.str();
  for (StringRef global : ArrayRef(globals).drop_front()) {
    StringRef base = global.rsplit('.').first;
    joined += "+" + base.substr(base.rfind('.') + 1).str();
  }
  return suffix.empty() ? joined : joined + "." + suffix.str();
}

std::string TensorLister::uniqueName(const std::string &name) {
  std::string unique = name;
  for (int i = 2; !names.insert(unique).second; ++i)
    unique = name + "_" + std::to_string(i);
  return unique;
}

static int64_t bytesOf(const FileTensor &tensor) {
  return formats::tensorBytes(tensor.dtype, tensor.shape).value_or(0);
}

/// Scales of 8 bits are bytes, too: readers of safetensors without ml_dtypes have no type for them.
/// So are packed codes; plain ones are numbers.
static DType dtypeOf(Type element, bool isPlain) {
  if (isPlain && element.isSignlessInteger(8))
    return DType::I8;
  if (element.isF32())
    return DType::F32;
  if (element.isInteger(32))
    return DType::I32;
  if (element.isF16())
    return DType::F16;
  return element.isBF16() ? DType::BF16 : DType::U8;
}

void TensorLister::addWeight(const ConstantWeight &weight) {
  SmallVector<StringRef> globals;
  for (const WeightPart &part : weight.parts)
    globals.push_back(part.weight.global);
  // Read as float as well, the global keeps its name.
  std::string name = joinNames(globals);
  name = uniqueName(names.contains(name) ? name + "_packed" : name);
  // All packed tensors of panels end at a line, but for int3 codes of an odd number of blocks.
  const numerics::PanelLayout panels(weight.scheme.toNumerics(), weight.rows, weight.columns);
  const bool isAligned = panels.bytes(WeightTensor::Codes) % kAlignment == 0;
  auto &tensors = isAligned ? aligned : others;
  const WeightType packed = packedType(weight, target.form);
  if (!packed) // writeWeights says why
    return;
  for (auto [part, type] : packed.getParts()) {
    FileTensor &tensor = tensors.emplace_back();
    tensor.kind = FileTensor::Kind::Packed;
    tensor.name = part == WeightTensor::Codes ? name : uniqueName(name + suffixOf(part).str());
    tensor.weight = &weight;
    tensor.part = part;
    const bool isPlain = target.form.file.plain;
    tensor.dtype = dtypeOf(type.getElementType(), isPlain);
    tensor.shape.assign(type.getShape().begin(), type.getShape().end());
    while (!isPlain && part != WeightTensor::Codes && bytesOf(tensor) % kAlignment != 0)
      ++tensor.shape.front();
  }
}

/// Is it the weight of a linear that GPUs multiply in bf16?
static bool isMultiplied(const OpOperand *reader) {
  auto linear = dyn_cast<lm::LinearOp>(reader->getOwner());
  return linear && linear.getWeight() == reader->get() && lm::whyF32(linear).empty();
}
/// Such readers of a constant that is multiplied want nothing on a GPU but its bf16 fragments, from
/// which an embedding takes its rows.
static bool readsBF16(const OpOperand *reader) {
  return isMultiplied(reader) || isa<lm::EmbeddingOp>(reader->getOwner());
}
static bool hasBF16(const FloatConstant &constant) {
  return llvm::any_of(constant.readers, isMultiplied);
}

void TensorLister::addFloat(const FloatConstant &constant, std::string name) {
  FileTensor tensor;
  const bool isOrder = !constant.type.getElementType().isF32();
  tensor.kind = constant.rope ? FileTensor::Kind::RopeTable
                : isOrder     ? FileTensor::Kind::Order
                              : FileTensor::Kind::Float;
  if (isOrder)
    tensor.dtype = DType::I32;
  else if (!target.form.file.plain)
    tensor.dtype = constant.leastType();
  tensor.name = std::move(name);
  tensor.shape.assign(constant.type.getShape().begin(), constant.type.getShape().end());
  tensor.constant = &constant;
  bool isAligned = bytesOf(tensor) % kAlignment == 0;
  const targets::WeightsFile &file = target.form.file;
  if (file.bf16Floats && hasBF16(constant)) {
    addBF16(constant);
    if (llvm::all_of(constant.readers, readsBF16))
      return;
  }
  if (file.wholeLines && !isAligned)
    tensor.shape = {static_cast<int64_t>(
        llvm::alignTo(constant.type.getNumElements(), kAlignment / dtypeBytes(tensor.dtype)))};
  (isAligned ? aligned : others).push_back(std::move(tensor));
}

/// A weight of float linears, which GPUs multiply in bf16.
void TensorLister::addBF16(const FloatConstant &constant) {
  FileTensor &tensor = bf16.emplace_back();
  tensor.kind = FileTensor::Kind::BF16;
  tensor.name = uniqueName(nameOf.lookup(&constant) + "_bf16");
  tensor.dtype = DType::BF16;
  tensor.constant = &constant;
  int64_t bytes =
      numerics::floatFragmentBytes(constant.type.getDimSize(0), constant.type.getDimSize(1));
  tensor.shape = {bytes / numerics::kFragmentBytes,
                  numerics::kFragmentBytes / int64_t(sizeof(uint16_t))};
}

std::vector<FileTensor> TensorLister::list() {
  const ModelWeights &weights = target.weights;
  llvm::StringMap<SmallVector<const ConstantWeight *>> weightsOf;
  for (const ConstantWeight &weight : weights.packed())
    weightsOf[weight.parts.front().weight.global].push_back(&weight);
  llvm::StringMap<SmallVector<const FloatConstant *>> floatsOf;
  for (const FloatConstant &constant : weights.floats())
    floatsOf[constant.parts.front().global].push_back(&constant);
  // A constant as the model has it comes first, and so keeps the name of its global.
  for (bool isGlobal : {true, false})
    for (const FloatConstant &constant : weights.floats()) {
      if ((constant.parts.front().isGlobal() && !constant.columns) != isGlobal)
        continue;
      SmallVector<StringRef> globals;
      for (const ConstantTensor &part : constant.parts)
        globals.push_back(part.global);
      nameOf[&constant] = uniqueName(joinNames(globals));
    }
  // In the order of the model.
  ModuleOp module = target.module;
  for (GlobalOp global : module.getOps<GlobalOp>()) {
    for (const ConstantWeight *weight : weightsOf.lookup(global.getSymName()))
      addWeight(*weight);
    for (const FloatConstant *constant : floatsOf.lookup(global.getSymName()))
      addFloat(*constant, nameOf.lookup(constant));
  }
  std::move(others.begin(), others.end(), std::back_inserter(aligned));
  std::move(bf16.begin(), bf16.end(), std::back_inserter(aligned));
  return std::move(aligned);
}

std::vector<FileTensor> easyquant::equant::fileTensors(const TargetWeights &target) {
  return TensorLister(target).list();
}
