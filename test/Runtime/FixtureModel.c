/*===- FixtureModel.c - The smallest implementer of the program ABI -------===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* A model.so for tests of the runtime, in plain C: an attention without      *|
|* softmax. The token t at position p leaves the vector                       *|
|*                                                                            *|
|*     c_p = E[t] * (1 + p / 64)                                              *|
|*                                                                            *|
|* in the cache, and the logits of the row at position p are                  *|
|*                                                                            *|
|*     U h,   h = sum over j <= p of c_j / (1 + p - j)                        *|
|*                                                                            *|
|* so that they depend on every token, every position, what the cache holds   *|
|* and both weights. SessionTest.cpp computes the same from the token list.   *|
|*                                                                            *|
|* It marks two kernels: what puts a token into the cache, the embedding      *|
|* (other), and what computes with it, the attention, which takes at least    *|
|* FIXTURE_ATTENTION_NANOSECONDS when it is measured, or what the environment *|
|* says in the variable of this name.                                         *|
|*                                                                            *|
|* What the runtime promises is checked here, and a broken promise traps.     *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "FixtureModel.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
extern int omp_get_thread_num(void);
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#define MEMREF(NAME, TYPE, RANK)                                                                   \
  typedef struct {                                                                                 \
    TYPE *allocated, *aligned;                                                                     \
    int64_t offset, sizes[RANK], strides[RANK];                                                    \
  } NAME

MEMREF(MemRefBytes, int8_t, 1);
MEMREF(MemRefTokens, int32_t, 1);
MEMREF(MemRefLogits, float, 2);

static void require(int condition) {
  if (!condition)
    __builtin_trap();
}

typedef void (*Mark)(void *context, int64_t phase, const char *site);
/* The numbers of the program ABI. */
enum { PHASE_ATTENTION = 3, PHASE_OTHER = 6 };

static void forward(MemRefBytes *weights, MemRefBytes *arena, MemRefBytes *cache,
                    MemRefTokens *tokens, int64_t position, int64_t first_logit, int64_t threads,
                    Mark mark, void *mark_context, MemRefLogits *logits) {
  const int64_t rows = tokens->sizes[0];
  require(rows >= 1 && rows <= FIXTURE_MAX_ROWS && tokens->strides[0] == 1);
  require(first_logit >= 0 && first_logit < rows && threads >= 1 && position >= 0);
  require(logits->sizes[0] == rows - first_logit && logits->sizes[1] == FIXTURE_VOCAB);
  require(logits->strides[0] == FIXTURE_VOCAB && logits->strides[1] == 1);
  require(weights->sizes[0] == FIXTURE_WEIGHTS_BYTES && (uintptr_t)weights->aligned % 4096 == 0);
  require(arena->sizes[0] == FIXTURE_ARENA_BYTES + threads * FIXTURE_ARENA_BYTES_PER_THREAD);
  require((uintptr_t)arena->aligned % 64 == 0 && (uintptr_t)cache->aligned % 64 == 0);
  require((cache->sizes[0] - FIXTURE_CACHE_BYTES) % (16 * FIXTURE_CACHE_BYTES_PER_TOKEN) == 0);
  /* Dimension-major, so that a wrong capacity would mix up the vectors. */
  const int64_t capacity = (cache->sizes[0] - FIXTURE_CACHE_BYTES) / FIXTURE_CACHE_BYTES_PER_TOKEN;
  require(position + rows <= capacity);

  require(mark || !mark_context);
  const float *embedding = (const float *)weights->aligned;
  const float *unembedding = embedding + FIXTURE_VOCAB * FIXTURE_DIM;
  float *held = (float *)(cache->aligned + FIXTURE_CACHE_BYTES);
  for (int64_t m = 0; m < rows; ++m) {
    require(tokens->aligned[m] >= 0 && tokens->aligned[m] < FIXTURE_VOCAB);
    if (mark)
      mark(mark_context, PHASE_OTHER, "embedding");
    for (int64_t d = 0; d < FIXTURE_DIM; ++d)
      held[d * capacity + position + m] =
          embedding[tokens->aligned[m] * FIXTURE_DIM + d] * (1.0f + (float)(position + m) / 64.0f);
  }

  if (mark)
    mark(mark_context, PHASE_ATTENTION, "attention");
  const char *asked = getenv("FIXTURE_ATTENTION_NANOSECONDS");
  if (mark || asked) {
    struct timespec pause = {0, asked ? atol(asked) : FIXTURE_ATTENTION_NANOSECONDS};
    while (nanosleep(&pause, &pause) != 0)
      ;
  }
#ifdef _OPENMP
#pragma omp parallel for schedule(static)
#endif
  for (int64_t m = first_logit; m < rows; ++m) {
    int64_t thread = omp_get_thread_num();
    require(thread < threads);
    float *h =
        (float *)(arena->aligned + FIXTURE_ARENA_BYTES + thread * FIXTURE_ARENA_BYTES_PER_THREAD);
    memset(h, 0, FIXTURE_ARENA_BYTES_PER_THREAD);
    for (int64_t j = 0; j <= position + m; ++j)
      for (int64_t d = 0; d < FIXTURE_DIM; ++d)
        h[d] += held[d * capacity + j] / (float)(1 + position + m - j);
    float *out = logits->aligned + (m - first_logit) * FIXTURE_VOCAB;
    for (int64_t v = 0; v < FIXTURE_VOCAB; ++v) {
      out[v] = 0;
      for (int64_t d = 0; d < FIXTURE_DIM; ++d)
        out[v] += unembedding[v * FIXTURE_DIM + d] * h[d];
    }
  }
}

#define ENTRY(ISA)                                                                                 \
  void _mlir_ciface_easyquant_forward_##ISA(                                                       \
      MemRefBytes *weights, MemRefBytes *arena, MemRefBytes *cache, MemRefTokens *tokens,          \
      int64_t position, int64_t first_logit, int64_t threads, Mark mark, void *mark_context,       \
      MemRefLogits *logits) {                                                                      \
    forward(weights, arena, cache, tokens, position, first_logit, threads, mark, mark_context,     \
            logits);                                                                               \
  }

/* clang-format off */
#ifdef FIXTURE_SECOND
ENTRY(second)
#else
ENTRY(avx2)
ENTRY(avx512vnni)
#endif
