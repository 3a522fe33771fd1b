"""libpmix by ctypes: the library itself, its numbers, and the types of functions that go to and fro.

Source: the PMIx standard 4.1; pmix_common.h, pmix_server.h.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_void_p

from spritz.stepd.pmix.values import BOOL, INT, Info

#: the name that Linux distributions install it by, since version 2
NAME = "libpmix.so.2"

SUCCESS = 0
ERROR = -1
ERR_TIMEOUT = -24
ERR_NOT_FOUND = -46
ERR_NOT_SUPPORTED = -47
ERR_PARTIAL_SUCCESS = -52
ERR_DUPLICATE_KEY = -53
ERR_LOST_CONNECTION = -61
_OPERATION_SUCCEEDED = -157
EVENT_ACTION_COMPLETE = -334
#: all ranks of a namespace
WILDCARD = 0xFFFFFFFE
LOCAL_NODE = 0xFFFFFFFD

Pointer = c_void_p
OpDone = ctypes.CFUNCTYPE(None, c_int, Pointer)
Release = ctypes.CFUNCTYPE(None, Pointer)
ModexDone = ctypes.CFUNCTYPE(None, c_int, Pointer, c_size_t, Pointer, Release, Pointer)
ModexData = ctypes.CFUNCTYPE(None, c_int, Pointer, c_size_t, Pointer)
Abort = ctypes.CFUNCTYPE(c_int, Pointer, Pointer, c_int, c_char_p, Pointer, c_size_t, Pointer, Pointer)
Fence = ctypes.CFUNCTYPE(c_int, Pointer, c_size_t, Pointer, c_size_t, Pointer, c_size_t, Pointer, Pointer)
Fetch = ctypes.CFUNCTYPE(c_int, Pointer, Pointer, c_size_t, Pointer, Pointer)
Control = ctypes.CFUNCTYPE(c_int, Pointer, Pointer, c_size_t, Pointer, c_size_t, Pointer, Pointer)
Connect = ctypes.CFUNCTYPE(c_int, Pointer, c_size_t, Pointer, c_size_t, Pointer, Pointer)
Publish = ctypes.CFUNCTYPE(c_int, Pointer, Pointer, c_size_t, Pointer, Pointer)
Lookup = ctypes.CFUNCTYPE(c_int, Pointer, Pointer, Pointer, c_size_t, Pointer, Pointer)
LookupDone = ctypes.CFUNCTYPE(None, c_int, Pointer, c_size_t, Pointer)
EventDone = ctypes.CFUNCTYPE(None, c_int, Pointer, c_size_t, Pointer, Pointer, Pointer)
Event = ctypes.CFUNCTYPE(None, c_size_t, c_int, Pointer, Pointer, c_size_t, Pointer, c_size_t, Pointer, Pointer)


_FUNCTIONS = """
    client_connected client_finalized abort fence_nb direct_modex publish lookup unpublish spawn connect disconnect
    register_events deregister_events listener notify_event query tool_connected log allocate job_control monitor
    get_credential validate_credential iof_pull push_stdin group fabric client_connected2
"""


class Module(ctypes.Structure):
    """The functions that the host offers, in the order of version 4 and later; null: not offered."""

    _fields_ = tuple((name, Pointer) for name in _FUNCTIONS.split())


def strings(address: int | None) -> tuple[bytes, ...]:
    """The strings of a `char **` that ends with NULL; () for a null address."""
    if not address:
        return ()
    array = ctypes.cast(address, ctypes.POINTER(c_char_p))
    texts: list[bytes] = []
    while (text := array[len(texts)]) is not None:
        texts.append(text)
    return tuple(texts)


def options(address: int | None, count: int) -> dict[bytes, int | bool]:
    """The options that are plain numbers or booleans."""
    values: dict[bytes, int | bool] = {}
    for info in (Info * count).from_address(address) if address else ():
        first: int = info.value.data[0]
        if info.value.type == BOOL:
            values[info.key] = first & 0xFF != 0
        elif info.value.type == INT:
            values[info.key] = c_int(first & 0xFFFFFFFF).value
    return values


class PmixError(Exception):
    """The library is not there, or refuses."""


def load() -> ctypes.CDLL:
    """libpmix, opened for the whole process. Raises PmixError if the machine has none."""
    try:
        # Its components, loaded later, take its symbols from the global table.
        return ctypes.CDLL(NAME, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise PmixError(f"can not load PMIx library: {error}") from error


def version(library: ctypes.CDLL) -> int:
    """The first part of its version: 4. 0 if it does not say."""
    ask = library.PMIx_Get_version
    ask.restype = c_char_p
    words: list[bytes] = (ask() or b"").replace(b",", b" ").split()
    heads = [word.partition(b".")[0] for word in words]
    return next((int(head) for head in heads if head.isdigit()), 0)


def check(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Call a function of the library. Raises PmixError where it fails."""
    status: int = getattr(library, name)(*arguments)
    if status < 0 and status != _OPERATION_SUCCEEDED:
        explain = library.PMIx_Error_string
        explain.restype = c_char_p
        raise PmixError(f"{name}: {(explain(c_int(status)) or b'?').decode()} ({status})")
