# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json

import pytest

from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, sha256, write_json


def test_json_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "result.json"
    write_json(file, {"a": 1})
    write_json(file, {"b": [1.5, None]})
    assert json.loads(file.read_text()) == {"b": [1.5, None]}
    assert list(tmp_path.iterdir()) == [file]


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path):
    file = tmp_path / "result.json"
    write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("check", [check_writable, lambda path: write_json(path, 1)])
def test_places_that_cannot_be_written(tmp_path, check):
    with pytest.raises(UserError, match="there is no folder"):
        check(tmp_path / "missing" / "result.json")
    with pytest.raises(UserError, match="is a folder"):
        check(tmp_path)


def test_sha256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
