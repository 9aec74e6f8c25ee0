"""Runs every suite of the project, shows what failed, and ends with one line of true counts."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PYTHON = sys.executable


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

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
    print(f"{title:<44}", end="", flush=True)
    begin = time.monotonic()
    before = (totals.passed, totals.failed, totals.skipped)
    result = subprocess.run(
        [str(c) for c in command], cwd=REPO, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    reasons = []
    if junit is not None and junit.exists():
        reasons = totals.add_junit(junit)
        if result.returncode != 0 and totals.failed == before[1]:
            totals.failed += 1  # it broke outside any case: a crash, a sanitizer report at exit
    elif result.returncode == 0:
        totals.passed += 1
    else:
        totals.failed += 1
    passed, failed, skipped = (now - then for now, then in zip((totals.passed, totals.failed, totals.skipped), before))
    print(f"{passed:5} ok {failed:4} failed {skipped:4} skipped  {time.monotonic() - begin:6.1f} s", flush=True)
    if failed:
        print(result.stdout)
    for reason in sorted(set(reasons)):
        print(f"    skipped: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", choices=("yes", "no"), default="no", help="leave out sanitizers and fuzzing")
    parser.add_argument("--build", type=Path, default=REPO / "build")
    args = parser.parse_args()
    totals = Totals()

    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)

        def unit_tests(build, env=None):
            programs = [p for p in (build / "unittests").glob("*Test*") if p.suffix != ".so"]
            for program in sorted(programs):
                junit = scratch / f"{build.name}-{program.name}.xml"
                run(f"{build.name}: {program.name}", [program, f"--gtest_output=xml:{junit}"], totals, junit, env)

        sources = subprocess.run(["git", "ls-files", "*.cpp", "*.h"], cwd=REPO, capture_output=True, text=True, check=True)
        run("format", ["clang-format-22", "--dry-run", "-Werror", *sources.stdout.split()], totals)
        run("generated docs", ["scripts/generate-docs.sh", "--check"], totals)
        unit_tests(args.build)
        if args.fast == "no":
            unit_tests(REPO / "build-asan", {"UBSAN_OPTIONS": "print_stacktrace=1"})
            run("build-asan: fuzz the header readers", [REPO / "build-asan/unittests/FuzzHeaders", "--seconds", 60], totals)
            unit_tests(REPO / "build-tsan")
        lit = scratch / "lit.xml"
        run("lit", [Path(PYTHON).parent / "lit", "-q", "--xunit-xml-output", lit, "--param", f"build={args.build}", "test"],
            totals, lit)
        pytest = scratch / "pytest.xml"
        run("pytest", [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={pytest}", "test/python"],
            totals, pytest)

    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"{totals.passed} passed, {totals.failed} failed{skipped}")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
