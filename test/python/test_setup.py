# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/setup.sh, with stand-ins for Debian's tools."""

import os
import subprocess

from helpers import REPO

# apt-get of a machine on which what is asked for conflicts with libomp-14-dev.
APT_GET = """#!/bin/sh
case "$*" in
*-s*) echo "Remv libomp-14-dev [1:14.0.6-12]"; echo "Inst cmake" ;;
*--no-remove*) echo "E: Packages need to be removed but remove is disabled." >&2; exit 100 ;;
*install*) touch "$REMOVED" ;;
esac
"""


def test_nothing_is_removed_unasked(tmp_path):
    for name, text in {"apt-get": APT_GET, "dpkg-query": "#!/bin/sh\nexit 1\n", "sudo": '#!/bin/sh\nexec "$@"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REMOVED": str(tmp_path / "removed")}
    result = subprocess.run([REPO / "scripts/setup.sh"], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "apt would remove them: libomp-14-dev" in result.stderr, result.stderr
    assert "apt-get install" in result.stderr and " cmake " in result.stderr  # the command to run
    assert not (tmp_path / "removed").exists()
