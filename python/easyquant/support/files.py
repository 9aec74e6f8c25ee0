# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that are either written whole or not at all, and folders for what is on the way."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from easyquant.support.errors import UserError


def cache_folder() -> Path:
    """Where is kept what can be made again: $EASYQUANT_CACHE, $XDG_CACHE_HOME/easyquant, or ~/.cache/easyquant."""
    if chosen := os.environ.get("EASYQUANT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "easyquant"


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` under a temporary name beside `path`, then renames it into place."""
    path = Path(path)
    _check_place(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of `folder`; None where another process holds it or the folder is gone."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(folder)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder in `parent`, or where temporary files go, for as long as it is needed.

    This process holds it by a lock; those that nothing holds, since their processes were killed, are removed on the way.
    """
    parent, prefix = Path(parent or tempfile.gettempdir()), ".easyquant-scratch-"
    for left in parent.glob(f"{prefix}*"):
        if (handle := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(handle)
    # Before it is locked, another process may take it for one that was left.
    while (handle := _locked(folder := Path(tempfile.mkdtemp(prefix=prefix, dir=parent)))) is None:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def write_json(path: Path, value) -> None:
    """JSON that is readable and valid: no NaN or Infinity, which JSON does not have."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def check_writable(path: Path | None) -> None:
    """Refuses an output file that could not be written before hours of work are spent on it."""
    if path is None:
        return
    path = Path(path)
    _check_place(path)
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: the folder {path.parent} is not writable")


def sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """The whole of a text in UTF-8."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 (byte {error.start}); convert it, for instance with iconv") from None
