//===- Target.h - What a model is compiled for ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target is a machine that code is generated for: an instruction set of CPUs, a chip. Targets
// that read the same weights by the same kernels are a family, and everything that the compiler
// asks of them is a member of Family. Families are in one registry, as passes and dialects are:
// each room behind lib/Target has a function that registers its family.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TARGET_TARGET_H
#define EASYQUANT_TARGET_TARGET_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Recipe/OptionValues.h"

#include "mlir/Pass/PassManager.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace easyquant {

class KernelLibrary;
struct LaunchModule;

namespace targets {

/// Is a product of codes what kernels may compute, of integers, or of FP8 with a scale a row by FP8
/// in groups of whole fragments? `input` may be null, which is float.
bool multipliesCodes(equant::SchemeAttr weight, equant::SchemeAttr input);

/// How the linears that multiply with a weight read their activations.
struct Readers {
  bool codes = false; ///< as codes of a byte, where multipliesCodes
  bool floats = false;

  /// The readers of a weight that one linear multiplies with activations of the scheme `input`;
  /// null: float.
  static Readers of(equant::SchemeAttr weight, equant::SchemeAttr input) {
    const bool isCodes = multipliesCodes(weight, input);
    return {isCodes, !isCodes};
  }
};

/// What a linear's kernel reads in the place of f32 activations.
enum class ActivationForm {
  AsIs,    ///< the activations themselves
  BF16,    ///< the activations as bf16
  Rounded, ///< f32 values that were rounded to the numbers of the scheme
  Codes,   ///< codes with their scales
};

/// What a family's kernels compute together, beside what those of all families do.
struct Fusions {
  bool bf16Results = false;    ///< a kernel writes the bf16 that its only reader takes
  bool rotations = false;      ///< queries and keys that lie side by side are rotated at once
  bool splitAttention = false; ///< attention takes queries, keys and values that lie side by side
  bool attentionCodes = false; ///< attention makes codes of its result
  bool keyBasis = false;       ///< what rotates queries and keys takes them to the basis of codes
};

/// What is the same for all weights files of a family.
struct WeightsFile {
  std::string stem;        ///< "weights": the file is weights.safetensors
  bool bf16Floats = false; ///< float weights of linears are fragments of bf16
  bool wholeLines = false; ///< every tensor ends at a multiple of 64 bytes
  bool plain = false;      ///< tensors have the shapes of the weights, nothing behind them
};

/// How weights lie in a file for those who read them.
class WeightForm {
public:
  virtual ~WeightForm();

  const std::string title; ///< who reads them, in sentences: "CPUs"
  const WeightsFile file;

  /// The layout in which a weight of this scheme is read.
  virtual equant::LayoutAttr layoutFor(equant::SchemeAttr weight, Readers readers) const = 0;

protected:
  WeightForm(std::string title, WeightsFile file);
};

/// Targets that are asked for by one name, and that one program holds.
struct TargetGroup {
  std::string request;              ///< behind `--target`: "cpu"
  std::string title;                ///< what it compiles for
  std::vector<std::string> targets; ///< "avx2", "avx512vnni"
};

/// Each expert's part of a weight has a multiple of so many outputs.
struct ExpertUnits {
  int64_t packed = 1, floats = 1;
};

/// Targets that read one weights file.
class Family : public WeightForm {
public:
  const std::string name;               ///< "cpu", "gpu"
  const std::vector<std::string> names; ///< of its targets: "avx2", "sm_80"
  /// Empty: each target is asked for by its own name.
  const std::vector<TargetGroup> groups;
  const Fusions fusions;
  const ExpertUnits expertUnits;

  /// What a user may write behind `--target`.
  std::vector<std::string> requests() const;
  /// The targets that a request names; none if the family does not know it.
  std::vector<std::string> targetsOf(llvm::StringRef request) const;
  bool has(llvm::StringRef target) const { return llvm::is_contained(names, target); }

  /// Null `input`: float activations of a linear, packed or not, whose `weight` does not matter.
  /// `target` is one of the family, or its name: then what all of them can do.
  virtual ActivationForm activationForm(equant::SchemeAttr weight, equant::SchemeAttr input,
                                        llvm::StringRef target) const = 0;
  /// Do kernels read the sums of int8 codes beside weights of this scheme?
  virtual bool readsSums(equant::SchemeAttr weight) const = 0;

  /// What is wrong with options of a program for these targets, if anything; `scheme` is that of
  /// the sites without a rule of their own.
  virtual std::optional<std::string> checkOptions(const recipe::OptionValues &options,
                                                  llvm::ArrayRef<std::string> targets,
                                                  llvm::StringRef scheme) const;
  /// The kernels of a target, which are made in the module. `kvCache` is the option of
  /// convert-equant-to-launches. Sets what of `program` depends on the target. Fails with a
  /// diagnostic on an option that the target does not take.
  virtual mlir::FailureOr<KernelLibrary> kernels(LaunchModule &program, llvm::StringRef target,
                                                 llvm::StringRef kvCache) const = 0;
  /// Adds the pass that takes a model on materialized weights to the program of these targets in
  /// the folder `output`.
  virtual void addProgramPass(mlir::OpPassManager &pm, llvm::ArrayRef<std::string> targets,
                              const recipe::OptionValues &options,
                              llvm::StringRef output) const = 0;

protected:
  struct Facts {
    std::string name, title;
    std::vector<std::string> names;
    std::vector<TargetGroup> groups;
    WeightsFile file;
    Fusions fusions;
    ExpertUnits expertUnits;
  };
  explicit Family(Facts facts);
};

/// Adds a family to the registry; once, however often.
template <typename FamilyT> void registerFamily() {
  [[maybe_unused]] static const bool isRegistered = (addFamily(std::make_unique<FamilyT>()), true);
}
void addFamily(std::unique_ptr<const Family> family);

/// In the order in which programs are made.
std::vector<const Family *> families();
/// The family of this name, or that of the target or the request of this name. InvalidArgument,
/// naming all that there are.
Result<const Family *> findFamily(llvm::StringRef name);
/// The families of all these names, each once; where there is no name, the one that was registered
/// first.
Result<std::vector<const Family *>> findFamilies(llvm::ArrayRef<std::string> names);

/// Targets of one family that a program is asked for.
struct Request {
  const Family *family;
  std::vector<std::string> targets; ///< each once, at least one
};
/// "sm_80,cpu" by family. InvalidArgument on a name that there is not.
Result<std::vector<Request>> parseRequests(llvm::StringRef text);
/// Everything that may stand in such a text.
std::vector<std::string> requestNames();

/// Why no kernel of the family multiplies a weight of N x K with activations of the scheme `input`
/// (null: float); empty if one does.
std::string whyNoKernel(const Family &family, int64_t n, int64_t k, equant::SchemeAttr weight,
                        equant::SchemeAttr input);

/// Why no kernel of the family takes experts whose weights have `n` outputs, if these are packed;
/// empty if one does.
std::string whyNoExperts(const Family &family, int64_t n, bool isPacked);

/// "; compile it with --target cpu", where another family takes what this one does not; or "".
std::string otherFamily(const WeightForm &family, int64_t n, int64_t k, equant::SchemeAttr weight,
                        equant::SchemeAttr input);

} // namespace targets
} // namespace easyquant

#endif // EASYQUANT_TARGET_TARGET_H
