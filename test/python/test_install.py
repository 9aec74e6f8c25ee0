# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `cmake --install` and `pip wheel` make works where the build is not looked at (docs/guide/install.md)."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from easyquant import __version__
from easyquant.support.tools import DEBIAN_PACKAGES, explain, find_tool, tool_environment
from helpers import BUILD, ISA, REPO, compile_model, random_llama, run_tool, write_letters, write_model

LLVM_TOOLS = ("compile", "opt", "translate", "tblgen", "gpu-kernel-bench")
EXAMPLES = REPO / "examples"
PROMPT = ["1", "5", "7"]


def run(*command, **environment):
    """Its output; in an environment that says nothing of the build."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("EASYQUANT_", "LD_", "PYTHONPATH"))}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=known | environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed, and then moved."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "prefix")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_letters(write_model(folder / "hf", *random_llama(3)))
    return compile_model(folder / "hf", folder / "artifact", "--scheme=W8A8", ISA)


def build_example(name, prefix, folder):
    run("cmake", "-S", EXAMPLES / name, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_C_COMPILER=clang-22", "-DCMAKE_CXX_COMPILER=clang++-22")  # fmt: skip
    run("cmake", "--build", folder)


def test_tools_say_their_version():
    llvm = run(BUILD / "llvm-tools/llvm-config", "--version").strip()
    for name in ("run", "simt", *LLVM_TOOLS):
        expected = f"easyquant-{name} {__version__}" + (f", LLVM {llvm}" if name in LLVM_TOOLS else "")
        assert run_tool(f"easyquant-{name}", "--version").stdout == expected + "\n"


def test_installed_tools_find_their_libraries(prefix, compiled):
    tools = sorted(tool.name for tool in (prefix / "bin").iterdir())
    assert tools == [f"easyquant-{name}" for name in ("compile", "opt", "run", "simt", "translate")]
    for name in tools:
        assert run(prefix / "bin" / name, "--version").startswith(f"{name} {__version__}")
        assert str(REPO) not in run("readelf", "-d", prefix / "bin" / name)
    libraries = run("ldd", prefix / "bin/easyquant-run")
    assert str(prefix / "lib/libeasyquant_runtime.so") in os.path.normpath(re.search(r"=> (\S*runtime\S*)", libraries)[1])
    assert run(prefix / "bin/easyquant-run", compiled, "--tokens", ",".join(PROMPT), "--max-new-tokens=4")


def test_installed_compiler_makes_the_same_artifact(prefix, compiled, tmp_path):
    run(prefix / "bin/easyquant-compile", compiled.parent / "hf", "-o", tmp_path / "out", "--scheme=W8A8", ISA)
    for file in ("manifest.json", "model.so", "weights.safetensors"):
        assert (tmp_path / "out" / file).read_bytes() == (compiled / file).read_bytes(), file


def test_runtime_exports_its_c_interface_alone(prefix):
    library = prefix / "lib/libeasyquant_runtime.so"
    header = (prefix / "include/easyquant/Runtime/easyquant.h").read_text()
    abi = re.search(r"#define EQ_ABI_VERSION (\d+)", header)[1]
    assert f"[libeasyquant_runtime.so.{abi}]" in run("readelf", "-d", library)
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    assert exported == set(re.findall(r"\b(eq_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)))


@pytest.mark.parametrize("how", ["cmake", "pkg-config"])
def test_c_program_generates_what_easyquant_run_does(how, prefix, compiled, tmp_path):
    if how == "cmake":
        build_example("generate", prefix, tmp_path)
    else:
        flags = run("pkg-config", "--cflags", "--libs", "easyquant-runtime", PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
        run("cc", EXAMPLES / "generate/generate.c", "-o", tmp_path / "generate", *flags.split(), f"-Wl,-rpath,{prefix}/lib")
    expected = run_tool("easyquant-run", compiled, "--tokens", ",".join(PROMPT), "--max-new-tokens=6").stdout
    assert run(tmp_path / "generate", compiled, 6, *PROMPT) == expected
    failed = subprocess.run([tmp_path / "generate", tmp_path / "none", "1", "1"], capture_output=True, text=True)
    assert failed.returncode == 1 and failed.stderr.startswith(f"error: {tmp_path}/none: no such folder")


def test_plugin_built_elsewhere_walks_our_ops(prefix, tmp_path):
    build_example("bits-per-weight", prefix, tmp_path / "out")
    source = tmp_path / "site.mlir"
    source.write_text("""
        func.func @sites(%x: tensor<?x100xf32>, %w: tensor<16x100xf32>, %v: tensor<16x100xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
          %y = lm.linear %x, %w {site = "up"} : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
          %z = lm.linear %x, %v {site = "down"} : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
          return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
        }""")
    passes = "equant-absmax{scheme=W4A16 ignore=down},equant-quantize,report-bits-per-weight"
    text = run(prefix / "bin/easyquant-opt", source, f"--load-pass-plugin={tmp_path}/out/BitsPerWeight.so",
               f"--pass-pipeline=builtin.module({passes})", "-o", tmp_path / "out.mlir")  # fmt: skip
    # A group has an f16 scale.
    expected = {"up": 4 + 16 / 100, "down": 32, "all sites": (4 + 16 / 100 + 32) / 2}
    assert re.findall(r"remark: (.*): (.*) bits per weight", text) == [(site, f"{bits:.2f}") for site, bits in expected.items()]


def test_installed_headers_stand_by_themselves(prefix, tmp_path):
    """Without what the build precompiles. They are those of the rooms that easyquant-opt has."""
    include = prefix / "include"
    headers = sorted(str(header.relative_to(include)) for header in include.rglob("*.h"))
    rooms = {Path(header).parts[1] for header in headers}
    assert {"Dialect", "Numerics", "Recipe", "Support"} <= rooms and "Import" not in rooms
    assert [header for header in headers if "/Runtime/" in header] == ["easyquant/Runtime/easyquant.h"]
    (tmp_path / "all.cpp").write_text("".join(f'#include "{header}"\n' for header in headers))
    run("clang++-22", "-fsyntax-only", "-std=c++20", "-fno-rtti", "-Wall", "-Werror", f"-I{include}", "-isystem", (BUILD / "llvm-include").resolve(), tmp_path / "all.cpp")


def test_runtime_alone_has_no_plugins(tmp_path, compiled):
    run("cmake", "--install", BUILD, "--prefix", tmp_path / "prefix", "--component", "runtime")
    assert sorted(file.name for file in (tmp_path / "prefix/bin").iterdir()) == ["easyquant-run", "easyquant-simt"]
    assert [file.name for file in (tmp_path / "prefix/include").rglob("*.h")] == ["easyquant.h"]
    build_example("generate", tmp_path / "prefix", tmp_path / "out")
    assert run(tmp_path / "out/generate", compiled, 1, *PROMPT)
    with pytest.raises(AssertionError, match="This EasyQuant is the runtime alone"):
        build_example("bits-per-weight", tmp_path / "prefix", tmp_path / "plugin")


def build_wheel(build, folder):
    """The wheel of what a folder holds, by a backend that is installed: nothing is fetched."""
    run(sys.executable, "-m", "pip", "wheel", REPO, "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", folder,
        "-C", f"cmake.define.EASYQUANT_PREBUILT={build}")  # fmt: skip
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(BUILD, tmp_path_factory.mktemp("wheel"))


def test_wheel_of_no_build_is_refused(tmp_path):
    with pytest.raises(AssertionError, match=r"EASYQUANT_PREBUILT=\S*/none:\s+no\s+build\s+folder\s+of\s+EasyQuant;"):
        build_wheel(tmp_path / "none", tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "cmake_install.cmake").write_text("")  # nothing for any Python
    with pytest.raises(AssertionError, match=r"other:\s+holds\s+no\s+extension\s+for\s+this\s+Python\s+\(cpython-"):
        build_wheel(other, tmp_path)
    assert not list(tmp_path.glob("*.whl"))


def test_wheel_is_of_this_platform_and_names_no_build_tree(wheel):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name == f"easyquant_compiler-{__version__}-{tag}-{tag}-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        texts = {name: files.read(name).decode() for name in names if name.endswith((".py", ".json", ".j2"))}
    tracked = run("git", "-C", REPO, "ls-files", "python").split()
    modules = {name.removeprefix("python/") for name in tracked if not name.endswith(("CMakeLists.txt", ".cpp", ".h"))}
    extension = f"easyquant/runtime/_runtime.c{tag[1:].replace('p', 'python-')}-x86_64-linux-gnu.so"
    assert {name for name in names if ".dist-info/" not in name} == modules | {extension, "easyquant/compiler/options.json", "easyquant/bin/easyquant-compile"}
    assert [name for name, text in texts.items() if str(BUILD) in text or str(REPO) in text] == []


def test_installed_wheel_compiles_and_runs(wheel, compiled, tmp_path):
    """In an environment of its own, which has the libraries that the package depends on from this one."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    packages = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--target", packages, wheel)
    own = Path(sys.executable).parent.parent / packages.relative_to(tmp_path / "venv")
    (packages / "dependencies.pth").write_text(f"{own}\n")  # a path alone: the .pth files there are not read
    python = tmp_path / "venv/bin/python"
    assert run(python, "-c", "import easyquant; print(easyquant.__file__)").startswith(str(packages))
    path = "/usr/bin:/bin"
    run(python, "-m", "easyquant", "compile", compiled.parent / "hf", "-o", tmp_path / "out", "--scheme=W8A8", PATH=path)
    assert (tmp_path / "out/weights.safetensors").read_bytes() == (compiled / "weights.safetensors").read_bytes()
    greedy = ("-m", "easyquant", "run", tmp_path / "out", "--prompt", "abc", "--max-new-tokens", "8")
    said = [run(interpreter, *greedy, PATH=path).splitlines()[0] for interpreter in (python, sys.executable)]
    assert said[0] == said[1]
    assert "Usage" in run(python, "-m", "easyquant", "demo", "--help", PATH=path)
    assert run(python, "-m", "easyquant", "--version", PATH=path) == f"easyquant {__version__}\n"


def test_missing_libraries_are_named_with_their_packages(tmp_path):
    """A copy of the compiler whose LLVM is nowhere."""
    tool = tmp_path / "easyquant-compile"
    shutil.copy(find_tool("easyquant-compile"), tool)
    data = tool.read_bytes()
    tool.write_bytes(data.replace(b"libMLIR.so.", b"libNONE.so."))
    done = subprocess.run([tool, "--version"], capture_output=True, text=True)
    assert done.returncode == 127
    text = explain(tool, done.returncode, done.stderr)
    assert text == f"{tool}: needs libNONE.so.22.1, which is not on this machine; on Debian 12: apt-get install {DEBIAN_PACKAGES}"
    assert f"apt-get install {DEBIAN_PACKAGES}\n" in (REPO / "docs/guide/install.md").read_text()
    assert explain(tool, 1, "error: no\n") == "no" and explain(tool, 3, "") == "easyquant-compile failed with status 3 and no message"


def test_tools_find_the_gpu_assembler_of_their_environment(monkeypatch):
    monkeypatch.delenv("EASYQUANT_CUDA_BIN", raising=False)
    folder = tool_environment().get("EASYQUANT_CUDA_BIN")
    assert folder is None or os.access(Path(folder) / "ptxas", os.X_OK)
    monkeypatch.setenv("EASYQUANT_CUDA_BIN", "/mine")
    assert tool_environment()["EASYQUANT_CUDA_BIN"] == "/mine"
