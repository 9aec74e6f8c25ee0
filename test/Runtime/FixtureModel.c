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
|* The window holds how many tokens the cache has seen.                       *|
|*                                                                            *|
|* Where the manifest has recurrent_values, each token leaves c_p + s_p, with *|
|*                                                                            *|
|*     s_p = s_(p-1) / 2 + E[t],   s_(-1) = 0                                 *|
|*                                                                            *|
|* The state is s_p and how many tokens it has seen. A sequence may then be   *|
|* in a step several times, and goes on from where it was left.               *|
|*                                                                            *|
|* It marks two kernels: what puts a token into the cache, the embedding      *|
|* (other), and what computes with it, the attention, which takes at least    *|
|* FIXTURE_ATTENTION_NANOSECONDS when it is measured, or what the environment *|
|* says in the variable of this name.                                         *|
|*                                                                            *|
|* Two ranks share the vocabulary, even tokens and odd ones, and add their     *|
|* logits up, which is collective 0.                                          *|
|*                                                                            *|
|* What the runtime promises is checked here, and a broken promise traps.     *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "FixtureModel.h"

#include "easyquant/Formats/Step.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
#else
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
#endif

static void require(int condition) {
  if (!condition)
    __builtin_trap();
}

/* The numbers of the program ABI. */
enum { PHASE_ATTENTION = 3, PHASE_OTHER = 6, INTERRUPTED = 7 };

static void mark(const eq_services *services, int64_t phase, const char *site) {
  if (services->mark)
    services->mark(services->context, phase, site);
}

static int is_stopped(const eq_services *services) { return services->stop && *services->stop; }

/* Where dimension d of a token lies: dimension-major in its page. */
static float *place(const eq_step *step, const eq_sequence *sequence, int64_t token, int64_t d) {
  const int64_t page = step->page[sequence->first_page + token / FIXTURE_PAGE_TOKENS];
  return (float *)(step->cache + page) + d * FIXTURE_PAGE_TOKENS + token % FIXTURE_PAGE_TOKENS;
}

/* The recurrent state of a slot; null where there is none. */
static float *state_of(const eq_step *step, int32_t slot) {
  return step->recurrent ? step->recurrent + (int64_t)slot * FIXTURE_RECURRENT_VALUES : NULL;
}

/* What the step leaves of the sequence, before its first row. */
static void start_state(const eq_step *step, const eq_sequence *sequence) {
  float *state = state_of(step, sequence->next_slot);
  const float *before = state_of(step, sequence->slot);
  if (!state)
    return;
  require(state != before);
  require(sequence->position == 0 || before[FIXTURE_DIM] == (float)sequence->position);
  for (int64_t i = 0; i < FIXTURE_RECURRENT_VALUES; ++i)
    state[i] = sequence->position == 0 ? 0 : before[i];
}

/* The sequence of a row. */
static const eq_sequence *sequence_of(const eq_step *step, int32_t row) {
  const eq_sequence *sequence = step->sequence;
  while (row >= sequence->first_row + sequence->rows)
    ++sequence;
  return sequence;
}

/* The rows of the logits that a thread of the team computes. */
static void attend(const eq_step *step, int64_t thread, int64_t threads) {
  const int64_t rows = step->logit_rows;
  const float *unembedding = (const float *)step->weights + FIXTURE_VOCAB * FIXTURE_DIM;
  require(thread < step->threads);
  float *h = (float *)(step->arena + FIXTURE_ARENA_BYTES + thread * FIXTURE_ARENA_BYTES_PER_THREAD);
  for (int64_t i = rows * thread / threads; i < rows * (thread + 1) / threads; ++i) {
    const eq_sequence *sequence = sequence_of(step, step->logit_row[i]);
    const int64_t last = sequence->position + step->logit_row[i] - sequence->first_row;
    memset(h, 0, FIXTURE_ARENA_BYTES_PER_THREAD);
    for (int64_t j = 0; j <= last; ++j)
      for (int64_t d = 0; d < FIXTURE_DIM; ++d)
        h[d] += *place(step, sequence, j, d) / (float)(1 + last - j);
    float *out = step->logits + i * FIXTURE_VOCAB;
    for (int64_t v = 0; v < FIXTURE_VOCAB; ++v) {
      out[v] = 0;
      if (step->services->start && v % 2 != step->rank)
        continue;
      for (int64_t d = 0; d < FIXTURE_DIM; ++d)
        out[v] += unembedding[v * FIXTURE_DIM + d] * h[d];
    }
  }
}

static void check_sequence(const eq_step *step, int32_t number) {
  const eq_sequence *sequence = step->sequence + number;
  const eq_sequence *before = number == 0 ? NULL : sequence - 1;
  require(sequence->first_row == (before ? before->first_row + before->rows : 0));
  require(sequence->rows >= 1 && sequence->first_page >= 0);
  require(step->recurrent || (sequence->slot == 0 && sequence->next_slot == 0));
  const int64_t position = sequence->position, held = sequence->held;
  require(0 <= position && position <= held);
  require(position + sequence->rows <= sequence->capacity);
  for (int64_t i = 0; i * FIXTURE_PAGE_TOKENS < sequence->capacity; ++i) {
    const int64_t page = step->page[sequence->first_page + i];
    require(page >= FIXTURE_WINDOW_BYTES && page % 64 == 0);
  }
  const int goes_on = step->recurrent && before && before->window == sequence->window &&
                      before->next_slot == sequence->slot &&
                      before->position + before->rows == position;
  for (int32_t i = 0; !goes_on && i < number; ++i)
    require(step->sequence[i].window != sequence->window);
  int64_t *window = (int64_t *)(step->cache + sequence->window * FIXTURE_WINDOW_BYTES);
  require(held == 0 || *window == held); /* before the first step it is another's */
  *window = position + sequence->rows;
}

static void check(const eq_step *step) {
  require(step->abi == EQ_PROGRAM_ABI && step->bytes == sizeof(eq_step));
  require(step->rows >= 1 && step->rows <= FIXTURE_MAX_ROWS && step->threads >= 1);
  require(step->sequences >= 1 && step->sequences <= step->rows);
  require(!step->state && step->services);
  require(step->services->start ? step->rank == 0 || step->rank == 1 : step->rank == 0);
  require(!step->services->start == !step->services->wait);
  require(step->services->mark || step->services->start || !step->services->context);
  require((uintptr_t)step->weights % 4096 == 0);
  require((uintptr_t)step->arena % 64 == 0 && (uintptr_t)step->cache % 64 == 0);
  require(step->logit_rows >= 1 && step->logit_rows <= step->rows);
  for (int32_t i = 0; i < step->logit_rows; ++i)
    require(step->logit_row[i] > (i == 0 ? -1 : step->logit_row[i - 1]) &&
            step->logit_row[i] < step->rows);
  for (int32_t i = 0; i < step->sequences; ++i)
    check_sequence(step, i);
  const eq_sequence *last = step->sequence + step->sequences - 1;
  require(last->first_row + last->rows == step->rows);
}

static int32_t run(const eq_step *step) {
  check(step);
  const eq_services *services = step->services;
  const float *embedding = (const float *)step->weights;
  for (int32_t m = 0; m < step->rows; ++m) {
    require(step->tokens[m] >= 0 && step->tokens[m] < FIXTURE_VOCAB);
    mark(services, PHASE_OTHER, "embedding");
    if (is_stopped(services))
      return INTERRUPTED;
    const eq_sequence *sequence = sequence_of(step, m);
    const int64_t position = sequence->position + m - sequence->first_row;
    const float *token = embedding + step->tokens[m] * FIXTURE_DIM;
    if (m == sequence->first_row)
      start_state(step, sequence);
    float *state = state_of(step, sequence->next_slot);
    for (int64_t d = 0; d < FIXTURE_DIM; ++d) {
      float *to = place(step, sequence, position, d);
      *to = token[d] * (1.0f + (float)position / 64.0f);
      if (state)
        *to += state[d] = state[d] / 2 + token[d];
    }
    if (state)
      state[FIXTURE_DIM] += 1;
  }

  mark(services, PHASE_ATTENTION, "attention");
  if (is_stopped(services))
    return INTERRUPTED;
  const char *asked = getenv("FIXTURE_ATTENTION_NANOSECONDS");
  if (services->mark || asked) {
    struct timespec pause = {0, asked ? atol(asked) : FIXTURE_ATTENTION_NANOSECONDS};
    while (nanosleep(&pause, &pause) != 0)
      ;
  }
#ifdef _OPENMP
#pragma omp parallel num_threads(step->threads)
#endif
  attend(step, omp_get_thread_num(), omp_get_num_threads());
  if (services->start) {
    services->start(services->context, 0, step->logits, (int64_t)step->logit_rows * FIXTURE_VOCAB);
    services->wait(services->context, 0);
  }
  return 0;
}

#define ENTRY(ISA)                                                                                 \
  int32_t easyquant_step_##ISA(const eq_step *step) { return run(step); }

/* clang-format off */
#ifdef FIXTURE_SECOND
ENTRY(second)
#else
ENTRY(avx2)
ENTRY(avx512vnni)
ENTRY(neon_dot)
ENTRY(neon_i8mm)
#endif
