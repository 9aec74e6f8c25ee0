#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The openvino-genai side of peers_serving.py, on its continuous batching:

    {"op": "load", "id": ID, "path": GGUF, "threads": 2, "sequences": 16, "tokens": 8192}
    {"op": "crowd", "id": ID, "prompts": [[ids] of each request], "new": 128}
"""

import time

import numpy as np
import openvino
import openvino_genai
from serving import serve

pipelines = {}


def load(id, path, threads, sequences, tokens):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = sequences
    scheduler.num_kv_blocks = tokens // 32 + sequences  # of 32 tokens
    scheduler.enable_prefix_caching = False
    pipelines[id] = openvino_genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
    return {"version": openvino_genai.__version__}


def crowd(id, prompts, new):
    """{"times": when the tokens of each request came, in seconds after the first one was sent}."""
    pipeline = pipelines[id]
    config = openvino_genai.GenerationConfig(max_new_tokens=new, ignore_eos=True, do_sample=False)
    begin = time.perf_counter()
    handles = [pipeline.add_request(number, openvino.Tensor(np.asarray([prompt], np.int64)), config) for number, prompt in enumerate(prompts)]
    times = [[] for _ in prompts]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter() - begin
        for handle, moments in zip(handles, times, strict=True):
            while handle.can_read():
                moments += [now] * sum(len(output.generated_ids) for output in handle.read().values())
    if any(len(moments) != new for moments in times):
        raise ValueError(f"{[len(moments) for moments in times]} tokens came for {new}")
    return {"times": times}


if __name__ == "__main__":
    serve(load=load, crowd=crowd)
