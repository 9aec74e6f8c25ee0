# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `easyquant`, which `python -m easyquant` is too."""

from easyquant.terminal import interrupts

interrupts.leave_quietly()  # before anything that takes long to import


def main() -> None:
    from easyquant.commands import cli

    cli.main()


if __name__ == "__main__":
    main()
