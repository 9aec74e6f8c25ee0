/* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions. */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/* drafts ARTIFACT ISA COUNT TOKEN...: reads the tokens but the last in one sequence, has the head
   guess COUNT tokens behind the last one, takes that one and the guesses, and does so again, once
   for each of four steps. Prints the guesses and the bits of logits, summed. */

#include <easyquant/Runtime/easyquant.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(eq_error *error) {
  if (!error)
    return;
  fprintf(stderr, "drafts: %s\n", eq_error_get_message(error));
  exit(1);
}

int main(int argc, char **argv) {
  enum { kMost = 256, kSteps = 4 };
  const int given = argc - 4, count = argc > 4 ? atoi(argv[3]) : 0;
  if (given < 2 || given > kMost || count < 1 || count > 16)
    return fprintf(stderr, "usage: drafts ARTIFACT ISA COUNT TOKEN TOKEN...\n"), 2;
  int32_t tokens[kMost];
  for (int i = 0; i < given; ++i)
    tokens[i] = atoi(argv[4 + i]);
  eq_model_options model_options = {.isa = argv[2], .device = "cpu"};
  eq_model *model;
  check(eq_model_load(argv[1], &model_options, &model));
  eq_batch_options options = {.sequences = 1, .threads = 2, .drafts = 1};
  eq_batch *batch;
  check(eq_batch_create(model, &options, &batch));
  int64_t sequence;
  check(eq_batch_add(batch, &sequence));
  eq_batch_item item = {.sequence = sequence, .tokens = tokens, .count = given - 1};
  check(eq_batch_append(batch, &item, 1));
  int32_t step[17] = {tokens[given - 1]};
  for (int i = 0; i < kSteps; ++i) {
    eq_draft draft = {.sequence = sequence, .token = step[0], .drafts = step + 1, .count = count};
    check(eq_batch_draft(batch, &draft, 1));
    for (size_t j = 0; j < draft.count; ++j)
      printf("%d ", step[1 + j]);
    item = (eq_batch_item){.sequence = sequence, .tokens = step, .count = draft.count + 1};
    check(eq_batch_append(batch, &item, 1));
    const float *logits = eq_batch_logits(batch, sequence);
    uint64_t sum = 0;
    int32_t best = 0;
    for (int64_t j = 0; j < eq_model_vocab_size(model); ++j) {
      uint32_t bits;
      memcpy(&bits, logits + j, sizeof bits);
      sum = sum * 0x100000001b3 + bits;
      best = logits[j] > logits[best] ? (int32_t)j : best;
    }
    printf("%016llx\n", (unsigned long long)sum);
    step[0] = best;
  }
  eq_batch_free(batch);
  eq_model_free(model);
  return 0;
}
