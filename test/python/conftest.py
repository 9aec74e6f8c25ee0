# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures that several files share."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_data() -> Path | None:
    """The folder of test data that is not part of the repository, where there is one."""
    folder = Path(os.environ.get("EASYQUANT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.fixture
def data() -> Path:
    folder = test_data()
    if folder is None:
        pytest.skip("unsupported: ../shared/data is missing, and EASYQUANT_TEST_DATA names no folder")
    return folder
