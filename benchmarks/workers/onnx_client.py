#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX Runtime and ONNX Runtime GenAI as clients (interop.py); runs in an environment of its own. Its requests are those of torch_clients.py, where a
checkpoint is

  * for the library `onnxruntime` a folder of `easyquant export --format onnx`;
  * for `genai` a folder of format gptq or awq, of which GenAI's builder makes a model by the options of docs/guide/onnx.md.

What is dequantized is what ONNX Runtime makes of constants behind DequantizeLinear; of GenAI's MatMulNBits it is the operator's product with 1."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from numpy_clients import compare, describe, heights, parts
from serving import serve

BUILDER = ("-p", "int4", "-e", "cpu", "--extra_options", "accuracy_level=1", "shared_embeddings=false",
           "nodes_to_exclude=/lm_head/MatMul,/model/embed_tokens/Gather")  # fmt: skip
loaded = None


def run_graph(nodes, inputs, outputs, constants, model):
    """What ONNX Runtime makes of a part of a model."""
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    graph = helper.make_graph(nodes, "weights", [value(name, array.shape) for name, array in inputs.items()], [value(name, None) for name in outputs], constants)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return ort.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


class Exported:
    """Attention is over a cache that starts empty. Activations beside codes of 4 bits stay floats, which is not ONNX Runtime's default."""

    def __init__(self, folder):
        self.path = Path(folder) / "model.onnx"
        options = ort.SessionOptions()
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        self.session = ort.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])

    def linears(self, rows_of):
        model = onnx.load(self.path)
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        nodes = [node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants]
        transposed = {node.input[1] for node in model.graph.node if node.op_type == "Gemm" and not node.attribute[0].i}
        for node in nodes:
            (value,) = run_graph([node], {}, [node.output[0]], [constants[name] for name in node.input], model)
            yield node.input[0].removesuffix(".weight_quantized"), value.T if node.output[0] in transposed else value

    def logits(self, tokens):
        past = {value.name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32)
                for value in self.session.get_inputs() if value.name.startswith("past_key_values.")}  # fmt: skip
        whole = {"input_ids": tokens, "attention_mask": [1] * len(tokens), "position_ids": list(range(len(tokens)))}
        return self.session.run(["logits"], {name: np.array([values], np.int64) for name, values in whole.items()} | past)[0][0]


class GenAI:
    """Its runtime gives the logits of the last token, so that tokens go in one by one."""

    def __init__(self, folder):
        import onnxruntime_genai

        self.folder = Path(folder).with_name("genai")
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", self.folder, "-c", self.folder / "cache", *BUILDER]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"the builder ended with status {done.returncode}: {done.stderr[-400:]}")
        self.library, self.model = onnxruntime_genai, onnxruntime_genai.Model(str(self.folder))

    def linears(self, rows_of):
        model = onnx.load(self.folder / "model.onnx")
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type != "MatMulNBits":
                continue
            columns = next(attribute.i for attribute in node.attribute if attribute.name == "K")
            used = [constants[name] for name in node.input[1:] if name]
            (value,) = run_graph([node], {node.input[0]: np.eye(columns, dtype=np.float32)}, [node.output[0]], used, model)
            layer, room, kind = node.name.split("/")[2:5]
            path = f"model.{layer}.{'self_attn' if room == 'attn' else room}"
            yield from parts(value.T, [f"{path}.{part}" for part in (("q_proj", "k_proj", "v_proj") if kind == "qkv_proj" else (kind,))], rows_of)

    def logits(self, tokens):
        params = self.library.GeneratorParams(self.model)
        params.set_search_options(max_length=len(tokens) + 1)
        generator, rows = self.library.Generator(self.model, params), []
        for token in tokens:
            generator.append_tokens([token])
            rows.append(np.array(generator.get_logits(), np.float32).reshape(-1))
        return np.stack(rows)


LIBRARIES = {"onnxruntime": Exported, "genai": GenAI}


def load(library, folder):
    global loaded
    loaded = LIBRARIES[library](folder)
    return {}


def weights(ours):
    return compare(ours, loaded.linears(heights(ours)))


def logits(sequences, out):
    np.save(out, np.concatenate([loaded.logits(tokens) for tokens in sequences]))
    return {}


if __name__ == "__main__":
    serve(load=load, weights=weights, logits=logits, describe=describe)
