//===- PlanWeightFile.cpp - Which tensors the artifact has ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/PlanWeightFile.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalOp;

namespace {

class TensorPlanner {
public:
  void plan(ModuleOp module, const ModelWeights &weights);
  void planHalves();

  std::vector<FileTensor> tensors;

private:
  std::string uniqueName(const std::string &name);
  void planWeight(const ConstantWeight &weight);
  void planFloat(const FloatConstant &constant, std::string name);

  llvm::StringSet<> names; // of `tensors`
};

} // namespace

/// "a.q_proj.weight" for one global; "a.q_proj+k_proj+v_proj.weight" for several.
static std::string joinNames(ArrayRef<StringRef> globals) {
  auto [name, suffix] = globals.front().rsplit('.');
  std::string joined = name.str();
  for (StringRef global : globals.drop_front()) {
    StringRef base = global.rsplit('.').first;
    joined += "+" + base.substr(base.rfind('.') + 1).str();
  }
  return suffix.empty() ? joined : joined + "." + suffix.str();
}

std::string TensorPlanner::uniqueName(const std::string &name) {
  std::string unique = name;
  for (int i = 2; !names.insert(unique).second; ++i)
    unique = name + "_" + std::to_string(i);
  return unique;
}

void TensorPlanner::planWeight(const ConstantWeight &weight) {
  SmallVector<StringRef> globals;
  for (const WeightPart &part : weight.parts)
    globals.push_back(part.weight.global);
  const SchemeAttr scheme = weight.scheme;
  const int64_t groups = scheme.getScaleShape({weight.rows, weight.columns})[1];
  // Read as float as well, the global keeps its name.
  std::string name = joinNames(globals);
  name = uniqueName(names.contains(name) ? name + "_packed" : name);
  auto add = [&](numerics::WeightTensor part, std::string tensorName, RankedTensorType type) {
    FileTensor &tensor = tensors.emplace_back();
    tensor.kind = FileTensor::Kind::Packed;
    tensor.name = std::move(tensorName);
    tensor.weight = &weight;
    tensor.part = part;
    tensor.shape.assign(type.getShape().begin(), type.getShape().end());
    // Kernels read whole lines of 64 bytes of codes; what follows begins at one.
    while (part != numerics::WeightTensor::Codes &&
           formats::tensorBytes(dtypeOf(tensor), tensor.shape).value_or(0) % 64 != 0)
      ++tensor.shape.front();
  };
  using numerics::WeightTensor;
  const LayoutAttr layout = weight.layout;
  add(WeightTensor::Codes, name,
      layout.getPackedCodesType(weight.rows, weight.columns, scheme.getBits()));
  add(WeightTensor::Scales, uniqueName(name + "_scale"),
      layout.getPackedScalesType(weight.rows, groups, scheme.getScale()));
  if (!scheme.getSymmetric())
    add(WeightTensor::ZeroPoints, uniqueName(name + "_zero_point"),
        layout.getPackedZeroPointsType(weight.rows, groups, scheme.getBits()));
  if (weight.needsSums)
    add(WeightTensor::Sums, uniqueName(name + "_sums"),
        layout.getPackedSumsType(weight.rows, groups));
}

void TensorPlanner::planFloat(const FloatConstant &constant, std::string name) {
  FileTensor &tensor = tensors.emplace_back();
  tensor.kind = constant.rope ? FileTensor::Kind::RopeTable : FileTensor::Kind::Float;
  tensor.name = std::move(name);
  tensor.shape.assign(constant.type.getShape().begin(), constant.type.getShape().end());
  tensor.constant = &constant;
}

void TensorPlanner::plan(ModuleOp module, const ModelWeights &weights) {
  llvm::StringMap<SmallVector<const ConstantWeight *>> weightsOf;
  for (const ConstantWeight &weight : weights.packed())
    weightsOf[weight.parts.front().weight.global].push_back(&weight);
  llvm::StringMap<SmallVector<const FloatConstant *>> floatsOf;
  for (const FloatConstant &constant : weights.floats())
    floatsOf[constant.parts.front().global].push_back(&constant);
  // A constant as the model has it comes first, and so keeps the name of its global.
  llvm::DenseMap<const FloatConstant *, std::string> nameOf;
  for (bool scaled : {false, true})
    for (const FloatConstant &constant : weights.floats()) {
      if (constant.parts.front().steps.empty() == scaled)
        continue;
      SmallVector<StringRef> globals;
      for (const ConstantTensor &part : constant.parts)
        globals.push_back(part.global);
      nameOf[&constant] = uniqueName(joinNames(globals));
    }
  // In the order of the model.
  for (GlobalOp global : module.getOps<GlobalOp>()) {
    for (const ConstantWeight *weight : weightsOf.lookup(global.getSymName()))
      planWeight(*weight);
    for (const FloatConstant *constant : floatsOf.lookup(global.getSymName()))
      planFloat(*constant, nameOf.lookup(constant));
  }
  sortForAlignment(tensors);
}

static bool isWeightOfLinear(const OpOperand *reader) {
  auto linear = dyn_cast<lm::LinearOp>(reader->getOwner());
  return linear && linear.getWeight() == reader->get();
}
/// Of a constant that is multiplied: such readers want nothing on a GPU but its halves, which an
/// embedding takes its rows from.
static bool readsHalves(const OpOperand *reader) {
  return isWeightOfLinear(reader) || isa<lm::EmbeddingOp>(reader->getOwner());
}

/// Weights of float linears, which GPUs multiply in halves, once more for these; in f32 only where
/// something else reads them.
void TensorPlanner::planHalves() {
  std::vector<FileTensor> halves;
  for (FileTensor &tensor : tensors) {
    if (!tensor.constant || llvm::none_of(tensor.constant->readers, isWeightOfLinear))
      continue;
    FileTensor &copy = halves.emplace_back(tensor);
    copy.kind = FileTensor::Kind::Halves;
    copy.name = uniqueName(tensor.name + "_halves");
    copy.onlyGpu = true;
    tensor.onlyCpu = llvm::all_of(tensor.constant->readers, readsHalves);
  }
  std::move(halves.begin(), halves.end(), std::back_inserter(tensors));
}

/// The shape in the file for GPUs; writeWeights says what is wrong where there is none.
static void planForGPU(FileTensor &tensor) {
  if (tensor.kind == FileTensor::Kind::Halves) {
    int64_t bytes = numerics::floatFragmentBytes(tensor.shape[0], tensor.shape[1]);
    tensor.gpuShape = {bytes / numerics::kFragmentBytes,
                       numerics::kFragmentBytes / int64_t(sizeof(uint16_t))};
    return;
  }
  if (!tensor.weight) {
    int64_t count = ShapedType::getNumElements(tensor.shape);
    constexpr int64_t multiple = kGPUAlignment / sizeof(float);
    if (count % multiple == 0)
      tensor.gpuShape = tensor.shape;
    else
      tensor.gpuShape = {static_cast<int64_t>(llvm::alignTo(count, multiple))};
    return;
  }
  Result<numerics::FragmentLayout> layout = fragmentLayoutOf(*tensor.weight);
  if (!layout)
    return;
  int64_t bytes = layout->bytes(tensor.part), element = formats::dtypeBytes(dtypeOf(tensor));
  int64_t rows =
      tensor.part == numerics::WeightTensor::Codes ? layout->rowBlocks() : layout->groups();
  if (bytes % kGPUAlignment == 0)
    tensor.gpuShape = {rows, bytes / element / rows};
  else
    tensor.gpuShape = {static_cast<int64_t>(llvm::alignTo(bytes, kGPUAlignment)) / element};
}

std::vector<FileTensor> easyquant::equant::planTensors(ModuleOp module, const ModelWeights &weights,
                                                       WeightFiles files) {
  TensorPlanner planner;
  planner.plan(module, weights);
  if (files.gpu) {
    planner.planHalves();
    for (FileTensor &tensor : planner.tensors)
      planForGPU(tensor);
  }
  return std::move(planner.tensors);
}
