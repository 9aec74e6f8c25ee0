"""Runs every suite of the project, shows what failed, and ends with one line of true counts."""

import argparse
import collections
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
# Unit tests that take minutes: they come first, so that none is left alone at the end.
LONG = ("GPUAttentionTest", "GPULinearTest", "GPUResourcesTest", "GPUWeightOnlyTest", "GroupedRowsTest", "LinearTest", "RowOpsTest")


ARM = REPO / "build-aarch64"
SYSROOT = Path("/usr/aarch64-linux-gnu")  # of Debian's libc6-arm64-cross
# Unit tests of kernels that take seconds in the emulator; all can run there (docs/guide/arm.md).
EMULATED_KERNELS = ("Conv1dTest", "HeadNormTest", "MaskClustersTest", "OnlineScalesTest", "RopeTest", "RowGradientsTest", "VectorMathTest")
# Programs that start others cannot be emulated by themselves.
EMULATED = ("EasyQuantRuntimeTests", "EasyQuantFailingAllocationTests", "EasyQuantCApiTests", "SupportTest")


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.lock = threading.Lock()

    def add(self, other):
        with self.lock:
            self.passed += other.passed
            self.failed += other.failed
            self.skipped += other.skipped

    def add_junit(self, path):
        """Adds the cases of a JUnit XML file; returns the messages of skipped ones."""
        reasons = []
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif skipped is not None or case.get("status") == "notrun" or case.get("result") == "skipped":
                self.skipped += 1
                message = "" if skipped is None else skipped.get("message") or ""
                reasons.append(f"{case.get('classname')}.{case.get('name')}: {message}".strip())
            else:
                self.passed += 1
        return reasons


def run(title, command, totals, junit=None, env=None):
    """Runs one suite. Its output is shown only if it fails; without JUnit output it counts as one test."""
    begin = time.monotonic()
    result = subprocess.run(
        [str(c) for c in command], cwd=REPO, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    own, reasons = Totals(), []
    if junit is not None and junit.exists():
        reasons = own.add_junit(junit)
        if result.returncode != 0 and own.failed == 0:
            own.failed = 1  # it broke outside any case: a crash, a sanitizer report at exit
    elif result.returncode == 0:
        own.passed = 1
    else:
        own.failed = 1
    report = [f"{title:<44}{own.passed:5} ok {own.failed:4} failed {own.skipped:4} skipped  {time.monotonic() - begin:6.1f} s"]
    if own.failed:
        report.append(result.stdout)
    report += [f"    skipped: {reason}" for reason in sorted(set(reasons))]
    print("\n".join(report), flush=True)
    totals.add(own)


def longest_files(junit, count):
    """The test files in which the cases of a JUnit XML file took the most time: (seconds, file)."""
    seconds = collections.Counter()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        seconds[case.get("classname")] += float(case.get("time"))
    return [(took, name) for name, took in seconds.most_common(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", choices=("yes", "no"), default="no", help="leave out sanitizers and fuzzing")
    parser.add_argument("--build", type=Path, default=REPO / "build")
    args = parser.parse_args()
    totals = Totals()
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # several programs at once: threads that wait must not spin

    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)

        def unit_tests(build, env=None):
            programs = (p for p in (build / "unittests").glob("*Test*") if p.suffix != ".so")
            for program in sorted(programs, key=lambda p: (p.name not in LONG, p)):
                junit = scratch / f"{build.name}-{program.name}.xml"
                yield f"{build.name}: {program.name}", [program, f"--gtest_output=xml:{junit}"], junit, env

        def emulated_tests(build):
            """What an emulated Arm CPU runs, where setup.sh could install what that takes."""
            missing = [] if shutil.which("qemu-aarch64") else ["qemu-aarch64"]
            missing += [str(path) for path in (SYSROOT, ARM / "lib/libomp.so.5", *(ARM / "unittests" / name for name in ("KernelHost", *EMULATED))) if not path.exists()]
            if missing:
                print(f"    skipped: unit tests on an emulated Arm CPU: no {', no '.join(missing)}")
                totals.skipped += len(EMULATED) + len(EMULATED_KERNELS)
                return
            emulator = ["qemu-aarch64", "-cpu", "max", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib:{ARM}/lib"]
            for name in EMULATED:
                junit = scratch / f"{ARM.name}-{name}.xml"
                yield f"{ARM.name}: {name}", [*emulator, ARM / "unittests" / name, f"--gtest_output=xml:{junit}"], junit
            for name in EMULATED_KERNELS:
                junit = scratch / f"{ARM.name}-{name}.xml"
                yield f"kernels for aarch64: {name}", [build / "unittests" / name, f"--gtest_output=xml:{junit}"], junit, {"EASYQUANT_TEST_PROCESSOR": "aarch64"}

        sources = subprocess.run(["git", "ls-files", "*.cpp", "*.h"], cwd=REPO, capture_output=True, text=True, check=True)
        # Each takes one core, or little time. The long ones begin, so that they run beside others.
        suites = []
        if args.fast == "no":
            asan = REPO / "build-asan"
            suites += [
                ("build-asan: fuzz the header readers", [asan / "unittests/FuzzHeaders", "--seconds", 30]),
                # Without AddressSanitizer: see docs/Architecture.md, "What holds against hostile IR".
                ("fuzz the passes", [args.build / "unittests/FuzzIR", "test", "--seconds", 30]),
                ("cleanups between all passes", [args.build / "unittests/FuzzIR", "test", "--cleanups"]),
                *unit_tests(asan, {"UBSAN_OPTIONS": "print_stacktrace=1"}),
                *unit_tests(REPO / "build-tsan", {"TSAN_OPTIONS": f"suppressions={REPO / 'test/tsan.suppressions'}"}),
            ]
        suites += [
            *unit_tests(args.build),
            *emulated_tests(args.build),
            ("prose", ["scripts/lint.sh", "--prose"]),
            ("format", ["clang-format-22", "--dry-run", "-Werror", *sources.stdout.split()]),
            ("generated docs", ["scripts/generate-docs.sh", "--check"]),
            ("site", ["scripts/build-site.sh"]),
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(run, title, command, totals, *more) for title, command, *more in suites]:
                done.result()
        # Both take all cores.
        lit = scratch / "lit.xml"
        run("lit", [Path(PYTHON).parent / "lit", "-q", "--xunit-xml-output", lit, "--param", f"build={args.build}", "test"],
            totals, lit)
        pytest = scratch / "pytest.xml"
        # A worker a core; what a file's tests share, models and artifacts, is made once. In the order of conftest.py: long files first.
        run("pytest", [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadfile",
                       "--no-loadscope-reorder", f"--junitxml={pytest}", "test/python"], totals, pytest)
        for took, name in longest_files(pytest, 15) if pytest.exists() else []:
            print(f"    {name:<40} {took:6.1f} s")

    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"{totals.passed} passed, {totals.failed} failed{skipped}")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
