"""Devices denied by a program in the kernel; the harmless /dev/full and /dev/zero stand for GPUs.

Source: cgroups(7), bpf(2).
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.stepd.resources.devicefilter import attach, program

FULL, ZERO = "c 1:7", "c 1:5"


def answer(code: bytes, kind: int, major: int, minor: int, access: int = 2) -> int:
    """What the program answers, by a reading of its instructions of the test's own. Source: RFC 9669."""
    context = struct.pack("=III", access << 16 | kind, major, minor)
    registers = [0] * 11
    at = 0
    while True:
        operation, both, offset, value = struct.unpack_from("=BBhi", code, at * 8)
        to = both & 15
        at += 1
        if operation == 0x61:
            registers[to] = struct.unpack_from("=I", context, offset)[0]
        elif operation == 0x57:
            registers[to] &= value
        elif operation == 0xB7:
            registers[to] = value
        elif operation == 0x55:
            at += offset if registers[to] != value else 0
        elif operation == 0x95:
            return registers[0]
        else:
            pytest.fail(f"unknown operation {operation:#x}")


def test_a_program_denies_what_it_names_and_nothing_else() -> None:
    code = program(["c 195:0", "c 195:1", "b 8:0"])
    denied = {(2, 195, 0), (2, 195, 1), (1, 8, 0)}
    for kind in (1, 2):
        for major in (8, 195):
            for minor in (0, 1, 2):
                for access in (1, 2, 4, 6):
                    assert answer(code, kind, major, minor, access) == ((kind, major, minor) not in denied)


def test_a_program_without_devices_denies_none() -> None:
    assert answer(program(()), 2, 195, 0) == 1


@pytest.fixture
def group() -> Iterator[str]:
    """A version 2 cgroup of the test's own; skips where there may be none, or the kernel takes no program."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    where = next((words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"), "")
    path = f"{where}/spritz_test_{os.getpid()}"
    try:
        os.mkdir(path)
    except OSError as error:
        pytest.skip(f"no cgroup of version 2 may be made here: {error}")
    try:
        try:
            os.close(attach(path, ()))
        except OSError as error:
            pytest.skip(f"the kernel takes no program: {error}")
        yield path
    finally:
        os.rmdir(path)


def opened(group: str) -> list[str]:
    """Which of the two devices a process in the group can open."""
    script = f"echo $$ > {group}/cgroup.procs; for one in full zero; do (: </dev/$one) 2>/dev/null && echo $one; done"
    return subprocess.run(["/bin/sh", "-c", f"{script}; true"], capture_output=True, text=True).stdout.split()


def test_the_kernel_keeps_processes_from_devices(group: str) -> None:
    assert opened(group) == ["full", "zero"]
    first = attach(group, [ZERO])
    assert opened(group) == ["full"]
    second = attach(group, [FULL], first)
    assert opened(group) == ["zero"]
    third = attach(group, [FULL, ZERO], second)
    os.close(third)  # as when the supervisor dies
    assert opened(group) == []
