"""lit configuration: IR tests. Started by scripts/test.sh; by hand: lit -v build/test (or test) --param build=build."""

import os
import shutil

import lit.formats

repo = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = os.path.abspath(lit_config.params.get("build", os.path.join(repo, "build")))

config.name = "EasyQuant"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "python"]
config.test_source_root = os.path.join(repo, "test")
config.test_exec_root = os.path.join(build, "test")

llvm = os.path.join(build, "llvm-tools")
venv = os.path.join(repo, ".venv", "bin")
config.environment["PATH"] = os.pathsep.join([os.path.join(build, "bin"), venv, llvm, os.environ["PATH"]])
python = os.path.join(venv, "python")
config.substitutions.append(("%python", python if os.path.exists(python) else shutil.which("python3")))
config.substitutions.append(("%build", build))

data = os.environ.get("EASYQUANT_TEST_DATA", os.path.join(os.path.dirname(repo), "shared", "data"))
if os.path.isdir(data):
    config.available_features.add("test-data")
    config.substitutions.append(("%data", data))
