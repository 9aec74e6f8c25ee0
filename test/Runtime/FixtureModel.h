/*===- FixtureModel.h - Sizes of the fixture model -----------------*- C -*-===*\
|*                                                                            *|
|* Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.     *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef EASYQUANT_TEST_RUNTIME_FIXTUREMODEL_H
#define EASYQUANT_TEST_RUNTIME_FIXTUREMODEL_H

enum {
  FIXTURE_VOCAB = 19,
  FIXTURE_DIM = 5,
  FIXTURE_MAX_CONTEXT = 200,
  /* Small, so that short prompts already run in chunks. */
  FIXTURE_MAX_ROWS = 4,
  /* Two float matrices of FIXTURE_VOCAB x FIXTURE_DIM: embedding, unembedding. */
  FIXTURE_WEIGHTS_BYTES = 2 * FIXTURE_VOCAB * FIXTURE_DIM * 4,
  FIXTURE_ARENA_BYTES = 64,
  FIXTURE_ARENA_BYTES_PER_THREAD = 64,
  FIXTURE_WINDOW_BYTES = 64,
  /* Short, so that prompts lie in several. */
  FIXTURE_PAGE_TOKENS = 8,
  FIXTURE_PAGE_BYTES = 192,
  /* Of the recurrent state, where the manifest asks for one: a vector, and how many tokens it is
     of. */
  FIXTURE_RECURRENT_VALUES = FIXTURE_DIM + 1,
  FIXTURE_ATTENTION_NANOSECONDS = 2000000
};

#endif /* EASYQUANT_TEST_RUNTIME_FIXTUREMODEL_H */
