//===- Options.td - Methods and options, all of them -------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one table of methods and options. Passes name rows of it among their options; recipe files,
// plans, checks, the command lines of easyquant-compile and `easyquant compile` and their help are
// made from it. A new option is a row here, its name in the list of its pass, and its use there.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_OPTIONS
#define EASYQUANT_RECIPE_OPTIONS

include "easyquant/Recipe/OptionBase.td"

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

def AbsMaxMethod    : Method<"absmax", "absmax", Base, "::easyquant::equant", "AbsMax">;
def ZeroPointMethod : Method<"zeropoint", "zeropoint", Base, "::easyquant::equant", "ZeroPoint">;
def SymmetricMethod : Method<"symmetric", "symmetric", Base, "::easyquant::equant", "Symmetric">;
def ZeroQuantMethod : Method<"zeroquant", "ZeroQuant", Base, "::easyquant::equant", "ZeroQuant">;
def SmoothQuantMethod : Method<"smoothquant", "SmoothQuant", Transform, "::easyquant::equant", "SmoothQuant"> {
  let statistics = "absmax";
}
def AwqMethod  : Method<"awq", "AWQ", Transform, "::easyquant::methods", "Awq">;
def GptqMethod : Method<"gptq", "GPTQ", Rounding, "::easyquant::methods", "Gptq">;
def SignRoundMethod : Method<"signround", "SignRound", Rounding, "::easyquant::methods", "SignRound">;
def LkdMethod  : Method<"lkd", "LKD", Rounding, "::easyquant::methods", "Lkd">;

//===----------------------------------------------------------------------===//
// What to make
//===----------------------------------------------------------------------===//

let group = "What to make", key = "" in {
  def Target : TableOption<"targetNames", Text, "target", "cpu", "what to compile for, several with commas between them"> {
    let joint = ",";
    let value = "TARGETS";
  }
  def ExportFormat : TableOption<"exportFormat", Choice, "format", "",
                                 "write a checkpoint that others load, in this format, instead of an artifact"> {
    let choices = ["compressed-tensors", "gptq", "gptq_v2", "awq", "gguf", "onnx"];
    let flag = "export";
    let noun = "format of checkpoints";
    let value = "FORMAT";
  }
  def Closest : TableOption<"closest", Switch, "closest", "false",
                            "with --export and scheme keep: numbers that the format does not hold become the closest that it "
                            "holds, instead of an error">;
  def Isas : TableListOption<"isas", "isa", "instruction sets to compile for"> {
    let joint = ",";
    let defaultWords = "all of them";
    let noun = "instruction set";
    let value = "ISA";
    let internal = 1;
  }
  def Context : TableOption<"context", Integer, "context", "",
                            "longest sequence that the artifact takes, prompt and answer together; its tables of positions end there"> {
    let defaultWords = "the model's";
    let value = "TOKENS";
    let least = "1";
  }
  def DraftHead : TableOption<"draftHead", Choice, "draft-head", "auto",
                              "the head that drafts tokens for speculation (multi-token prediction): taken along where the checkpoint has one and the target runs it, or left out"> {
    let choices = ["auto", "none"];
  }
  def Assistant : TableOption<"assistant", Text, "assistant", "",
                              "Hugging Face folder of the model that was trained to draft for this one (gemma4_assistant): it becomes the artifact's head for drafts"> {
    let value = "FOLDER";
  }
  def TensorParallel : TableOption<"tensorParallel", Integer, "tensor-parallel", "1",
                                   "ranks that share the model: heads, MLP and vocabulary; apart from --threads"> {
    let description = "ranks that share the model (default: 1)";
    let value = "D";
    let least = "1";
  }
  def Threads : TableOption<"threads", Count, "threads", "", "threads to compile with; results do not depend on them"> {
    let description = "threads; 0: one per core. Results do not depend on it";
    let defaultWords = "all CPUs";
    let least = "0";
  }
  def MaxShardBytes : TableOption<"maxShardBytes", Integer, "max-shard-bytes", "5000000000",
                                  "bytes of weights in one file, beyond which they are sharded"> {
    let defaultWords = "5 GB";
    let value = "BYTES";
    let least = "1";
  }
  def MaxRows : TableOption<"maxRows", Integer, "max-rows", "512", "most tokens of one call; buffers are planned for it"> {
    let flag = "";
  }
  def CopyFiles : TableListOption<"copyFiles", "copy-files", "files to take along under their own names, such as a tokenizer's"> {
    let flag = "copy-file";
    let value = "FILE";
    let internal = 1;
  }
  def Vocabulary : TableOption<"vocabulary", Text, "vocabulary", "", "GGUF file whose tokenizer a GGUF file that is written gets"> {
    let defaultWords = "the model's, where it is a GGUF file";
    let value = "FILE";
    let internal = 1;
  }
  def Opset : TableOption<"opset", Integer, "opset", "", "version of the operators of an ONNX model"> {
    let defaultWords = "the least that its schemes need";
    let least = "18";
    let most = "25";
  }
  def Force : TableOption<"force", Switch, "force", "", "replace an artifact that is there already">;
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

let group = "Quantization" in {
  let planned = 1, perSite = 1 in {
    def Scheme : TableOption<"scheme", Choice, "scheme", "W8A8",
                             "bits of weights and activations, as in W4A16; _ASYM: weights with zero points; Q3 to Q6: a format for each kind of site; none is float; keep takes the codes of a checkpoint that is quantized, keepA8 with int8 activations"> {
      let defaultWords = "W8A8; keep where the checkpoint is quantized";
      let value = "SCHEME";
    }
    def MethodOption : TableOption<"method", Text, "method", "",
                                   "methods joined by +, as in smoothquant+gptq and zeroquant+lkd"> {
      let joint = "+";
      let defaultWords = "absmax; zeropoint for _ASYM; for mixes awq+signround where calibration text is given, else zeropoint";
      let value = "METHOD";
    }
  }
  let key = "" in
  def RecipeFile : TableOption<"recipe", Text, "recipe", "",
                               "file of scheme and method per site, instead of options for all: JSON, with easyquant YAML too"> {
    let value = "FILE";
  }
  let planned = 1, perSite = 1 in {
    def GroupSize : TableOption<"groupSize", Integer, "group-size", "",
                                "weights that share a scale: a multiple of 8, or 0 for a whole row"> {
      let defaultWords = "128 below 8 bits";
      let least = "0";
    }
    def ScaleType : TableOption<"scaleType", Choice, "scale-type", "", "type of the scales of integer weights; two-level: 6 bits under an f16 for every 8 groups"> {
      let choices = ["f32", "f16", "two-level"];
      let defaultWords = "f16 of groups, f32 of rows";
      let value = "TYPE";
    }
    def Activations : TableOption<"activations", Choice, "activations", "",
                                  "how quantized activations get scales: dynamic, one a token at run time; static, one a tensor from calibration text; online, one a tensor that starts so and follows each sequence; float leaves those of Q3 to Q6 as they are"> {
      let choices = ["dynamic", "static", "online-ema", "online-window", "float"];
      let defaultWords = "dynamic but for FP8 and NVFP4";
      let value = "KIND";
    }
    def ActivationGroupSize : TableOption<"activationGroupSize", Integer, "activation-group-size", "",
                                          "columns of a token that share a scale where activations are int8 and dynamic: 32, 64 or 128, or 0 for one scale a token"> {
      let defaultWords = "0; 32 with keepA8";
      let value = "N";
      let least = "0";
    }
    def ActivationZeroPoints : TableOption<"activationZeroPoints", Switch, "activation-zero-points", "false",
                                           "zero points beside the scales of groups of columns: for activations that lie to one side of 0">;
  }
  let planned = 1, perSite = 1 in {
    def ActivationBasis : TableOption<"activationBasis", Choice, "activation-basis", "",
                                      "basis in which linears read activations: hadamard rotates blocks of columns, so that a few large ones do not take all codes"> {
      let choices = ["plain", "hadamard"];
      let defaultWords = "hadamard where activations are int8, else plain";
      let value = "BASIS";
    }
    def HadamardBlock : TableOption<"hadamardBlock", Integer, "hadamard-block", "512",
                                    "most columns that are rotated together, a power of two; a site takes the most that divide its columns"> {
      let value = "N";
      let least = "16";
      let most = "512";
    }
  }
  let planned = 1 in {
    def Head : TableOption<"head", Choice, "head", "", "the output head and an embedding tied to it"> {
      let choices = ["int8", "float", "keep"];
      let defaultWords = "int8 in quantized schemes, float in none, keep in keep";
      let value = "TYPE";
    }
    def HeadGroupSize : TableOption<"headGroupSize", Integer, "head-group-size", "",
                                    "weights of a head with a scheme of its own that share a scale, as --group-size"> {
      let defaultWords = "128 below 8 bits";
      let least = "0";
    }
    def Ignore : TableListOption<"ignore", "ignore", "sites to leave float: names, or re: and a regular expression"> {
      let value = "SITE";
    }
    def Targets : TableListOption<"targets", "targets",
                                  "sites to quantize, all where none is named: names, or re: and a regular expression"> {
      let value = "SITE";
    }
  }
  let planned = 1, perSite = 1 in {
    def WeightObserver : TableOption<"weightObserver", Choice, "weight-observer", "absmax",
                                     "range of the weights that share a scale"> {
      let choices = ["absmax", "minmax", "percentile", "mse", "entropy", "hessian-diagonal"];
      let defaultWords = "absmax; hessian-diagonal where calibration text is given and weights are in groups or activations float";
      let value = "RULE";
    }
    def WeightPercentile : TableOption<"weightPercentile", Number, "weight-percentile", "99.99",
                                       "percentage of weights that a range by percentile holds; with weight observer percentile"> {
      let value = "P";
    }
  }
  def Observer : TableOption<"observer", Choice, "observer", "minmax", "range of static activations"> {
    let owner = "static";
    let perSite = 1;
    let value = "RULE";
  }
  def ObserverPercentile : TableOption<"observerPercentile", Number, "observer-percentile", "99.99",
                                       "percentage of activations that a static range by percentile holds; with observer percentile"> {
    let owner = "static";
    let value = "P";
  }
  def Sinks : TableOption<"sinks", Choice, "sinks", "",
                          "tokens that tower above the others, as attention sinks do: keep leaves them out of static ranges and gives them scales of their own"> {
    let choices = ["none", "keep"];
    let defaultWords = "keep where static or online activations are int8 by observer minmax or absmax, else none";
    let owner = "static";
    let planned = 1;
    let perSite = 1;
    let value = "KIND";
  }
  let owner = "online" in {
    def OnlineDecay : TableOption<"onlineDecay", Number, "online-decay", "0.9",
                                  "weight of the past where online scales follow a step's largest magnitude"> {
      let value = "A";
      let least = "0";
      let most = "1";
    }
    def OnlineWindow : TableOption<"onlineWindow", Integer, "online-window", "16",
                                   "steps whose largest magnitude scales of online-window follow"> {
      let value = "N";
      let least = "1";
      let most = "1022";
    }
    def OnlineTokens : TableOption<"onlineTokens", Integer, "online-tokens", "32",
                                   "most tokens of a sequence that one step computes; its online scales change after each step, so that fewer follow faster"> {
      let value = "N";
      let least = "1";
    }
  }
  def Mixed : TableOption<"mixed", Switch, "mixed", "false",
                          "weights of 4 bits in MLPs, of 8 in attention; with W8A8 or W8A16"> {
    let owner = "zeroquant";
    let planned = 1;
  }
  def Dequantize : TableOption<"dequantize", Switch, "dequantize", "false",
                               "with scheme keep: sites whose codes no scheme has, or no kernel of a target reads, become float, instead of an error"> {
    let planned = 1;
  }
  let key = "" in
  def MaxFallback : TableOption<"maxFallback", Integer, "max-fallback", "0",
                                "sites that may stay float where they cannot be quantized as asked"> {
    let least = "0";
  }
}

//===----------------------------------------------------------------------===//
// Calibration
//===----------------------------------------------------------------------===//

let group = "Calibration", key = "" in {
  def TokensFile : TableOption<"tokensFile", Text, "tokens", "", "safetensors file of calibration tokens"> {
    let value = "FILE";
    let internal = 1;
  }
  def WorkFolder : TableOption<"workFolder", Text, "work", "",
                               "folder of what calibration and methods compute; a run that was ended goes on from it"> {
    let description = "folder of what is computed; by default that of the module";
    let defaultWords = "OUT.work, removed at the end";
    let value = "DIR";
  }
  def ExpertTokens : TableOption<"expertTokens", Integer, "expert-tokens", "0",
                                 "tokens of calibration text that each expert is to see: while some have seen fewer, more windows are read, up to four times --nsamples"> {
    let least = "0";
  }
  def LossStatistics : TableOption<"lossStatistics", Text, "statistics", "",
                                   "file that easyquant calibrate --statistic fisher wrote on the same text: --hessian loss and loss-both take it and do not run the model backward again"> {
    let noun = "statistics file";
    let value = "FILE";
  }
}

//===----------------------------------------------------------------------===//
// Options of methods
//===----------------------------------------------------------------------===//

let group = "Options of methods" in {
  let owner = "smoothquant" in
  def Alpha : TableOption<"alpha", TextOrNumber, "alpha", "0.5",
                          "0 leaves activations as they are, 1 makes their channels alike; search: the best for each site"> {
    let choices = ["search"];
    let description = help # " (default: 0.5)";
    let perSite = 1;
    let value = "A";
    let least = "0";
    let most = "1";
  }
  let owner = "awq" in {
    def SearchSamples : TableOption<"searchSamples", Integer, "search-samples", "4",
                                    "samples, the first ones, that candidates are compared on"> {
      let least = "1";
    }
    def Clip : TableOption<"clip", Switch, "clip", "true", "search ranges too"> {
      let perSite = 1;
    }
  }
  let owner = "gptq" in
  def Hessian : TableOption<"hessian", Choice, "hessian", "sinks",
                            "what an error costs: squares of a linear's output (inputs), in k and v by the attention that tokens receive (sinks); or the model's loss, by tokens (loss; also of ranges by hessian-diagonal) or also by rows (loss-both)"> {
    let choices = ["inputs", "sinks", "loss", "loss-both"];
    let value = "METRIC";
  }
  let owner = "gptq", perSite = 1 in {
    def ActOrder : TableOption<"actOrder", Switch, "act-order", "true",
                               "columns in order of descending diagonal of H, those that matter most first; implies static groups">;
    def StaticGroups : TableOption<"staticGroups", Switch, "static-groups", "false",
                                   "scales of groups from the weights as they were">;
    def Damping : TableOption<"damping", Number, "damping", "0.01",
                              "share of mean(diag H) added to the diagonal of H; grows up to ten times that if H needs it"> {
      let value = "D";
      let least = "0";
      let exclusive = 1;
    }
  }
  let owner = "signround" in
  def Steps : TableOption<"steps", Integer, "steps", "200", "updates of offsets and ranges, each by one sample's gradients"> {
    let least = "1";
  }
  let owner = "lkd" in
  def Epochs : TableOption<"epochs", Integer, "epochs", "4", "passes over the samples that are not held out"> {
    let least = "1";
  }
}

//===----------------------------------------------------------------------===//
// KV cache
//===----------------------------------------------------------------------===//

let group = "KV cache" in {
  let key = "" in
  def KVCache : TableOption<"kvCache", Choice, "kv-cache", "auto",
                            "element type of the KV cache; auto is f16 where anything is quantized"> {
    let choices = ["auto", "f32", "f16"];
    let noun = "type of the KV cache";
    let value = "TYPE";
  }
  let section = "kv" in {
    def KVScheme : TableOption<"kvScheme", Choice, "scheme", "int4", "how keys and values of the past are kept, none being float"> {
      let choices = ["none", "int8", "int4", "int2"];
      let defaultWords = "none";
      let flag = "kv-scheme";
      let noun = "KV scheme";
      let value = "TYPE";
    }
    def KVGroup : TableOption<"kvGroup", Integer, "group", "64",
                              "tokens of a channel, and dimensions of a token, that share a scale: a power of two from 16 to 1024"> {
      let flag = "kv-group";
      let noun = "KV group";
      let least = "1";
    }
    def KVResidual : TableOption<"kvResidual", Integer, "residual", "128",
                                 "newest tokens that stay float: a multiple of the group"> {
      let flag = "kv-residual";
      let noun = "KV residual";
      let least = "1";
    }
    def KVSinks : TableOption<"kvSinks", Integer, "sinks", "4", "first tokens that stay float"> {
      let flag = "kv-sinks";
      let noun = "KV sinks";
      let least = "0";
    }
    def KVKeys : TableOption<"kvKeys", Choice, "keys", "post-rope", "keep keys after or before their rotary rotation, or behind a Hadamard matrix after it, with one scale a token"> {
      let choices = ["post-rope", "pre-rope", "hadamard"];
      let flag = "kv-keys";
      let noun = "place of KV keys";
      let value = "PLACE";
    }
    def KVKeyScales : TableOption<"kvKeyScales", Choice, "key-scales", "channel",
                                  "scales of keys, per channel or per token as those of values"> {
      let choices = ["channel", "token"];
      let flag = "kv-key-scales";
      let noun = "scales of KV keys";
      let value = "AXIS";
    }
  }
}

//===----------------------------------------------------------------------===//
// What the command lines alone have
//===----------------------------------------------------------------------===//

let group = "Look, and stop", key = "" in {
  def DryRun : TableOption<"dryRun", Switch, "dry-run", "", "show what would become of each site, and stop">;
  def WithText : TableOption<"withText", Switch, "with-text", "",
                             "with --dry-run: plan as if there were calibration text, which nobody reads then"> {
    let internal = 1;
  }
  def DumpPipeline : TableOption<"dumpPipeline", Switch, "dump-pipeline", "",
                                 "print the easyquant-opt command that does the same step by step, and stop">;
  def EmitIRAfter : TableOption<"emitIRAfter", Choice, "emit-ir-after", "", "print the IR after a phase, and stop"> {
    let choices = ["import", "quantize", "materialize", "kernels"];
    let noun = "phase";
    let value = "PHASE";
  }
}

#endif // EASYQUANT_RECIPE_OPTIONS
