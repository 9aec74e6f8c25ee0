# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's texts: Jane Austen's six novels, one to be judged on and five to calibrate on, from the Debian package r-cran-janeaustenr.

The package is an R package, and R keeps its data in a lazy-load data base: an index (`.rdx`, itself a
serialized R list) says at which offset of the `.rdb` file each variable lies; there, a big-endian 32-bit
length of the content is followed by its zlib stream, which is again a serialized R value. The package
rdata parses serialized R values, so R itself is not needed.
"""

import gzip
import subprocess
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder, write_atomically

PACKAGE = "r-cran-janeaustenr"
JUDGED = "sensesensibility"  # the variable of the novel that no calibration sees


@dataclass(frozen=True)
class Novels:
    judged: Path  # Sense and Sensibility
    others: Path  # the five others


def read_r_value(data: bytes):
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It guesses the kind of file from a name, which bytes have not.
        return rdata.conversion.convert(rdata.parser.parse_data(data, extension=".rds"))


def read_lazy_load(stem: Path) -> dict[str, object]:
    """Every variable of the data base `stem`.rdx, `stem`.rdb."""
    index_file, data_file = stem.with_suffix(".rdx"), stem.with_suffix(".rdb")
    try:
        index = read_r_value(gzip.decompress(index_file.read_bytes()))["variables"]
        data = data_file.read_bytes()
        values = {}
        for name, (offset, length) in index.items():
            piece = data[int(offset) : int(offset) + int(length)]
            content = zlib.decompress(piece[4:])
            if len(content) != int.from_bytes(piece[:4], "big"):
                raise ValueError(f"variable {name} has {len(content)} bytes, its header says {int.from_bytes(piece[:4], 'big')}")
            values[str(name)] = read_r_value(content)
        return values
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError, zlib.error, EOFError) as error:
        raise UserError(f"{stem}.rdx/.rdb: cannot be read as R's lazy-load data base ({error})") from None


def fetch_novels(cache: Path) -> Novels:
    """UTF-8 text files in `cache`; downloaded the first time."""
    target = Novels(cache / "sense-and-sensibility.txt", cache / "austen-5-other-novels.txt")
    if target.judged.is_file() and target.others.is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with scratch_folder(cache) as folder:
        _apt_download(folder)
        package = next(folder.glob(f"{PACKAGE}_*.deb"))
        _run(["dpkg-deb", "-x", package.name, "."], folder, f"{package.name}: cannot be unpacked")
        novels = read_lazy_load(folder / "usr/lib/R/site-library/janeaustenr/data/Rdata")
        for file, names in ((target.others, sorted(novels.keys() - {JUDGED})), (target.judged, [JUDGED])):
            text = "\n\n\n".join("\n".join(map(str, novels[name])) for name in names)
            write_atomically(file, (text + "\n").encode())
    return target


def _apt_download(folder: Path) -> None:
    try:
        _run(["apt-get", "download", "-qq", PACKAGE], folder, "")
    except UserError as first:
        # A fresh container has no package lists yet; only root can fetch them.
        try:
            _run(["apt-get", "update", "-qq"], folder, "")
            _run(["apt-get", "download", "-qq", PACKAGE], folder, "")
        except UserError:
            raise UserError(
                f"the Debian package {PACKAGE} (the demo's text) could not be downloaded: {str(first).strip()}; "
                "check the network, run `apt-get update` as root, or give your own text with --text"
            ) from None


def _run(command: list[str], folder: Path, failure: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=ends_with_me())
    except FileNotFoundError:
        raise UserError(f"{command[0]}: is not installed; the demo's text comes from a Debian package, or give your own with --text") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        detail = lines[-1] if lines else f"status {done.returncode}"
        raise UserError(f"{failure}: {detail}" if failure else detail)
