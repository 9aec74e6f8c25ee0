//===- CApiSession.cpp - The C interface: sessions -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"

#include "easyquant/Runtime/Session.h"

using namespace easyquant;
using namespace easyquant::runtime;

struct eq_session {
  Session session;
  std::string breakdown{}, siteBreakdown{};
  eq_progress progress = nullptr;
  void *progressContext = nullptr;
};

eq_error *eq_session_create(const eq_model *model, const eq_session_options *options,
                            eq_session **session) {
  return guarded({{model, "model"}, {session, "session"}}, [&]() -> Result<void> {
    eq_session_options given = options ? *options : eq_session_options{};
    Result<Session> created = Session::create(model->model, given.context, given.threads,
                                              given.measure != 0, given.kept_states);
    if (!created)
      return Unexpected(created.error());
    *session = new eq_session{std::move(*created)};
    return {};
  });
}

void eq_session_free(eq_session *session) { delete session; }

// Where there are no tokens, the session says so.
eq_error *eq_session_prefill(eq_session *session, const int32_t *tokens, size_t count) {
  return guarded({{session, "session"}, {tokens, "tokens", count > 0}},
                 [&] { return session->session.prefill({tokens, count}); });
}

eq_error *eq_session_decode(eq_session *session, int32_t token) {
  return eq_session_prefill(session, &token, 1);
}

eq_error *eq_session_score(eq_session *session, const int32_t *tokens, size_t count,
                           float *logits) {
  return guarded({{session, "session"}, {tokens, "tokens", count > 0}, {logits, "logits"}},
                 [&] { return session->session.score({tokens, count}, logits); });
}

void eq_session_set_progress(eq_session *session, eq_progress progress, void *context) {
  if (!session)
    return;
  session->progress = progress;
  session->progressContext = context;
  auto ask = [](void *owner, int64_t done, int64_t total) {
    auto *self = static_cast<eq_session *>(owner);
    return self->progress(self->progressContext, done, total) != 0;
  };
  session->session.setProgress(progress ? Progress{ask, session} : Progress());
}

const float *eq_session_logits(const eq_session *session) {
  return session ? session->session.logits() : nullptr;
}

int64_t eq_session_position(const eq_session *session) {
  return session ? session->session.position() : 0;
}

eq_error *eq_session_truncate(eq_session *session, int64_t position) {
  return guarded({{session, "session"}}, [&] { return session->session.truncate(position); });
}

void eq_session_reset(eq_session *session) {
  if (session) // truncation to 0 is always possible
    (void)session->session.truncate(0);
}

int64_t eq_session_state_size(const eq_session *session) {
  return session ? session->session.stateBytes() : 0;
}

eq_error *eq_session_state_save(const eq_session *session, void *state, size_t size) {
  return guarded({{session, "session"}, {state, "state", size > 0}}, [&] {
    return session->session.saveState({static_cast<std::byte *>(state), size});
  });
}

eq_error *eq_session_state_restore(eq_session *session, const void *state, size_t size) {
  return guarded({{session, "session"}, {state, "state"}}, [&] {
    return session->session.restoreState({static_cast<const std::byte *>(state), size});
  });
}

eq_error *eq_session_state_reset(eq_session *session) {
  return guarded({{session, "session"}}, [&] { return session->session.resetState(); });
}

int64_t eq_session_bytes(const eq_session *session) {
  return session ? session->session.bytes() : 0;
}

eq_error *eq_session_breakdown(eq_session *session, const char **json) {
  return guarded({{session, "session"}, {json, "json"}},
                 [&] { return answer(session->session.costs(), session->breakdown, json); });
}

eq_error *eq_session_breakdown_sites(eq_session *session, const char **json) {
  return guarded({{session, "session"}, {json, "json"}}, [&] {
    return answer(session->session.siteCosts(), session->siteBreakdown, json);
  });
}
