# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs modules of upstream ops by LLVM's own tools: mlir-opt lowers them, mlir-runner compiles and calls them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import BUILD

INPUTS = Path(__file__).parents[1] / "Inputs" / "torch-mlir"  # what networks.py there has written

TOOLS = BUILD / "llvm-tools"
LIBRARIES = [(TOOLS / ".." / "lib").resolve() / f"libmlir_{name}runner_utils.so" for name in ("", "c_")]
# The pipeline of docs/guide/linalg.md.
LOWERING = (
    "builtin.module(convert-elementwise-to-linalg,one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},"
    "buffer-deallocation-pipeline,convert-bufferization-to-memref,convert-linalg-to-loops,expand-strided-metadata,lower-affine,"
    "convert-scf-to-cf,arith-emulate-unsupported-floats{source-types=bf16},convert-math-to-llvm,convert-math-to-libm,arith-expand{include-bf16},"
    "convert-arith-to-llvm,convert-index-to-llvm,"
    "convert-cf-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)"
)
TYPES = {"i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.float32}


def run(command, text):
    result = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{command}: status {result.returncode}\n{result.stderr[:4000]}"
    return result.stdout


def type_of(array):
    return f"tensor<{'x'.join(map(str, array.shape))}x{next(name for name, dtype in TYPES.items() if dtype == array.dtype)}>"


def signature(module, name):
    """([types of arguments], [types of results]) of a function in MLIR's text."""
    arguments, results = re.search(rf"func\.func (?:private |public )?@{name}\((.*?)\) -> (\(.*?\)|\S+)", module).groups()
    return re.findall(r"tensor<[^>]*>", arguments), re.findall(r"tensor<[^>]*>", results)


def call(module, calls):
    """The results of functions of a module: [(name, [arrays])] → [[arrays]]. They are printed as integers, so that no bit is lost."""
    declared, lines, shapes, kept = set(), [], [], []
    for number, (name, arrays) in enumerate(calls):
        arguments, results = signature(module, name)
        assert len(arguments) == len(arrays), f"@{name} takes {arguments}"
        values = []
        for index, (array, wanted) in enumerate(zip(arrays, arguments)):
            value, given = f"%c{number}_{index}", type_of(array)
            lines.append(f'{value}s = arith.constant dense<"0x{np.ascontiguousarray(array).tobytes().hex()}"> : {given}')
            lines.append(f"{value} = tensor.cast {value}s : {given} to {wanted}")
            values.append(value)
        outs = [f"%r{number}_{index}" for index in range(len(results))]
        joined = results[0] if len(results) == 1 else f"({', '.join(results)})"
        lines.append(f"{', '.join(outs)} = call @{name}({', '.join(values)}) : ({', '.join(arguments)}) -> {joined}")
        kept.append(len(results))
        for out, kind in zip(outs, results):
            shape, element = re.fullmatch(r"tensor<(.*x)(\w+)>", kind).groups()
            integers = f"tensor<{shape}i32>"
            operation = {"f32": "arith.bitcast", "i8": "arith.extsi"}.get(element)
            if operation:
                lines.append(f"{out}i = {operation} {out} : {kind} to {integers}")
            unranked = "tensor<*xi32>"
            lines.append(f"{out}u = tensor.cast {out}{'i' if operation else ''} : {integers} to {unranked}")
            lines.append(f"func.call @printMemrefI32({out}u) : ({unranked}) -> ()")
            shapes.append(element)
        declared.add(name)
    main = "func.func private @printMemrefI32(tensor<*xi32>) attributes {llvm.emit_c_interface}\nfunc.func @main() {\n"
    module, resources, blobs = module.partition("{-#")
    text = module.rstrip().removesuffix("}")
    for name in declared:
        text = re.sub(rf"func\.func (public )?@{name}\(", f"func.func private @{name}(", text)
    text += main + "\n".join(lines) + "\nreturn\n}\n}\n" + resources + blobs
    prepared = run([TOOLS / "mlir-opt", f"--pass-pipeline={LOWERING}"], text)
    printed = run([TOOLS / "mlir-runner", "-e", "main", "--entry-point-result=void", f"--shared-libs={','.join(map(str, LIBRARIES))}"], prepared)
    arrays = []
    for element, part in zip(shapes, printed.split("Unranked Memref")[1:], strict=True):
        head, data = part.split("data =")
        sizes = [int(size) for size in re.search(r"sizes = \[(.*?)\]", head)[1].split(",")]
        values = np.array([int(value) for value in re.findall(r"-?\d+", data)], np.int32).reshape(sizes)
        arrays.append(values.view(np.float32) if element == "f32" else values.astype(TYPES[element]))
    found = iter(arrays)
    return [[next(found) for _ in range(count)] for count in kept]


# ---------------------------------------------------------------------------------------------------------------- IREE


def iree(name):
    """A tool of IREE's packages; skips the test where they are missing (EASYQUANT_IREE names the folder of the tools)."""
    folder = os.environ.get("EASYQUANT_IREE")
    found = shutil.which(name, path=folder) if folder else importlib.util.find_spec("iree") and shutil.which(name, path=os.path.dirname(sys.executable))
    if not found:
        pytest.skip("needs iree-base-compiler and iree-base-runtime of PyPI; EASYQUANT_IREE names the folder of their tools")
    return found


def call_iree(text, folder, function, arrays, *options):
    """The result of a function, compiled and run by IREE."""
    compiler, run = iree("iree-compile"), iree("iree-run-module")
    (folder / "model.mlir").write_text(text)
    subprocess.run([compiler, folder / "model.mlir", "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
                    "--iree-llvmcpu-target-cpu=host", "-o", folder / "model.vmfb"], check=True, timeout=300)  # fmt: skip
    for index, array in enumerate(arrays):
        np.save(folder / f"input{index}.npy", array)
    inputs = [f"--input=@{folder / f'input{index}.npy'}" for index in range(len(arrays))]
    subprocess.run([run, f"--module={folder / 'model.vmfb'}", "--device=local-task", f"--function={function}", *inputs, *options,
                    f"--output=@{folder / 'output.npy'}"], check=True, timeout=300)  # fmt: skip
    return np.load(folder / "output.npy")


def network(name):
    return (INPUTS / f"{name}.mlir").read_text()


def constants(text):
    """The resources of a module by their names; their shapes are in these, as torch-mlir writes them."""
    found = {}
    for name, digits in re.findall(r"(torch_tensor_\S+): \"0x04000000([0-9A-F]*)\"", text):
        sizes = re.match(r"torch_tensor_((?:\d+_)*)torch", name)[1]
        found[name] = np.frombuffer(bytes.fromhex(digits), np.float32).reshape([int(size) for size in sizes.split("_") if size])
    return found
