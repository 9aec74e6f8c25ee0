//===- Architecture.h - What a model of a kind is made of -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One description for each architecture, in lib/Formats/Architectures.cpp, Gemma.cpp and
// Mixtures.cpp. The readers of config.json and GGUF, the writer of config.json, the list of
// tensors, the importer, the table of docs/guide/models.md and the seeds of the fuzzer walk it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_ARCHITECTURE_H
#define EASYQUANT_FORMATS_ARCHITECTURE_H

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace easyquant::formats {

enum class Activation {
  SiLU,        ///< x * sigmoid(x)
  GeluTanh,    ///< the tanh approximation
  GeluErf,     ///< the exact one
  ClampedSiLU, ///< of gate and up of gpt-oss, both clamped (lm.glu clamped)
};

/// A module with weights: its name in a Hugging Face checkpoint and in GGUF. Null: there is none.
struct ModuleName {
  const char *name = nullptr, *gguf = nullptr;
  constexpr explicit operator bool() const { return name != nullptr; }
};

/// Text as an argument of a template.
template <size_t size> struct Literal {
  char text[size];
  constexpr Literal(const char (&literal)[size]) { std::ranges::copy(literal, text); }
};

/// A module of one kind: Hugging Face names it by architecture, GGUF by what it does.
template <Literal inGGUF> struct Module : ModuleName {
  constexpr Module(const char *name = nullptr) : ModuleName{name, inGGUF.text} {}
};

/// A size in config.json.
struct SizeField {
  /// What the size is where the field is missing, if it is no number.
  enum Rule : int64_t { Required = 0, NumHeads = -1, HiddenPerHead = -2, FourTimesHidden = -3 };

  const char *key = nullptr; ///< null: config.json never says it
  int64_t otherwise = Required;
};

/// Whether some linears have biases.
struct BiasRule {
  bool always = false;
  const char *key = nullptr; ///< a flag of config.json decides
};

/// A name that config.json has for an activation.
struct ActivationName {
  const char *name;
  Activation activation;
};

/// A flag of config.json that has to be what it is where it is missing.
struct FixedFlag {
  const char *key;
  bool value;
};

/// A field that has to be missing or null, or to be this word.
struct FixedNull {
  const char *key;
  const char *word = nullptr;
};

/// A number of config.json that may be 0, null being 0, too, and its key in GGUF behind the
/// architecture's name, where it is missing if it is 0, or 0.
struct CountField {
  const char *key = nullptr; ///< null: it is 0
  int64_t otherwise = 0;     ///< where the field is missing
  const char *gguf = nullptr;
  constexpr explicit operator bool() const { return key != nullptr; }
};

enum class NormKind { RMS, Layer };

/// RMS norms of q and k before the rotation.
enum class QKNorm {
  None,
  EachHead,       ///< one weight for all heads
  WholeProjection ///< one norm over all heads
};

/// How config.json speaks of a window of attention.
enum class WindowKind {
  None,
  AllLayers,  ///< sliding_window
  SomeLayers, ///< use_sliding_window, sliding_window, max_window_layers, layer_types
  Pattern     ///< sliding_window, layer_types, sliding_window_pattern
};

/// How config.json speaks of layers that have no attention.
enum class LayerKinds {
  Attention,   ///< all have it
  Convolution, ///< layer_types or full_attn_idxs; the others convolve
  GatedDelta,  ///< layer_types or full_attention_interval; the others have gated delta nets
};

/// A number in config.json, and its key in GGUF behind the architecture's name.
struct NumberField {
  const char *key = nullptr; ///< null: there is none
  double otherwise = 0.0;    ///< where the field is missing
  const char *gguf = nullptr;
  constexpr explicit operator bool() const { return key != nullptr; }
};

/// What is said of a mixture of experts. A router gives each row a number for every
/// expert; the experts with the greatest of them compute the row, and its result is the sum of
/// theirs, each times its softmax, or its sigmoid.
struct ExpertFields {
  /// A flag: there are none where it is false or missing. Null: there are some in all models.
  const char *enabledKey = nullptr;
  /// They do not take the place of an MLP: LayerModules says how both are added.
  bool besideMlp = false;
  SizeField count = {};
  SizeField chosen = {}; ///< by each row
  SizeField size = {};   ///< columns between up and down; without a key: intermediateSize
  const char *renormalizesKey = nullptr; ///< a flag; null: it is true
  bool renormalizesOtherwise = false;    ///< where it is missing
  bool ggufRenormalizes = true;          ///< in GGUF, which does not say it
  /// Columns of an expert that computes all rows; no key: there is none. Its result is multiplied
  /// by the sigmoid of one number a row.
  SizeField sharedSize = {};
  bool biases = false; ///< the router and the experts have them
  bool sigmoid = false;
  /// A flag, true where it is missing: choices are by sigmoids to which LayerModules::choiceBias is
  /// added. Null: by what the router gives alone.
  const char *choiceBias = nullptr;
  /// What weights are multiplied by, which GGUF does not say.
  NumberField scale = {};
  /// How many of the first layers have an MLP in the place of experts; no key: none.
  NumberField denseLayers = {};
  constexpr explicit operator bool() const { return count.key != nullptr; }
};

/// The modules of a gated delta net, which a layer may have in the place of attention:
///
///   q, k and v = silu(convolution(in(...))), side by side
///   out(norm(recurrence(q, k, v, by decay(...) and strength(...))) * silu(gate(...)))
///
/// `rate` and `bias` are vectors of the recurrence, a number for each head of values.
struct DeltaModules {
  Module<"attn_qkv"> in = {};
  Module<"attn_gate"> gate = {};
  Module<"ssm_beta"> strength = {};
  Module<"ssm_alpha"> decay = {};
  Module<"ssm_conv1d"> convolution = {};
  Module<"ssm_a"> rate = {}; ///< GGUF has -exp of it
  Module<"ssm_dt.bias"> bias = {};
  Module<"ssm_norm"> norm = {};
  Module<"ssm_out"> out = {};
};

/// The modules of a layer, in the order of execution:
///
///   x = x + outputNorm(o(attention(q, k, v of inputNorm(x)), with q and k normed and rotated))
///   x = x + outputNorm(down(activation(gate) * up of inputNorm(x)))
///   x = x + inputProjectionNorm(inputProjection(activation(inputGate(x)) * the layer's inputs))
///   x = scalar * x
///
/// The third line is that of models with embeddings of layers (Architecture::layerEmbedding).
/// Where there is no gate, the activation is that of up. With a router, gate, up and down are those
/// of each expert that it chooses, and the sum of what these give is added, but in the first layers
/// that ExpertFields::denseLayers counts. Hugging Face has a
/// tensor for each expert (expertName()), GGUF one for all. With expertGateUp, Hugging Face has
/// stacks, too: gate and up of all experts, column by column side by side, in a tensor of that
/// name, and down in one of its own name; each E x K x N, biases E x N behind "_bias". Where it
/// stacksRows, they are E x N x K, an expert's rows of gate before those of up. GGUF may have gate
/// and up so, too, as kExpertGateUpInGGUF.
///
/// Where ExpertFields::besideMlp says so, the second line is
///
///   x = x + outputNorm(denseOutputNorm(MLP of inputNorm(x)) + expertOutputNorm(experts of
///   expertNorm(x)))
///
/// and the router's input is x normed with the weights routerScale / sqrt(d), d the columns of x.
/// What an expert gives is times its number among expertFactors.
/// In a layer that convolves, the place of
/// attention has
///
///   convolutionOut(C * convolution(B * y)), B, C and y side by side in convolutionIn(...)
///
/// and in one with a gated delta net what DeltaModules says.
struct LayerModules {
  Module<"attn_norm"> attentionNorm = {};
  Module<"attn_qkv"> qkv = {}; ///< in place of q, k and v: one linear for all three
  Module<"attn_q"> q = {};
  Module<"attn_k"> k = {};
  Module<"attn_v"> v = {};
  Module<"attn_q_norm"> qNorm = {};
  Module<"attn_k_norm"> kNorm = {};
  Module<"attn_sinks"> sinks = {}; ///< a logit for each head in its softmax: a vector
  Module<"attn_output"> o = {};
  Module<"shortconv.in_proj"> convolutionIn = {};
  Module<"shortconv.conv"> convolution = {};
  Module<"shortconv.out_proj"> convolutionOut = {};
  DeltaModules delta = {};
  Module<"post_attention_norm"> attentionOutputNorm = {};
  Module<"ffn_norm"> mlpNorm = {};
  Module<"ffn_up"> gateUp = {}; ///< in place of gate and up: one linear for both, gate first
  Module<"ffn_gate"> gate = {};
  Module<"ffn_up"> up = {};
  Module<"ffn_down"> down = {};
  Module<"ffn_gate_inp"> router = {};
  Module<"exp_probs_b.bias"> choiceBias = {}; ///< a number for each expert: a vector
  Module<"ffn_gate_inp.scale"> routerScale = {};
  Module<"ffn_down_exps.scale"> expertFactors = {};
  Module<"post_ffw_norm_1"> denseOutputNorm = {};
  Module<"pre_ffw_norm_2"> expertNorm = {};
  Module<"post_ffw_norm_2"> expertOutputNorm = {};
  Module<"ffn_gate_exps"> expertGate = {};
  Module<"ffn_up_exps"> expertUp = {};
  Module<"ffn_down_exps"> expertDown = {};
  const char *expertGateUp = nullptr;
  bool stacksRows = false;
  Module<"ffn_gate_shexp"> sharedGate = {};
  Module<"ffn_up_shexp"> sharedUp = {};
  Module<"ffn_down_shexp"> sharedDown = {};
  Module<"ffn_gate_inp_shexp"> sharedRouter = {}; ///< what its result is multiplied by
  Module<"post_ffw_norm"> mlpOutputNorm = {};
  Module<"inp_gate"> inputGate = {};
  Module<"proj"> inputProjection = {};
  Module<"post_norm"> inputProjectionNorm = {};
  Module<"layer_output_scale"> scalar = {}; ///< what the layer's result is times: one number
};

/// Gate and up of all experts in one tensor of GGUF, E x 2N x K.
inline constexpr const char *kExpertGateUpInGGUF = "ffn_gate_up_exps";

/// The modules of a head that drafts the token behind the next one (multi-token prediction,
/// Gloeckle et al., 2024, https://arxiv.org/abs/2404.19737; with a layer of its own as in
/// DeepSeek-V3, https://arxiv.org/abs/2412.19437). With h what the final norm gives for a token,
/// and e the embedding of the token behind it,
///
///   h' = norm(layer(fc([embeddingNorm(e), hiddenNorm(h)])))
///
/// which the output head makes logits of, and which takes the place of h for the token after.
struct DraftModules {
  const char *prefix = nullptr; ///< null: there is none
  const char *layerPrefix = nullptr;
  Module<"nextn.eh_proj"> fc = {};
  Module<"nextn.enorm"> embeddingNorm = {};
  Module<"nextn.hnorm"> hiddenNorm = {};
  Module<"nextn.shared_head_norm"> norm = {};
};

/// Another `model_type`, whose dense models are of an architecture: its Hugging Face checkpoints
/// have gate and up of a layer in one tensor, the rows of gate first.
struct DenseForm {
  const char *modelType = nullptr;        ///< null: there is none
  const char *intermediateSize = nullptr; ///< its field of config.json
  const char *gateUp = nullptr, *down = nullptr;
};

struct Architecture {
  const char *name = "";      ///< `model_type` of config.json, and what the manifest says
  const char *className = ""; ///< in `architectures` of config.json
  const char *gguf = "";      ///< `general.architecture`
  /// `model_type` of models that also have a part for pictures or sound, and have this one in
  /// `text_config`, whose own `model_type` tells those that share it. Null: there are none.
  const char *withOtherParts = nullptr;
  DenseForm denseForm = {};
  // What docs/guide/models.md says of it.
  const char *summary = "", *refused = "", *proof = "";

  //===- config.json ------------------------------------------------------===//
  SizeField hiddenSize = {}, intermediateSize = {}, numLayers = {}, numHeads = {}, numKVHeads = {},
            headDim = {}, maxContext = {};
  const char *epsilonKey = nullptr;
  double epsilon = 0.0; ///< where the field is missing
  const char *activationKey = nullptr;
  /// The first is meant where the field is missing; files are written with the first that fits.
  std::span<const ActivationName> activations = {};
  std::span<const FixedFlag> fixedFlags = {};
  std::span<const FixedNull> fixedNulls = {};
  BiasRule qkvBias = {}, outputBias = {}, mlpBias = {};
  ExpertFields experts = {};
  WindowKind window = WindowKind::None;
  bool tiesHead = false; ///< where tie_word_embeddings is missing
  double ropeTheta = 10000.0;
  /// Pattern: every so many-th layer sees all tokens, the others have the window.
  int64_t windowPattern = 0;
  /// Pattern: the last layer sees all tokens, whatever is said of it.
  bool lastSeesAll = false;
  /// Layers that see all tokens have heads of a size of their own: its field.
  SizeField fullHeadDim = {};
  /// In these layers values are made of what k gives, without v, where this flag says so.
  const char *sharedProjectionKey = nullptr;
  /// The number of key-value heads of these layers where that flag says so; null: that of all.
  const char *fullKVHeadsKey = nullptr;
  /// The last layers, so many, make no keys and values: they read those of the last layer before
  /// them that has a window, or none, as they have.
  CountField sharedKVLayers = {};
  /// The MLPs of these layers have twice the columns where this flag says so.
  const char *doubleWidthKey = nullptr;
  /// Numbers that each layer reads of a token's row in a table of all layers (layerEmbedding).
  CountField layerInputSize = {};
  /// The rows of that table, which have to be as many as the tokens.
  SizeField layerInputVocab = {};
  /// These layers rotate in proportion (RopeScaling::Proportional) this part of their pairs, if
  /// rope_parameters, which alone say how layers of a kind rotate, are missing. 0: they do not.
  double proportionalPart = 0.0;
  /// Layers with a window rotate by angles of their own, of this base and not scaled: its field.
  NumberField windowedRopeTheta = {};
  /// The same where they rotate by the base of the others: what is scaled is what sees all tokens.
  bool scalesUnwindowedRope = false;
  /// Embeddings are multiplied by the root of their width.
  bool scalesEmbedding = false;
  // Factors of embeddings, of what a block adds to the residual stream and of products of queries
  // and keys, and what logits are divided by.
  NumberField embeddingFactor = {}, residualFactor = {}, attentionFactor = {}, logitDivisor = {};
  /// Products of queries and keys are divided by its root, not by that of the head's dimension. A
  /// number without a field is what all models have.
  NumberField attentionWidth = {};
  /// GGUF does not say attentionWidth: it is the head's dimension but in models of so many layers,
  /// where it is the embedding's for each head.
  int64_t wideAttentionLayers = 0;
  /// Soft caps of products of queries and keys, and of logits; null in config.json: none.
  NumberField attentionBound = {}, logitBound = {};
  /// If not 0: q and k of every so many-th layer are not rotated, where no_rope_layers is missing,
  /// and always in GGUF, which does not say it.
  int64_t unrotatedEvery = 0;
  /// partial_rotary_factor is heeded: only so much of each head is rotated.
  bool rotatesPart = false;
  double rotatedOtherwise = 1.0; ///< where it is missing
  /// Queries of positions behind those of YaRN's original context are scaled: the field in
  /// rope_parameters; 0: they are not.
  NumberField lateGain = {};
  /// Ends of YaRN's ramp are whole numbers: of GGUF, which does not say it.
  bool truncatesYarn = true;
  /// AllLayers: where sliding_window is missing; 0: there is none then.
  int64_t windowOtherwise = 4096;
  LayerKinds layerKinds = LayerKinds::Attention;
  /// q gives queries and as many numbers that gate what attention gives, by their sigmoid: the
  /// queries of a head, then its gates, head by head.
  bool gatesAttention = false;
  /// rope_parameters may have sections for positions in pictures, which are all equal in text.
  bool readsSections = false;

  //===- Modules ----------------------------------------------------------===//
  NormKind norm = NormKind::RMS;
  /// Hugging Face checkpoints have the weights of RMS norms less this, GGUF has them as they are.
  float normOffset = 0.0f;
  QKNorm qkNorm = QKNorm::None;
  bool normsValues = false; ///< each head of them, without a weight
  Module<"token_embd"> embedding = {};
  Module<"position_embd"> positions = {}; ///< learned ones; without them, q and k are rotated
  /// Embeddings of layers, n = layerInputSize columns for each. With e the embedding as the first
  /// layer reads it, and d its width, the inputs of all layers are
  ///
  ///   (layerProjectionNorm(layerProjection(e) / sqrt(d)) + sqrt(n) * the row of the token) /
  ///   sqrt(2)
  ///
  /// the norm being of each layer's columns.
  Module<"per_layer_token_embd"> layerEmbedding = {};
  Module<"per_layer_model_proj"> layerProjection = {};
  Module<"per_layer_proj_norm"> layerProjectionNorm = {};
  const char *layerPrefix = "";
  LayerModules layer = {};
  Module<"output_norm"> finalNorm = {};
  DraftModules draft = {};

  //===- Checkpoints ------------------------------------------------------===//
  /// Some Hugging Face checkpoints have it before every name.
  std::string_view optionalPrefix = {};
  /// Names of buffers that follow from the configuration end so.
  std::span<const std::string_view> redundantSuffixes = {};
  bool conv1D = false; ///< Hugging Face checkpoints have the linears of layers K x N
  /// GGUF has the two dimensions that a rotation turns side by side in the rows of q and k, where
  /// Hugging Face has them half a head apart.
  bool rotatesNeighbours = false;

  constexpr bool isRotary() const { return !positions; }
  /// All MLPs are experts: config.json has no size of others, nor has GGUF.
  constexpr bool sizesExpertsAlone() const {
    return experts.size.key && intermediateSize.key &&
           std::string_view(experts.size.key) == intermediateSize.key;
  }
};

/// All that are supported.
std::span<const Architecture> architectures();

/// The one whose `model_type` is `name`; null if there is none.
const Architecture *findArchitecture(std::string_view name);

/// What the pages of docs say: a Markdown table of all architectures.
std::string architectureTable();

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_ARCHITECTURE_H
