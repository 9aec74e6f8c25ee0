# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of a long run that outlive its interruption."""

import fcntl
import json
import os
from pathlib import Path

from easyquant.support.errors import UserError
from easyquant.support.files import write_atomically


class Journal:
    """Lines for a file, kept in FILE.partial until all are there and FILE is written.

    The first line of FILE.partial is the `stamp` of the run. A run of the same stamp goes on behind what it finds there
    (`lines`); what another run has left is an error, and nothing is lost.
    """

    def __init__(self, file: Path, stamp: dict):
        self.file, self.partial = Path(file), Path(f"{file}.partial")
        self._stream = open(self.partial, "a+b")
        try:
            self._claim()
            self.lines = self._recover(json.dumps(stamp).encode())
        except BaseException:
            self._stream.close()
            raise

    def _claim(self) -> None:
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(self._stream.fileno()), os.stat(self.partial))
        except OSError:
            ours = False
        if not ours:
            raise UserError(f"{self.partial}: another process is writing it; wait for it, or give the results another name")

    def _recover(self, stamp: bytes) -> list[bytes]:
        self._stream.seek(0)
        content = self._stream.read()
        whole = content[: content.rfind(b"\n") + 1]  # without a line that was cut off
        self._stream.truncate(len(whole))
        if not whole:
            self._write(stamp)
            return []
        found, *lines = whole.split(b"\n")[:-1]
        if found != stamp:
            raise UserError(
                f"{self.partial}: has the first {len(lines)} results of another run (other prompts, options or artifact); "
                "finish that one, remove the file, or give the results another name"
            )
        return lines

    def _write(self, line: bytes) -> None:
        self._stream.write(line + b"\n")
        self._stream.flush()

    def append(self, line: str) -> None:
        self.lines.append(line.encode())
        self._write(self.lines[-1])

    def finish(self) -> None:
        write_atomically(self.file, b"".join(line + b"\n" for line in self.lines))
        self.partial.unlink()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error) -> None:
        self._stream.close()
