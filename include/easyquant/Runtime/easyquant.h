/*===- easyquant.h - C interface of the EasyQuant runtime ----------*- C -*-===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Loads an artifact (the folder that `easyquant compile` wrote) and runs it. *|
|* The library behind it holds no LLVM and no Python.                         *|
|*                                                                            *|
|* Errors are values: a function that can fail returns NULL on success and an *|
|* `eq_error *` that the caller owns on failure; what it would have changed   *|
|* is then unchanged. No function throws, aborts or prints. A NULL where an   *|
|* object is expected is EQ_INVALID_ARGUMENT; functions that only read return *|
|* 0 or NULL for it, and the _free functions ignore it.                       *|
|*                                                                            *|
|* Too little memory is an error like any other, and a later call may find    *|
|* more. One thing cannot be promised: LLVM's OpenMP runtime, which runs the  *|
|* threads of a session on a CPU, aborts the process where it is refused      *|
|* memory or a thread itself. It asks for them only while a session or batch  *|
|* is created and in a thread's first call on one; before either, as much as  *|
|* it will take is taken and given back, so that it can be refused only if    *|
|* something else in the process or the system takes the last of it in        *|
|* between.                                                                   *|
|*                                                                            *|
|* A session is one sequence of tokens, a batch many that run in common       *|
|* steps: the weights are read once for all of them.                          *|
|*                                                                            *|
|* Threads: a model is immutable after loading and may be shared by any       *|
|* number of threads; a session or batch belongs to one thread at a time.     *|
|* Those of one model share its weights.                                      *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef EASYQUANT_RUNTIME_EASYQUANT_H
#define EASYQUANT_RUNTIME_EASYQUANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EQ_API __attribute__((visibility("default")))

/** Raised whenever a declaration below changes its meaning. */
#define EQ_ABI_VERSION 9

/** The version that the library was built with; compare with EQ_ABI_VERSION. */
EQ_API uint32_t eq_abi_version(void);

/*===-- Errors --------------------------------------------------------------===*/

typedef struct eq_error eq_error;

typedef enum eq_error_code {
  EQ_OK = 0,               /**< No error: the code of NULL. */
  EQ_INVALID_ARGUMENT = 1, /**< Asked for something that cannot be: a token out of range, ... */
  EQ_NOT_FOUND = 2,        /**< A file that should be there is not. */
  EQ_CORRUPT = 3,          /**< A file fails its format's rules or its checksum. */
  EQ_UNSUPPORTED = 4,      /**< Well-formed, but not for this build or this machine. */
  EQ_OUT_OF_RANGE = 5,     /**< A limit of the model, session or batch (context length,
                                memory). */
  EQ_IO = 6,               /**< The operating system refused. */
  EQ_INTERRUPTED = 7       /**< The progress function asked to end. */
} eq_error_code;

EQ_API eq_error_code eq_error_get_code(const eq_error *error);
/** One line: file or argument, found, expected, remedy. Lives as long as the error. */
EQ_API const char *eq_error_get_message(const eq_error *error);
EQ_API void eq_error_free(eq_error *error);

/*===-- Models --------------------------------------------------------------===*/

typedef struct eq_model eq_model;

typedef struct eq_model_options {
  /** NULL or "auto": the best instruction set that this CPU has. Else "avx2", "avx512vnni",
      "neon-dot" or "neon-i8mm". */
  const char *isa;
  /** Nonzero: do not compare the files with the checksums in the manifest. */
  int32_t skip_checksums;
  /** "cpu"; "cuda": an NVIDIA GPU through its driver; "simt": a simulated GPU. NULL or "auto": cuda
      if the artifact has code for GPUs and there is one that can run it, else cpu. */
  const char *device;
  /** Of simt: the GPU to simulate, of those that the artifact was compiled for ("sm_80"); NULL or
     "": the first. */
  const char *simt_chip;
  /** Nonzero, of simt: look for mistakes of kernels, too, such as races; slower. */
  int32_t simt_checks;
} eq_model_options;

/** Loads the artifact folder `path`. `options` may be NULL. On success `*model` is to be freed with
    eq_model_free, after its last session. */
EQ_API eq_error *eq_model_load(const char *path, const eq_model_options *options, eq_model **model);
EQ_API void eq_model_free(eq_model *model);

/** The same on each of the ranks that `mpirun`, `srun` or `torchrun` has started, joined by `comm`:
   "auto" ("nccl" for device "cuda", else "mpi"), "mpi" or "nccl", with which device "auto" is
   "cuda"; where nothing has started several it is eq_model_load. Collective: what
   fails on one rank fails on all. The artifact was compiled for as many ranks (--tensor-parallel).
   Rank 0 then uses the model like any other, in one thread at a time; the others call
   eq_model_follow. `timeout`: seconds that a rank waits for the others before it gives up; 0: 600.
 */
EQ_API eq_error *eq_model_load_on_ranks(const char *path, const eq_model_options *options,
                                        const char *comm, double timeout, eq_model **model);
/** Which of eq_model_rank_count ranks this process is; 0 of 1 where there is one. */
EQ_API int64_t eq_model_rank(const eq_model *model);
EQ_API int64_t eq_model_rank_count(const eq_model *model);
/** On every rank but 0: computes its share of all that rank 0 does, in `threads` threads a step (0:
   the CPUs that this process may run on), and returns when rank 0 has freed its model, or with the
   error that has ended the work of all ranks. */
EQ_API eq_error *eq_model_follow(const eq_model *model, int32_t threads);

/** The text of manifest.json; lives as long as the model. */
EQ_API const char *eq_model_manifest(const eq_model *model);
EQ_API int64_t eq_model_vocab_size(const eq_model *model);
/** The longest context in tokens that the model was made for. */
EQ_API int64_t eq_model_max_context(const eq_model *model);
/** The instruction set chosen at loading: "avx2", "avx512vnni", "neon-dot" or "neon-i8mm"; or
    the chip whose program a GPU runs: "sm_80". */
EQ_API const char *eq_model_isa(const eq_model *model);
/** Where the model runs: "cpu", "cuda" or "simt". */
EQ_API const char *eq_model_device(const eq_model *model);
/** The same for people: "cpu", "NVIDIA H200 (sm_90)", "simulated sm_80". */
EQ_API const char *eq_model_device_name(const eq_model *model);
/** Bytes of weights that all sessions and batches share. */
EQ_API int64_t eq_model_weights_bytes(const eq_model *model);

/*===-- Sessions ------------------------------------------------------------===*/

/** The most threads that a session or batch may have: 8 for each CPU that this process may run on.
 */
EQ_API int32_t eq_max_threads(void);

typedef struct eq_session eq_session;

typedef struct eq_session_options {
  /** Tokens that the session can hold; 0: eq_model_max_context. */
  int64_t context;
  /** Threads that one step uses, at most eq_max_threads; 0: the CPUs that this process may run on.
      The memory that they need is taken when the session is created, and when another thread makes
      its first call on it; not granted, that is EQ_OUT_OF_RANGE. */
  int32_t threads;
  /** Nonzero: measure what eq_session_breakdown tells. Slower. */
  int32_t measure;
  /** Where layers of the model have a recurrent state: states that the session keeps, the newest
      ones, at page ends (multiples of program.cache.page_tokens of the manifest). Each takes
      4 * program.recurrent_values bytes, besides three that every session has (four on a GPU). 0:
     none. Where layers read a window of the newest tokens (program.cache.sliding), pages of them
     that are kept behind the window, besides one. */
  int64_t kept_states;
} eq_session_options;

/** `options` may be NULL. */
EQ_API eq_error *eq_session_create(const eq_model *model, const eq_session_options *options,
                                   eq_session **session);
EQ_API void eq_session_free(eq_session *session);

/** Appends `count` tokens and computes the logits of the last one. Any count >= 1 that fits; long
    prompts run in chunks. On error the session is as it was. */
EQ_API eq_error *eq_session_prefill(eq_session *session, const int32_t *tokens, size_t count);

/** Appends one token: eq_session_prefill of one. */
EQ_API eq_error *eq_session_decode(eq_session *session, int32_t token);

/** Appends `count` tokens and writes the logits of every one: count x vocab_size floats, row-major.
 */
EQ_API eq_error *eq_session_score(eq_session *session, const int32_t *tokens, size_t count,
                                  float *logits);

/** What prefill, decode and score call in their own thread while they run: before each of their
    steps, and before each kernel of a step. `done` of their `total` tokens are through by then;
    nonzero ends the call with EQ_INTERRUPTED, the session being as it was; in a KV cache of codes,
    as after a truncation: what has left the float window comes back as codes. It must be quick (a
    step has hundreds of kernels), must not use the session, and must return: no exception, no
    longjmp. */
typedef int32_t (*eq_progress)(void *context, int64_t done, int64_t total);
/** Of the calls from here on. NULL: none. */
EQ_API void eq_session_set_progress(eq_session *session, eq_progress progress, void *context);

/** vocab_size logits of the last token; valid until the next call on the session, NULL before any
    token. On a GPU they are copied from there, and NULL where that fails. */
EQ_API const float *eq_session_logits(const eq_session *session);

/** Tokens held so far. */
EQ_API int64_t eq_session_position(const eq_session *session);
/** Forgets all tokens but the first `position`, which must not exceed eq_session_position. The
    logits are gone until the next token. eq_session_reset is truncation to 0.

    From a recurrent state no token can be taken. Where layers of the model have one, the session
    goes on from the newest that it still has up to `position` (kept_states of its options, what its
    last call has begun with, its beginning), and its next call reads the tokens between again,
    which count among the `total` of its progress function. Where layers read a window of the newest
    tokens, it goes on from `position` as long as it has those that the window there reaches to, and
    from its beginning if not. Logits are those of a session that has
    read the tokens once: the same bits. */
EQ_API eq_error *eq_session_truncate(eq_session *session, int64_t position);
EQ_API void eq_session_reset(eq_session *session);

/** Online scales are state of a session: each step of at most `online.tokens` tokens (of the
    manifest) brings them up to date, and truncation and eq_session_reset leave them alone. The
   bytes that eq_session_state_save writes; 0 of a model without such scales. */
EQ_API int64_t eq_session_state_size(const eq_session *session);
/** Writes the state to `state`, of `size` bytes, as many as eq_session_state_size says. */
EQ_API eq_error *eq_session_state_save(const eq_session *session, void *state, size_t size);
/** Goes on from a state that eq_session_state_save has written, of any session on the same
    artifact: EQ_INVALID_ARGUMENT where it is another model's, EQ_CORRUPT where it is damaged. On
    error the session is as it was. */
EQ_API eq_error *eq_session_state_restore(eq_session *session, const void *state, size_t size);
/** The state of a new session: the scales that calibration has chosen. */
EQ_API eq_error *eq_session_state_reset(eq_session *session);

/** Bytes of the session's own buffers: activations, KV cache, logits. */
EQ_API int64_t eq_session_bytes(const eq_session *session);

/** What the steps of a session have cost by phase, as JSON: {"load": {"launches": 1, "bytes": 2,
    "instructions": 0, "seconds": 0.5}, ...} with load, quantize, gemm, attention, comm, sync and
    other. Launches are calls of kernels, and copies; seconds are those of a CPU or a GPU, bytes and
    instructions those of a GPU, instructions of warps of a simulated one. Valid until the next call
    of this function on the session. */
EQ_API eq_error *eq_session_breakdown(eq_session *session, const char **json);

/** The same by site, on CPUs only: [{"site": "model.layers.0.mlp.down_proj", "phase": "gemm",
    "launches": 1, "bytes": 0, "instructions": 0, "seconds": 0.5}, ...] in the order of the model, a
    site once for each of its phases. Valid until the next call of this function on the session. */
EQ_API eq_error *eq_session_breakdown_sites(eq_session *session, const char **json);

/*===-- Batches -------------------------------------------------------------===*/

typedef struct eq_batch eq_batch;

typedef struct eq_batch_options {
  /** Tokens that each sequence can hold; 0: eq_model_max_context. */
  int64_t context;
  /** Sequences at a time, at most; 0: 1. */
  int64_t sequences;
  /** Tokens that there is memory for, of all sequences together, each rounded up to whole pages of
      the KV cache (program.cache.page_tokens of the manifest); 0: context of each of them. */
  int64_t tokens;
  /** As of eq_session_options. */
  int32_t threads;
  int32_t measure;
  /** As of eq_session_options, of each sequence. Forks share the states that they have in common.
   */
  int64_t kept_states;
  /** Nonzero: eq_batch_draft will be called. EQ_UNSUPPORTED of a model without a head that drafts
      (program.draft_entries of the manifest, and on GPUs gpu.drafts). */
  int32_t drafts;
} eq_batch_options;

/** `options` may be NULL. */
EQ_API eq_error *eq_batch_create(const eq_model *model, const eq_batch_options *options,
                                 eq_batch **batch);
EQ_API void eq_batch_free(eq_batch *batch);

/** An empty sequence. Its id is not used again in this batch. EQ_OUT_OF_RANGE where there are as
    many as the batch was created for. */
EQ_API eq_error *eq_batch_add(eq_batch *batch, int64_t *sequence);

/** A sequence that begins with the tokens that `sequence` holds, and has its logits: as
    eq_batch_add. Pages of the KV cache are shared, and copied before one of the two writes them. */
EQ_API eq_error *eq_batch_fork(eq_batch *batch, int64_t sequence, int64_t *fork);

EQ_API eq_error *eq_batch_remove(eq_batch *batch, int64_t sequence);

/** Forgets all tokens of a sequence but the first `position`, which must not exceed
    eq_batch_position, as eq_session_truncate. Its logits are gone until the next token. */
EQ_API eq_error *eq_batch_truncate(eq_batch *batch, int64_t sequence, int64_t position);

/** The first token that a sequence reads again once it was cut to `position`; `position`, or what
    the sequence holds if that is less: none. Where no layer has a recurrent state or a window it is
   always that. -1: there is no such sequence. */
EQ_API int64_t eq_batch_resume_position(const eq_batch *batch, int64_t sequence, int64_t position);

/** The online scales of a sequence, as eq_session_state_size, _save, _restore and _reset. States of
    sessions and of sequences on the same artifact are the same; a fork has that of its origin.
    EQ_INVALID_ARGUMENT also where there is no such sequence. */
EQ_API int64_t eq_batch_state_size(const eq_batch *batch);
EQ_API eq_error *eq_batch_state_save(const eq_batch *batch, int64_t sequence, void *state,
                                     size_t size);
EQ_API eq_error *eq_batch_state_restore(eq_batch *batch, int64_t sequence, const void *state,
                                        size_t size);
EQ_API eq_error *eq_batch_state_reset(eq_batch *batch, int64_t sequence);

/** A sequence as bytes: how many tokens it holds, its KV cache, its recurrent state, its online
   scales and its logits.
   Of a model that several ranks share it is EQ_UNSUPPORTED. The bytes are for this artifact on the
   same kind of device, in any process. What is not theirs is not to be read from them: the end of
   the last page may be what another sequence has left there. */
EQ_API eq_error *eq_batch_saved_size(const eq_batch *batch, int64_t sequence, size_t *size);
/** Writes them to `bytes`, of `size` bytes, as many as eq_batch_saved_size says now. */
EQ_API eq_error *eq_batch_save(const eq_batch *batch, int64_t sequence, void *bytes, size_t size);
/** A new sequence, whose id goes to `sequence`, that goes on from such bytes: EQ_INVALID_ARGUMENT
    where they are no saved sequence, or one of another artifact, EQ_CORRUPT where they are damaged,
    EQ_OUT_OF_RANGE where there is no room for it. On error the batch is as it was. */
EQ_API eq_error *eq_batch_restore(eq_batch *batch, const void *bytes, size_t size,
                                  int64_t *sequence);

/** Pages of the KV cache, each of program.cache.page_tokens tokens: all of the batch's, and those
    that no sequence has. */
EQ_API int64_t eq_batch_pages(const eq_batch *batch);
EQ_API int64_t eq_batch_free_pages(const eq_batch *batch);

/** Tokens that a sequence holds; -1: there is no such sequence. */
EQ_API int64_t eq_batch_position(const eq_batch *batch, int64_t sequence);

/** vocab_size logits of a sequence's last token; valid until the next call on the batch that
    changes anything, NULL before any token and where there is no such sequence. On a GPU they are
    copied from there, and NULL where that fails. */
EQ_API const float *eq_batch_logits(const eq_batch *batch, int64_t sequence);

/** A token, and the natural logarithm of its probability: that of the softmax of the model's
   logits, before whatever changes them to choose a token. */
typedef struct eq_logprob {
  int32_t token;
  double logprob;
} eq_logprob;

/** What eq_batch_append is to do for one sequence. */
typedef struct eq_batch_item {
  int64_t sequence;
  const int32_t *tokens;
  size_t count;
  /** NULL, or where the logits of every token go: count x vocab_size floats, row-major. What is
      there after an error is undefined. */
  float *logits;
  /** NULL, or where the log-probability of each of the tokens after all before it goes, `count` of
      them. That of the first one is 0 where the sequence has no logits. */
  double *logprobs;
  /** NULL, or where the `best_count` most likely tokens in the place of each of the tokens go, the
      most likely first: count x best_count, at most vocab_size. Where the sequence has no logits
      those of the first one are token -1. Neither these nor `logprobs` take memory for rows of
      logits: they are computed as steps go on. */
  eq_logprob *best;
  size_t best_count;
  /** Set by the call. `error` is NULL where `status` is EQ_OK, and the caller's. */
  eq_error_code status;
  eq_error *error;
} eq_batch_item;

/** Appends the tokens of each item to its sequence, a sequence once in a call, in as few steps as
    they fit in, and computes the logits of the last token of each. A sequence gets the logits that
    a session would give: on CPUs the same bits, with float weights or activations, too.

    An item that cannot be (a sequence that is not there, a token out of range, a full context, no
    page left for it) or whose logits are not finite fails alone: its error is in the item, its
    sequence is as it was, and the others go on. The oldest sequences get pages first.

    The call fails for all of them where it is interrupted, and where memory for the step or the
    device fails: all sequences are then as they were, and each item's `status` is EQ_OK. */
EQ_API eq_error *eq_batch_append(eq_batch *batch, eq_batch_item *items, size_t count);

/** What eq_batch_draft is to do for one sequence. */
typedef struct eq_draft {
  int64_t sequence;
  /** The token that comes next, which has not been appended yet. */
  int32_t token;
  /** Where the likeliest tokens behind it go, one after the other: `count` of them. The call sets
      `count` to how many there are: fewer at the end of the context, none where no page of the KV
      cache is left for them, or where it is not known what the model made of the last token, as
      behind eq_batch_restore and a truncation by more than 64 tokens. */
  int32_t *drafts;
  size_t count;
} eq_draft;

/** Guesses by the head of the model that drafts tokens (multi-token prediction), which
   eq_batch_append and eq_batch_choose verify: no sequence changes. An error is one of the whole
   call. */
EQ_API eq_error *eq_batch_draft(eq_batch *batch, eq_draft *drafts, size_t count);

/*===-- Choosing tokens -----------------------------------------------------===*/

/** What is added to the logit of a token. */
typedef struct eq_bias {
  int32_t token;
  float bias; /**< -1e6..1e6 */
} eq_bias;

/** How the next token of a sequence is chosen from its logits x, in this order:
    1. Penalties of `tokens`, each token once: x > 0 ? x / repetition : x * repetition (N. S. Keskar
       et al., "CTRL", 2019); then x -= frequency * count, and x -= presence where count > 0, with
   the count of the token among those from `prompt_tokens` on (as OpenAI's API defines them).
    2. `bias`, added. 3. Tokens that `allowed` lacks are out.
    4. At temperature 0 the token with the greatest logit, of equal ones the first. Else weights
       e^((x - greatest) / temperature), and of these
    5. the `top_k` greatest, of equal ones the first tokens;
    6. of what is left the fewest, greatest first, that have `top_p` of the weight, at least one
       (A. Holtzman et al., "The curious case of neural text degeneration", 2020);
    7. of what is left those of at least `min_p` times the greatest weight;
    8. of what is left one is drawn in proportion to the weights, by the place of a random number u
       in 0..1 among their sums in the order of tokens. u is the first 64-bit word of Philox4x64-10
       (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) for the key (seed,
       0) and the counter (tokens that the sequence holds, or `position`, 0, 0, 0), its upper 53
   bits. A structure of zeros is greedy. */
typedef struct eq_choice {
  int64_t sequence;
  double temperature;        /**< at least 0 */
  int64_t top_k;             /**< 0, or vocab_size and more: all tokens */
  double top_p;              /**< 0..1: all tokens */
  double min_p;              /**< 0 (all tokens)..1 */
  double repetition_penalty; /**< 0: none, as 1; else 0.01..100 */
  double presence_penalty;   /**< -1e6..1e6 */
  double frequency_penalty;  /**< -1e6..1e6 */
  /** The tokens that the penalties look at: those of the prompt, then those of the answer. NULL
      where there is no penalty. */
  const int32_t *tokens;
  size_t token_count, prompt_tokens;
  const eq_bias *bias;
  size_t bias_count;
  /** NULL: all. Else bit t % 32 of word t / 32 says of token t that it may be chosen: (vocab_size +
      31) / 32 words. */
  const uint32_t *allowed;
  size_t allowed_words;
  uint64_t seed;
  /** NULL: the logits of the sequence's last token. Else vocab_size logits that are finite, such as
      a row of those that eq_batch_append gives, and in `position` how many tokens come before what
      is chosen by them: so that tokens which were guessed and appended are compared with those that
      would have been chosen, one by one. */
  const float *logits;
  int64_t position;
  /** Nonzero: `chosen` gets its log-probability. */
  int32_t with_logprob;
  /** NULL, or where the `best_count` most likely tokens go, whether allowed or not, the most likely
      first. At most vocab_size. */
  eq_logprob *best;
  size_t best_count;
  /** Set by the call. `error` is NULL where `status` is EQ_OK, and the caller's. */
  eq_logprob chosen;
  eq_error_code status;
  eq_error *error;
} eq_choice;

/** Chooses the next token of each sequence, in the threads of the batch; on a GPU there, where the
    logits are, but for `allowed`, log-probabilities, a large `top_k`, several biases of one token,
   and more `tokens` and biases than an eighth of the vocabulary, which take the logits to this
   machine. The tokens are the same.
   Nothing is appended, so that a sequence may be there several times, with other seeds. What a
   sequence gets depends on its logits, on its choice and on the tokens that it holds, and on
   nothing else.

    A choice that cannot be (a sequence that is not there or has no logits, a number out of its
   range, no token allowed) fails alone, with EQ_INVALID_ARGUMENT. The call fails for all where
   there is no memory. */
EQ_API eq_error *eq_batch_choose(eq_batch *batch, eq_choice *choices, size_t count);

/** What eq_batch_append calls while it runs, as eq_session_set_progress; `total` are the tokens of
    the items that could be begun. */
EQ_API void eq_batch_set_progress(eq_batch *batch, eq_progress progress, void *context);

/** Tokens that each sequence can hold. */
EQ_API int64_t eq_batch_context(const eq_batch *batch);
/** Threads that one step uses. */
EQ_API int32_t eq_batch_threads(const eq_batch *batch);
/** Bytes of the batch's own buffers: activations, KV caches, logits. */
EQ_API int64_t eq_batch_bytes(const eq_batch *batch);

/** As eq_session_breakdown and eq_session_breakdown_sites. */
EQ_API eq_error *eq_batch_breakdown(eq_batch *batch, const char **json);
EQ_API eq_error *eq_batch_breakdown_sites(eq_batch *batch, const char **json);

#ifdef __cplusplus
}
#endif

#endif /* EASYQUANT_RUNTIME_EASYQUANT_H */
