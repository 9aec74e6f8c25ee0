# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators of processes: MPI under mpirun, NCCL (a stand-in) by MASTER_ADDR, and ranks that stop, die or differ."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
from helpers import BUILD

RANK = BUILD / "unittests" / "comm-rank"
FAKE_NCCL = BUILD / "unittests" / "fake-nccl"
TIMEOUT = 2000  # ms, of one collective
LEAVES_WITHIN = 20  # s: the limit above, a second to speak, and a busy machine

LAUNCHERS = ("OMPI_", "PMIX_", "SLURM_", "MASTER_", "FAKE_NCCL_")
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
} | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="unsupported: no mpirun")
SHARED_MEMORY = ()
LOOPBACK = ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")


def mpirun(ranks, *arguments, options=(), timeout=TIMEOUT, env=None, on=()):
    command = [*on, "mpirun", "--oversubscribe", "-n", str(ranks), *options, str(RANK), "--timeout", str(timeout), *map(str, arguments)]
    begin = time.monotonic()
    # Its own group: what a failed test leaves behind is ended with it.
    process = subprocess.Popen(command, env=ENVIRONMENT | (env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr), time.monotonic() - begin


def start(ranks, *arguments, timeout=TIMEOUT, each=None, on=((),), **env):
    """Processes that find each other at MASTER_ADDR, as torchrun starts them, on hosts in turn; each(rank) changes a rank's variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
               "LD_LIBRARY_PATH": FAKE_NCCL} | env | (each(rank) if each else {})
        own = ENVIRONMENT | {name: str(value) for name, value in own.items() if value is not None}
        processes.append(subprocess.Popen([*on[rank % len(on)], RANK, "--timeout", str(timeout), *map(str, arguments)], env=own, text=True,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return processes


def finish(processes):
    """Exit status, output and errors of each; none may hang."""
    end = time.monotonic() + LEAVES_WITHIN
    results = []
    try:
        for process in processes:
            stdout, stderr = process.communicate(timeout=max(0.1, end - time.monotonic()))
            results.append((process.returncode, stdout, stderr))
    finally:
        for process in processes:
            process.kill()
    return results


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two network namespaces with a cable between them: how a command is run in each, by address, and what mpirun calls instead of ssh."""
    names = [f"eq{os.getpid()}-{i}" for i in range(2)]
    addresses = ["10.231.7.1", "10.231.7.2"]

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def remove():
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "name", "cable1", "netns", names[1])
        for i, (name, address) in enumerate(zip(names, addresses, strict=True)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", f"cable{i}")
            ip("-n", name, "link", "set", f"cable{i}", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        remove()
        pytest.skip(f"unsupported: no network namespaces here ({getattr(error, 'stderr', None) or error})")
    # A host name of its own: ranks with the same one share memory.
    run = {address: ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
           for name, address in zip(names, addresses, strict=True)}
    agent = tmp_path_factory.mktemp("agent") / "agent"
    agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {names[1]} unshare --uts sh -c "hostname {names[1]}; exec $*"\n')
    agent.chmod(0o755)
    yield run, agent
    remove()


def errors(stderr):
    return [line for line in stderr.splitlines() if line.startswith("error: ")]


@needs_mpi
@pytest.mark.parametrize("options", [SHARED_MEMORY, LOOPBACK], ids=["shared memory", "TCP"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_by_mpi(ranks, options):
    result, _ = mpirun(ranks, "sums", options=options, timeout=30000)
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.split("\n"))[1:]
    assert [line.split(":")[0] for line in lines] == [f"rank {rank} of {ranks} by MPI" for rank in range(ranks)]
    assert len({line.split(": ")[1] for line in lines}) == 1  # the same bits everywhere


@needs_mpi
@pytest.mark.parametrize("options", [SHARED_MEMORY, LOOPBACK], ids=["shared memory", "TCP"])
def test_a_stopped_rank_is_an_error_on_the_others(options):
    result, seconds = mpirun(4, "--odd", 1, "stop", options=options)
    assert result.returncode != 0 and seconds < LEAVES_WITHIN
    said = errors(result.stderr)
    # mpirun wakes the stopped one to end it, so that it may speak, too.
    assert {re.search(r"rank (\d) of 4", line)[1] for line in said} >= {"0", "2", "3"}, result.stderr
    assert all("all-reduce (sum) of 1000 f32 (4000 bytes) at o_proj" in line for line in said)
    assert any("not done after" in line for line in said)


@needs_mpi
def test_a_killed_rank_is_an_error_on_the_others():
    # mpirun ends the others at once, by SIGTERM: they say where they were.
    result, seconds = mpirun(4, "--odd", 2, "die")
    assert result.returncode != 0 and seconds < LEAVES_WITHIN
    said = errors(result.stderr)
    assert sorted(re.search(r"rank (\d) of 4", line)[1] for line in said) == ["0", "1", "3"], result.stderr
    # A launcher that lets them live: the time limit ends them.
    result, seconds = mpirun(4, "--odd", 2, "die", options=["--enable-recovery"])
    assert seconds < LEAVES_WITHIN
    said = errors(result.stderr)
    assert sorted(re.search(r"rank (\d) of 4", line)[1] for line in said) == ["0", "1", "3"], result.stderr


@needs_mpi
def test_what_one_rank_fails_of_the_others_hear():
    result, seconds = mpirun(3, "--odd", 1, "leave", timeout=30000)
    assert result.returncode != 0 and seconds < LEAVES_WITHIN
    said = errors(result.stderr)
    assert len(said) == 3 and all("the disk is full" in line for line in said), result.stderr


@needs_mpi
def test_ranks_that_disagree_are_named_on_every_rank():
    result, _ = mpirun(3, "--odd", 2, "agree", timeout=30000)
    said = errors(result.stderr)
    assert result.returncode != 0 and len(said) == 3, result.stderr
    assert all("ranks disagree on the recipe: rank 2 has" in line for line in said)


@needs_mpi
def test_a_file_goes_round(tmp_path):
    content = os.urandom(1_000_003)
    (tmp_path / "model").write_bytes(content)
    result, _ = mpirun(4, "file", tmp_path / "model", tmp_path / "copy", timeout=30000)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.1", "copy.2", "copy.3", "model"]
    assert all((tmp_path / f"copy.{rank}").read_bytes() == content for rank in (1, 2, 3))


@needs_mpi
def test_contradictory_launchers():
    result, _ = mpirun(2, "sums", env={"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0"})
    said = errors(result.stderr)
    assert len(said) == 2 and all("mpirun says that this is rank" in line and "of 3" in line for line in said)


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_between_hosts_by_mpi(hosts, ranks):
    run, agent = hosts
    options = ["--mca", "plm_rsh_agent", str(agent), *LOOPBACK[:-1], "10.231.7.0/24", "--mca", "oob_tcp_if_include", "10.231.7.0/24",
               "--host", ",".join(f"{address}:{ranks // 2}" for address in run)]
    result, _ = mpirun(ranks, "sums", options=options, timeout=30000, on=run["10.231.7.1"])
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.split("\n"))[1:]
    assert len(lines) == ranks and len({line.split(": ")[1] for line in lines}) == 1


def test_host_collectives_between_hosts_beside_nccl(hosts):
    run, _ = hosts
    results = finish(start(4, "--comm", "nccl", "sums", timeout=15000, on=list(run.values()), MASTER_ADDR="10.231.7.1"))
    assert all(code == 0 for code, _, _ in results), results
    assert len({stdout.split(": ")[1] for _, stdout, _ in results}) == 1
    # A rank of another host cannot see rank 0 at the loopback's address.
    results = finish(start(2, "--comm", "nccl", "sums", on=list(run.values()), MASTER_ADDR="127.0.0.1"))
    assert "waiting for rank 1 to connect" in results[0][2] and "waiting for rank 0 at 127.0.0.1" in results[1][2], results


def no_library(folder, name):
    """Variables under which the library is none."""
    (folder / name).write_bytes(b"")
    return {"LD_LIBRARY_PATH": folder}


def test_no_mpi(tmp_path):
    # A launcher's variables, but no library.
    by_mpirun = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": 0, "RANK": None,
                 "WORLD_SIZE": None, "LOCAL_RANK": None}
    [(code, _, stderr)] = finish(start(1, "--comm", "mpi", "sums", **by_mpirun, **no_library(tmp_path, "libmpi.so.40")))
    assert code == 1 and "no Open MPI: libmpi.so.40 cannot be opened" in stderr


def test_torchrun_variables_without_gpus():
    results = finish(start(2, "sums"))
    assert all(code == 1 and "MPI needs its own launcher" in stderr for code, _, stderr in results)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_host_collectives_beside_nccl(ranks):
    results = finish(start(ranks, "--comm", "nccl", "sums", timeout=15000))
    assert all(code == 0 for code, _, _ in results), results
    assert len({stdout.split(": ")[1] for _, stdout, _ in results}) == 1


def test_device_collectives(tmp_path):
    results = finish(start(2, "--comm", "nccl", "device", each=lambda rank: {"FAKE_NCCL_LOG": tmp_path / str(rank)}))
    assert all(code == 0 for code, _, _ in results), results
    logs = [re.sub(r"^rank \d", "rank", (tmp_path / str(rank)).read_text(), flags=re.M).splitlines() for rank in range(2)]
    assert logs[0] == logs[1]
    assert logs[0] == [
        "rank init count 0 type 0 op 0 root 0 stream 0",
        "rank all-reduce count 2 type 7 op 2 root 0 stream 0",
        "rank broadcast count 1 type 2 op 0 root 0 stream 1",  # unequal counts: a broadcast from each
        "rank broadcast count 2 type 2 op 0 root 1 stream 1",
        "rank all-reduce count 2 type 7 op 0 root 0 stream 0",
        "rank finalize count 0 type 0 op 0 root 0 stream 0",
    ]


def test_device_collectives_that_differ():
    results = finish(start(2, "--comm", "nccl", "--odd", 1, "mismatch"))
    assert all(code == 1 for code, _, _ in results), results
    assert all(re.search(r"all-reduce of \d on stream 0, but rank \d all-reduce of \d on stream 0", stderr)
               for _, _, stderr in results), results


@pytest.mark.parametrize("slow", [0, 50])
def test_a_failed_device_collective_reaches_all(slow):
    """With its reason, even where NCCL tells of the rank that has left while the other asks it."""
    results = finish(start(2, "--comm", "nccl", "device", each=lambda rank: {"FAKE_NCCL_FAIL": 3} if rank else {"FAKE_NCCL_SLOW": slow}))
    assert all(code == 1 and "told to fail" in stderr for code, _, stderr in results), results


@pytest.mark.parametrize("what", ["stop", "die"])
def test_a_lost_rank_beside_nccl(what):
    processes = start(3, "--comm", "nccl", "--odd", 1, what)
    lost = processes.pop(1)
    try:
        results = finish(processes)
    finally:
        lost.kill()
        lost.communicate()
    for rank, (code, _, stderr) in zip((0, 2), results, strict=True):
        assert code == 1 and len(errors(stderr)) == 1, results
        assert f"rank {rank} of 3: all-reduce (sum) of 1000 f32 (4000 bytes) at o_proj" in stderr
        assert "rank 1" in stderr or what == "stop"
    if what == "die":  # a closed socket says so at once
        assert all("rank 1 has ended" in stderr for _, _, stderr in results)


@pytest.mark.parametrize(
    "address, message",
    [("no.such.host.invalid", "MASTER_ADDR: found \"no.such.host.invalid\""), ("127.0.0.9", "waiting for rank 0 at 127.0.0.9")],
)
def test_wrong_master_address(address, message):
    # Rank 0 listens where it is; the other looks elsewhere, where nobody is.
    port = {"MASTER_PORT": 1} if address == "127.0.0.9" else {}
    results = finish(start(2, "--comm", "nccl", "sums", each=lambda rank: {"MASTER_ADDR": address} | port if rank else {}))
    assert all(code == 1 and len(errors(stderr)) == 1 for code, _, stderr in results), results
    assert "waiting for rank 1 to connect to port" in results[0][2]
    assert message in results[1][2], results[1][2]


def test_ranks_of_another_job():
    results = finish(start(2, "--comm", "nccl", "sums", each=lambda rank: {"WORLD_SIZE": 2 + rank}))
    assert all(code == 1 and "rank 1 of 3 connected to rank 0 of 2" in stderr for code, _, stderr in results), results


def test_no_nccl_or_an_old_one(tmp_path):
    results = finish(start(2, "--comm", "nccl", "sums", **no_library(tmp_path, "libnccl.so.2")))
    assert all(code == 1 and "no NCCL: libnccl.so.2 cannot be opened" in stderr for code, _, stderr in results), results
    results = finish(start(2, "--comm", "nccl", "sums", FAKE_NCCL_VERSION=21403))
    assert all(code == 1 and "found version 2.14.3, expected 2.18 or later" in stderr for code, _, stderr in results), results
