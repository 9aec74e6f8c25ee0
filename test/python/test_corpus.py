# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading R's lazy-load data base, made here with rdata's own writer."""

import gzip
import subprocess
import zlib

import numpy as np
import pytest
import rdata

from easyquant.demo import corpus
from easyquant.demo.corpus import fetch_novels, read_lazy_load
from easyquant.support.errors import UserError


def serialize(value) -> bytes:
    return rdata.unparser.unparse_data(rdata.conversion.convert_python_to_r_data(value))


def write_lazy_load(stem, variables: dict[str, list[str]]) -> None:
    index, data = {}, b""
    for name, lines in variables.items():
        content = serialize(np.array(lines, dtype=object).astype(str))
        piece = len(content).to_bytes(4, "big") + zlib.compress(content)
        index[name] = np.array([len(data), len(piece)], dtype=np.int32)
        data += piece
    stem.with_suffix(".rdb").write_bytes(data)
    stem.with_suffix(".rdx").write_bytes(gzip.compress(serialize({"variables": index})))


NOVELS = {"emma": ["EMMA", "", "By Jane Austen"], "persuasion": ["Persuasion", "naïve"]}


def test_variables(tmp_path):
    write_lazy_load(tmp_path / "Rdata", NOVELS)
    result = read_lazy_load(tmp_path / "Rdata")
    assert {name: list(map(str, lines)) for name, lines in result.items()} == NOVELS


@pytest.mark.parametrize("keep", [0, 3, 20])
def test_a_truncated_data_file(tmp_path, keep):
    write_lazy_load(tmp_path / "Rdata", NOVELS)
    data = (tmp_path / "Rdata.rdb").read_bytes()
    (tmp_path / "Rdata.rdb").write_bytes(data[:keep])
    with pytest.raises(UserError, match="lazy-load data base"):
        read_lazy_load(tmp_path / "Rdata")


def test_a_missing_or_foreign_index(tmp_path):
    with pytest.raises(UserError, match="lazy-load data base"):
        read_lazy_load(tmp_path / "Rdata")
    (tmp_path / "Rdata.rdb").write_bytes(b"")
    (tmp_path / "Rdata.rdx").write_bytes(b"not gzip")
    with pytest.raises(UserError, match="lazy-load data base"):
        read_lazy_load(tmp_path / "Rdata")


def test_one_novel_is_kept_from_calibration(tmp_path, monkeypatch):
    """Without the download: dpkg-deb is told to unpack what is a package of its own making."""
    stem = tmp_path / "package/usr/lib/R/site-library/janeaustenr/data/Rdata"
    stem.parent.mkdir(parents=True)
    write_lazy_load(stem, NOVELS | {"sensesensibility": ["SENSE AND SENSIBILITY", "The family"]})
    (tmp_path / "package/DEBIAN").mkdir()
    (tmp_path / "package/DEBIAN/control").write_text("Package: p\nVersion: 1\nArchitecture: all\nMaintainer: m\nDescription: d\n")

    def download(folder):
        subprocess.run(["dpkg-deb", "-b", tmp_path / "package", folder / f"{corpus.PACKAGE}_1_all.deb"], check=True, capture_output=True)

    monkeypatch.setattr(corpus, "_apt_download", download)
    novels = fetch_novels(tmp_path / "cache")
    assert novels.judged.read_text() == "SENSE AND SENSIBILITY\nThe family\n"
    assert novels.others.read_text() == "EMMA\n\nBy Jane Austen\n\n\nPersuasion\nnaïve\n"
    monkeypatch.setattr(corpus, "_apt_download", None)  # a second time nothing is downloaded
    assert fetch_novels(tmp_path / "cache") == novels
