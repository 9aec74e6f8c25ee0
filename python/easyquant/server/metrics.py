# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from easyquant.runtime.generation import Completion

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_NEXT = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """One registry for a server."""

    def __init__(self):
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self._models: list = []
        of = {"labelnames": ["model"], "registry": self.registry}
        self.requests = Counter("easyquant_requests", "HTTP requests, by endpoint and status", ["endpoint", "status"], registry=self.registry)
        self.request_seconds = Histogram("easyquant_request_seconds", "From a request's headers to its last byte", ["endpoint"], buckets=_WHOLE, registry=self.registry)
        self.first = Histogram("easyquant_time_to_first_token_seconds", "From a request to the first token of an answer", buckets=_FIRST, **of)
        self.next = Histogram("easyquant_time_per_token_seconds", "Between two tokens of an answer", buckets=_NEXT, **of)
        self.prompt_tokens = Counter("easyquant_prompt_tokens", "Tokens of the prompts of whole answers", **of)
        self.cached_tokens = Counter("easyquant_cached_prompt_tokens", "Those of them that were kept from earlier requests", **of)
        self.new_tokens = Counter("easyquant_generated_tokens", "Tokens of answers", **of)
        self.answers = Counter("easyquant_answers", "Answers, by why they ended", ["model", "reason"], registry=self.registry)
        self.registry.register(_Engines(self._models))

    def of(self, served) -> "ModelMetrics":
        self._models.append(served)
        return ModelMetrics(self, served.name)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class ModelMetrics:
    """The figures of a model."""

    def __init__(self, metrics: Metrics, name: str):
        self._metrics, self._name = metrics, name
        self.first_token, self.next_token = metrics.first.labels(name).observe, metrics.next.labels(name).observe

    def answered(self, completion: Completion) -> None:
        metrics, name = self._metrics, self._name
        metrics.prompt_tokens.labels(name).inc(completion.prompt_tokens)
        metrics.cached_tokens.labels(name).inc(completion.cached_tokens)
        metrics.new_tokens.labels(name).inc(len(completion.tokens))
        metrics.answers.labels(name, completion.finish_reason).inc()


class _Engines:
    """What engines say of themselves when they are asked."""

    GAUGES = {
        "waiting": ("easyquant_requests_waiting", "Answers that wait for a sequence or for pages"),
        "running": ("easyquant_requests_running", "Answers in the batch"),
        "pages": ("easyquant_cache_pages", "Pages of the KV cache"),
        "free_pages": ("easyquant_cache_free_pages", "Those that no sequence has"),
        "kept_tokens": ("easyquant_prefix_cache_tokens", "Tokens of beginnings that are kept"),
    }
    COUNTERS = {
        "hits": ("easyquant_prefix_cache_hits", "Requests that began with a beginning that was kept"),
        "shared_tokens": ("easyquant_prefix_cache_shared_tokens", "Tokens that they did not have to read"),
        "steps": ("easyquant_steps", "Steps of the model"),
        "set_aside": ("easyquant_set_aside", "How often an answer had to step back for want of pages"),
    }

    def __init__(self, models: list):
        self._models = models

    def collect(self):
        for family, entries in ((GaugeMetricFamily, self.GAUGES), (CounterMetricFamily, self.COUNTERS)):
            for field, (name, meaning) in entries.items():
                metric = family(name, meaning, labels=["model"])
                for served in self._models:
                    metric.add_metric([served.name], getattr(served.engine.figures, field))
                yield metric
