/*===- Step.h - What a program for CPUs is called with --------------*- C -*-===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* For every instruction set that it was compiled for, the code of its        *|
|* processor (model.so, model.aarch64.so) exports                             *|
|*                                                                            *|
|*     int32_t easyquant_step_<isa>(const eq_step *step);                     *|
|*                                                                            *|
|* and, with a head that drafts tokens, easyquant_draft_<isa>.                *|
|*                                                                            *|
|* Kernels on GPUs read eq_sequence, too (GpuStep.h).                         *|
|*                                                                            *|
|* The compiler takes the places of the fields from the structures below.     *|
|* docs/Architecture.md, "The program ABI", says what may be relied on.       *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef EASYQUANT_FORMATS_STEP_H
#define EASYQUANT_FORMATS_STEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Raised whenever a declaration below changes its meaning; program.abi of the manifest. */
#define EQ_PROGRAM_ABI 8

/** One sequence of a step. Its rows lie behind those of the sequence before it. Where layers have a
    recurrent state and the cache is float, it may be the same one, at the position and slot that it
    has left. */
typedef struct {
  int32_t first_row, rows; /**< its rows of the step */
  int32_t position;        /**< of its first row */
  int32_t held;            /**< tokens that the cache has seen: beyond position after truncation */
  int32_t capacity;        /**< tokens that its pages have room for: position + rows at least */
  int32_t first_page;      /**< of its pages, as many as `capacity` takes, in `page` */
  int32_t window;          /**< its window, number of those that the cache begins with */
  int32_t slot, next_slot; /**< of state and recurrent: read, and written; 0 where there is none */
} eq_sequence;

/** The numbers of an eq_sequence: a program reads them as a matrix of int32_t, a row a sequence. */
#define EQ_SEQUENCE_FIELDS ((int64_t)(sizeof(eq_sequence) / sizeof(int32_t)))

/** What a program asks of its caller. Each but `context` may be null. */
typedef struct {
  void *context;
  /** Called before each kernel, by the thread that called the program, and returns. `phase` is a
      number of easyquant/Formats/Phase.h, `site` a constant of the program, one address a name. */
  void (*mark)(void *context, int64_t phase, const char *site);
  /** Collectives, in place: none yet. */
  void (*start)(void *context, int64_t collective, void *data, int64_t count);
  void (*wait)(void *context, int64_t collective);
  /** While it is nonzero the program ends as soon as its threads meet. `mark` may set it. */
  const int32_t *stop;
} eq_services;

typedef struct {
  uint32_t abi, bytes;     /**< EQ_PROGRAM_ABI, sizeof(eq_step) */
  int32_t rows, sequences; /**< 1 to max_rows of the manifest; 1 to rows */
  int32_t logit_rows;      /**< 1 to rows */
  int32_t threads, rank;   /**< at least 1; 0 */
  const int32_t *tokens;   /**< a row each */
  const eq_sequence *sequence;
  /** Rows whose logits are asked for, ascending. */
  const int32_t *logit_row;
  const int64_t *page; /**< byte offsets into cache, multiples of 64 */
  /** The same for the layers that read a window of the newest tokens, in the places of `page`; a
      page that no token of a window is in has none, and any number here. Null where the sizes of
      the cache have none. */
  const int64_t *sliding_page;
  const uint8_t *weights;
  uint8_t *arena, *cache, *state; /**< state may be null */
  float *recurrent;               /**< slots of what layers keep, or null */
  float *logits;                  /**< logit_rows x vocabulary */
  /** With a head that drafts, rows x hidden_size of the manifest; else null. What each row of
      easyquant_draft reads: the state behind the token before that of the row. */
  const float *hidden;
  float *next_hidden;          /**< what it and easyquant_step leave behind each row */
  const eq_services *services; /**< or null */
} eq_step;

/** 0, or a code of eq_error_code: EQ_INTERRUPTED if it was stopped, EQ_UNSUPPORTED if `abi` or
    `bytes` are not those that it was compiled with. */
typedef int32_t (*eq_step_function)(const eq_step *step);

#ifdef __cplusplus
}
#endif

#endif /* EASYQUANT_FORMATS_STEP_H */
