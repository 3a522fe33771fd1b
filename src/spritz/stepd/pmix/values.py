"""Values as libpmix has them in memory, from version 3 to 5: facts about a job, and what clients publish.

Source: pmix_common.h (`pmix_info_t`, `pmix_value_t`, `pmix_data_array_t`).
"""

from __future__ import annotations

import ctypes
from struct import Struct as Layout
from struct import pack

NAMESPACE_BYTES = 256
_KEY_BYTES = 512

#: numbers of types
BOOL, STRING, INT, UINT16, UINT32, VALUE, INFO, DATA_ARRAY, PROC_RANK = 1, 3, 6, 13, 14, 21, 24, 39, 40
#: key, flags, type, and the union of values, whose longest member has three words
_INFO = Layout(f"={_KEY_BYTES}sI4xH6x24s")
_FORMATS = {BOOL: "@?", INT: "@i", UINT16: "@H", UINT32: "@I", PROC_RANK: "@I"}
_ARRAY = Layout("@HNP")


class Proc(ctypes.Structure):
    """A process: name of its namespace, rank."""

    _fields_ = (("namespace", ctypes.c_char * NAMESPACE_BYTES), ("rank", ctypes.c_uint32))

    namespace: bytes
    rank: int


class Value(ctypes.Structure):
    """pmix_value_t: a type, and three words whose meaning depends on it."""

    _fields_ = (("type", ctypes.c_uint16), ("data", ctypes.c_uint64 * 3))

    type: int
    data: ctypes.Array[ctypes.c_uint64]


class Info(ctypes.Structure):
    """pmix_info_t: a key and its value."""

    _fields_ = (("key", ctypes.c_char * _KEY_BYTES), ("flags", ctypes.c_uint32), ("value", Value))

    key: bytes
    value: Value


class Published(ctypes.Structure):
    """pmix_pdata_t: a key and value, and the process that published it."""

    _fields_ = (("proc", Proc), ("key", ctypes.c_char * _KEY_BYTES), ("value", Value))

    proc: Proc
    key: bytes
    value: Value


class DataBuffer(ctypes.Structure):
    """Bytes in which the library packs values, and from which it unpacks them."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("pack_at", ctypes.c_void_p),
        ("unpack_at", ctypes.c_void_p),
        ("allocated", ctypes.c_size_t),
        ("used", ctypes.c_size_t),
    )

    base: int | None
    used: int


class Infos:
    """An array of key and value, made one by one; `address` is valid as long as this is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._kept: list[object] = []

    def __len__(self) -> int:
        return len(self._parts)

    def number(self, key: str, value: int, kind: int = UINT32) -> None:
        """Add an integer of this PMIx type."""
        self._add(key, kind, pack(_FORMATS[kind], value))

    def text(self, key: str, value: bytes | str) -> None:
        """Add a string, whose buffer this object keeps alive."""
        buffer = ctypes.create_string_buffer(value if isinstance(value, bytes) else value.encode())
        self._kept.append(buffer)
        self._add(key, STRING, pack("@P", ctypes.addressof(buffer)))

    def array(self, key: str, infos: Infos) -> None:
        """An array of keys and values in turn."""
        buffer = ctypes.create_string_buffer(_ARRAY.pack(INFO, len(infos), infos.address))
        self._kept += (infos, buffer)
        self._add(key, DATA_ARRAY, pack("@P", ctypes.addressof(buffer)))

    @property
    def address(self) -> int:
        """Where the array lies; nothing may be added afterwards."""
        buffer = ctypes.create_string_buffer(b"".join(self._parts))
        self._kept.append(buffer)
        return ctypes.addressof(buffer)

    def _add(self, key: str, kind: int, data: bytes) -> None:
        self._parts.append(_INFO.pack(key.encode(), 0, kind, data))
