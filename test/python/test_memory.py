# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What memory a process can still get."""

from easyquant.support.memory import available_bytes

MB = 1 << 20


def test_the_least_of_machine_and_groups_counts(tmp_path):
    machine, membership, groups = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    machine.write_text("MemTotal: 9000 kB\nMemAvailable: 8192 kB\n")
    membership.write_text("0::/outer/inner\n")
    (groups / "outer" / "inner").mkdir(parents=True)

    def available():
        return available_bytes(groups, membership, machine)

    assert available() == 8 * MB, "no group has a limit"
    for name, limit, used, cached in (("outer", 10 * MB, 6 * MB, 1 * MB), ("outer/inner", "max", 3 * MB, 0)):
        (groups / name / "memory.max").write_text(f"{limit}\n")
        (groups / name / "memory.current").write_text(f"{used}\n")
        (groups / name / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")
    assert available() == 5 * MB
    (groups / "outer" / "memory.max").write_text(f"{2 * MB}\n")
    assert available() == 0
    membership.unlink()
    assert available() == 8 * MB
    machine.unlink()
    assert available() is None


def test_this_machine_has_some():
    assert available_bytes() > 0
