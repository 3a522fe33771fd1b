"""An eBPF program that denies devices to the processes of a version 2 cgroup.

Version 2 has no controller `devices`; instead a small eBPF program is asked at every open and mknod of a device, and
answers 1 (allowed, as far as it goes) or 0 (EPERM). Programs of the groups above are asked as well.

Sources: cgroups(7) and the kernel's admin-guide/cgroup-v2 "Device controller"; bpf(2); uapi/linux/bpf.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

#: bpf(2) by machine; those not named have the number of the generic table
_SYSCALL = {"x86_64": 321, "i686": 357, "armv7l": 386, "ppc64le": 361, "s390x": 351}
_GENERIC = 280

_PROG_LOAD, _PROG_ATTACH = 5, 8
_TYPE_CGROUP_DEVICE, _ATTACH_DEVICE = 15, 6
_ALLOW_MULTI, _REPLACE = 2, 4

_LOAD_WORD, _AND, _MOVE, _JUMP_UNLESS, _EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
_KINDS = {"b": 1, "c": 2}


def program(denied: Iterable[str]) -> bytes:
    """The instructions that deny exactly these devices (`c 195:0`) and allow all others."""
    code = [
        _instruction(_LOAD_WORD, to=2, source=1, offset=0),  # r2: what is done << 16 | kind of device
        _instruction(_AND, to=2, value=0xFFFF),
        _instruction(_LOAD_WORD, to=3, source=1, offset=4),  # r3: major
        _instruction(_LOAD_WORD, to=4, source=1, offset=8),  # r4: minor
    ]
    for device in sorted(denied):
        kind, _, numbers = device.partition(" ")
        major, _, minor = numbers.partition(":")
        code += [
            _instruction(_JUMP_UNLESS, to=2, offset=4, value=_KINDS[kind]),
            _instruction(_JUMP_UNLESS, to=3, offset=3, value=int(major)),
            _instruction(_JUMP_UNLESS, to=4, offset=2, value=int(minor)),
            _instruction(_MOVE, to=0, value=0),
            _instruction(_EXIT),
        ]
    return b"".join((*code, _instruction(_MOVE, to=0, value=1), _instruction(_EXIT)))


def _instruction(code: int, *, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def attach(group: str, denied: Iterable[str], replaced: int = -1) -> int:
    """Deny these devices to the group's processes, in place of those that the program `replaced` denied.

    `group` is the directory of a version 2 cgroup. Returns the program's descriptor, for the next call; the kernel
    keeps the program as long as the group. Raises OSError where the kernel or our rights do not allow it.
    """
    loaded = _load(program(denied))
    try:
        target = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = _ALLOW_MULTI | (_REPLACE if replaced >= 0 else 0)
            _bpf(_PROG_ATTACH, struct.pack("=IIIII", target, loaded, _ATTACH_DEVICE, flags, max(replaced, 0)))
        finally:
            os.close(target)
    except OSError:
        os.close(loaded)
        raise
    if replaced >= 0:
        os.close(replaced)
    return loaded


def _load(code: bytes) -> int:
    text, license_ = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    head = (_TYPE_CGROUP_DEVICE, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license_))
    descriptor = _bpf(_PROG_LOAD, struct.pack("=IIQQIIQII16sII", *head, 0, 0, 0, 0, 0, b"spritz_devices", 0, 6))
    os.set_inheritable(descriptor, False)
    return descriptor


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine(), _GENERIC)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    done = int(call(ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
