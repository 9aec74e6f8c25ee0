/*===- generate.c - Greedy tokens by the C interface ---------------------------===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* generate ARTIFACT COUNT TOKEN...                                           *|
|* Prints the COUNT tokens that follow the prompt, each the likeliest one.    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include <easyquant/Runtime/easyquant.h>

#include <stdio.h>
#include <stdlib.h>

/* Ends the program on an error. */
static void check(eq_error *error) {
  if (!error)
    return;
  fprintf(stderr, "error: %s\n", eq_error_get_message(error));
  eq_error_free(error);
  exit(1);
}

static int32_t likeliest(const float *logits, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i)
    if (logits[i] > logits[best])
      best = i;
  return (int32_t)best;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: generate ARTIFACT COUNT TOKEN...\n");
    return 1;
  }
  if (eq_abi_version() != EQ_ABI_VERSION) {
    fprintf(stderr, "error: the library has ABI %u, this program was compiled for %u\n",
            eq_abi_version(), (unsigned)EQ_ABI_VERSION);
    return 1;
  }
  const long count = atol(argv[2]);
  const size_t length = (size_t)argc - 3;
  int32_t *prompt = malloc(length * sizeof(int32_t));
  if (!prompt)
    return 1;
  for (size_t i = 0; i < length; ++i)
    prompt[i] = atoi(argv[i + 3]);

  eq_model *model = NULL;
  check(eq_model_load(argv[1], NULL, &model));
  eq_session *session = NULL;
  check(eq_session_create(model, NULL, &session));
  check(eq_session_prefill(session, prompt, length));
  for (long i = 0; i < count; ++i) {
    int32_t token = likeliest(eq_session_logits(session), eq_model_vocab_size(model));
    printf("%s%d", i ? "," : "", token);
    if (i + 1 < count)
      check(eq_session_decode(session, token));
  }
  printf("\n");
  eq_session_free(session);
  eq_model_free(model);
  free(prompt);
  return 0;
}
