"""Credentials sealed by the site's munged, through libmunge, in place of a key (AuthType=auth/munge).

Blocks while munged answers: call it from a thread. Source: munge(3), munge_ctx(3).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading

from spritz.model.errors import SpritzError

_SUCCESS, _OPTION_SOCKET = 0, 8

#: prefix of every munge credential
PREFIX = b"MUNGE:"


class MungeError(SpritzError):
    """munged refused, or cannot be reached."""


class Munge:
    """A client of munged at `socket`, "" for the default one. Raises MungeError if there is no libmunge."""

    def __init__(self, socket: str = "") -> None:
        name = ctypes.util.find_library("munge") or "libmunge.so.2"
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            raise MungeError(
                f"AuthType=auth/munge needs libmunge: {error}", hint="Debian: libmunge2; Red Hat: munge-libs"
            ) from error
        library.munge_ctx_create.restype = ctypes.c_void_p
        library.munge_ctx_strerror.restype = ctypes.c_char_p
        library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
        library.munge_ctx_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
        self._library = library
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._context = ctypes.c_void_p(library.munge_ctx_create())
        if socket:
            library.munge_ctx_set(self._context, _OPTION_SOCKET, socket.encode())
        self._lock = threading.Lock()  # a context is not thread-safe

    def encode(self, payload: bytes) -> bytes:
        """A credential of this process's user. Raises MungeError."""
        credential = ctypes.c_void_p()
        with self._lock:
            result = self._library.munge_encode(
                ctypes.byref(credential), self._context, payload, ctypes.c_int(len(payload))
            )
            self._check("encode", result)
        try:
            return ctypes.string_at(credential.value or 0)
        finally:
            self._free(credential)

    def decode(self, credential: bytes) -> tuple[bytes, int]:
        """The credential's content, and the uid of its creator. Raises MungeError: forged, expired, replayed …"""
        buffer, size = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        try:
            with self._lock:
                result = self._library.munge_decode(
                    credential + b"\0",
                    self._context,
                    ctypes.byref(buffer),
                    ctypes.byref(size),
                    ctypes.byref(uid),
                    ctypes.byref(gid),
                )
                self._check("decode", result)
            return ctypes.string_at(buffer.value or 0, size.value), uid.value
        finally:
            if buffer.value:
                self._free(buffer)

    def _check(self, what: str, result: int) -> None:
        """Raises MungeError in the words of the last call; the caller holds the lock."""
        if result != _SUCCESS:
            text: bytes = self._library.munge_ctx_strerror(self._context)
            raise MungeError(f"Munge {what} failed: {text.decode()}", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR")
