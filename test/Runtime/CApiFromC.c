/*===- CApiFromC.c - The header and the library are usable from C ---------===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "easyquant/Runtime/easyquant.h"

#include <stdio.h>

int64_t greedyFromC(const char *artifact, const int32_t *prompt, size_t promptCount,
                    int32_t *generated, size_t count);

/* Generates `count` tokens after `prompt`; returns the tokens that the session then holds (all but
   the last), or -1 after printing the error. */
int64_t greedyFromC(const char *artifact, const int32_t *prompt, size_t promptCount,
                    int32_t *generated, size_t count) {
  eq_model *model = NULL;
  eq_session *session = NULL;
  eq_error *error = eq_model_load(artifact, NULL, &model);
  if (!error)
    error = eq_session_create(model, NULL, &session);
  if (!error)
    error = eq_session_prefill(session, prompt, promptCount);
  for (size_t i = 0; !error && i < count; ++i) {
    const float *logits = eq_session_logits(session);
    int32_t best = 0;
    for (int32_t v = 1; v < eq_model_vocab_size(model); ++v)
      if (logits[v] > logits[best])
        best = v;
    generated[i] = best;
    if (i + 1 < count)
      error = eq_session_decode(session, best);
  }
  int64_t position = -1;
  if (error)
    fprintf(stderr, "%s\n", eq_error_get_message(error));
  else
    position = eq_session_position(session);
  eq_error_free(error);
  eq_session_free(session);
  eq_model_free(model);
  return position;
}
