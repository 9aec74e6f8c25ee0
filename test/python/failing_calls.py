# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""System calls that fail on demand, in a process that is started with what `failing` gives."""

import subprocess
from pathlib import Path

# fsync fails with EIO on the file or folder whose path ends with $FAIL_FSYNC, mkdir and rename with ENOSPC where the first path has
# $FAIL_MKDIR, $FAIL_RENAME in it.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int fsync(int file) {
  const char *wanted = getenv("FAIL_FSYNC");
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path);
  size_t end = wanted ? strlen(wanted) : 0;
  if (wanted && length >= (ssize_t)end && memcmp(path + length - end, wanted, end) == 0) {
    errno = EIO;
    return -1;
  }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
static int fails(const char *variable, const char *path) {
  const char *wanted = getenv(variable);
  if (!wanted || !strstr(path, wanted))
    return 0;
  errno = ENOSPC;
  return 1;
}
int mkdir(const char *path, mode_t mode) {
  return fails("FAIL_MKDIR", path) ? -1 : ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);
}
int rename(const char *from, const char *to) {
  return fails("FAIL_RENAME", from) ? -1 : ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


def build_shim(folder: Path) -> Path:
    source, library = folder / "failing_calls.c", folder / "failing_calls.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def failing_fsync(shim: Path, end_of_path: str) -> dict[str, str]:
    """Environment of a process in which fsync of the paths that end so fails."""
    return {"LD_PRELOAD": str(shim), "FAIL_FSYNC": end_of_path}
