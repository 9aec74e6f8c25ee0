//===- StepCollectives.cpp - Collectives of a step ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepCollectives.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::runtime;
using formats::CollectiveCall;
using formats::Reduction;

comm::Collective easyquant::runtime::collectiveOf(const formats::Collective &what, void *data,
                                                  int64_t count) {
  const bool isFloat = what.type == "f32", isReduce = what.call == CollectiveCall::AllReduce;
  return {.call = isReduce ? comm::Call::AllReduce : comm::Call::AllGather,
          .type = isFloat ? comm::ElementType::F32 : comm::ElementType::I32,
          .reduction = what.reduction == Reduction::Max   ? comm::Reduction::Max
                       : what.reduction == Reduction::Min ? comm::Reduction::Min
                                                          : comm::Reduction::Sum,
          .order = isFloat && isReduce ? comm::Order::Fixed : comm::Order::Any,
          .data = data,
          .count = count,
          .site = what.site};
}

void StepCollectives::begin(int32_t *stopFlag) {
  stop = stopFlag;
  error.reset();
  for (UnderWay &state : underWay)
    state.isStarted = false;
}

void StepCollectives::keep(Result<void> done) {
  if (done || error)
    return;
  error = done.error();
  *stop = 1;
}

void StepCollectives::start(int64_t collective, void *data, int64_t count) {
  if (!error)
    keep(tryStart(collective, data, count));
}

void StepCollectives::wait(int64_t collective) {
  if (!error)
    keep(tryWait(collective));
}

/// A rank's columns of all rows, one row behind the other, then those of the next.
Result<comm::Request> StepCollectives::gather(const Description &what, UnderWay &state,
                                              int64_t count) {
  const int64_t rows = count / what.columns, width = what.columns / communicator.size();
  state.parts.resize(static_cast<size_t>(count));
  float *own = state.parts.data() + communicator.rank() * rows * width;
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(state.data + row * what.columns + communicator.rank() * width, width,
                own + row * width);
  return communicator.start(collectiveOf(what, state.parts.data(), count));
}

void StepCollectives::scatterColumns(const Description &what, UnderWay &state) {
  const int64_t width = what.columns / communicator.size();
  const int64_t rows = std::ssize(state.parts) / what.columns;
  const float *from = state.parts.data();
  for (int64_t rank = 0; rank < communicator.size(); ++rank)
    for (int64_t row = 0; row < rows; ++row, from += width)
      if (rank != communicator.rank())
        std::copy_n(from, width, state.data + row * what.columns + rank * width);
}

Result<void> StepCollectives::tryStart(int64_t collective, void *data, int64_t count) {
  if (collective < 0 || collective >= std::ssize(table))
    return makeError(ErrorCode::Corrupt,
                     "the program starts collective {}, but the manifest lists {}; compile the "
                     "artifact again",
                     collective, table.size());
  const Description &what = table[collective];
  UnderWay &state = underWay[collective];
  state.data = static_cast<float *>(data);
  Result<comm::Request> request = what.call == CollectiveCall::AllReduce
                                      ? communicator.start(collectiveOf(what, data, count))
                                      : gather(what, state, count);
  if (!request)
    return Unexpected(request.error());
  state.request = *request;
  state.isStarted = true;
  return {};
}

Result<void> StepCollectives::tryWait(int64_t collective) {
  if (collective < 0 || collective >= std::ssize(table) || !underWay[collective].isStarted)
    return makeError(ErrorCode::Corrupt,
                     "the program waits for collective {}, which it has not started; compile the "
                     "artifact again",
                     collective);
  UnderWay &state = underWay[collective];
  state.isStarted = false;
  if (Result<void> done = communicator.wait(state.request); !done)
    return done;
  if (table[collective].call == CollectiveCall::AllGather)
    scatterColumns(table[collective], state);
  return {};
}
