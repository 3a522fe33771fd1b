"""Runs the library as server of one namespace, and handles its requests.

The library calls back on threads of its own; what it asks is copied there and handed to `Host.post`, to be done by the
process's main thread, which answers by the given `reply`.

Source: the PMIx standard 4.1, chapter "Server-Specific Interfaces"; pmix_server.h.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_uint16, c_uint32
from typing import TYPE_CHECKING

from spritz.stepd import protocol
from spritz.stepd.pmix import messages
from spritz.stepd.pmix.binding import (
    ERR_LOST_CONNECTION,
    ERR_NOT_FOUND,
    ERR_NOT_SUPPORTED,
    ERROR,
    EVENT_ACTION_COMPLETE,
    LOCAL_NODE,
    SUCCESS,
    WILDCARD,
    Abort,
    Connect,
    Control,
    Event,
    EventDone,
    Fence,
    Fetch,
    Lookup,
    LookupDone,
    ModexData,
    ModexDone,
    Module,
    OpDone,
    PmixError,
    Pointer,
    Publish,
    Release,
    check,
    load,
    options,
    strings,
)
from spritz.stepd.pmix.job import job_infos
from spritz.stepd.pmix.values import VALUE, DataBuffer, Info, Infos, Proc, Published, Value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from spritz.stepd.spec import Identity, Pmix

    #: ends a request: status, data
    Reply = Callable[[int, bytes], None]

    class Host(Protocol):
        """The functions that answer the library. All but `post` are called by the thread that does the posted work."""

        def post(self, call: Callable[[], None]) -> None:
            """Have this done soon, by the main thread."""

        def collect(self, kind: bytes, ranks: tuple[int, ...], data: bytes, reply: Reply) -> None:
            """The tasks of these ranks on this node have reached the fence: end it with the data of all tasks once all
            have.
            """

        def fetch(self, rank: int, reply: Reply) -> None:
            """The data that a task of another node has put."""

        def publish(self, rank: int, entries: tuple[tuple[bytes, bytes], ...], reply: Reply) -> None:
            """Keep what a task publishes: (key, packed value)."""

        def look_up(self, keys: tuple[bytes, ...], wait: int, seconds: int, reply: Reply) -> None:
            """The data published by these keys, as `messages` encodes it: now, or when there are `wait` of them, for
            which `seconds` are given (0: any time).
            """

        def unpublish(self, rank: int, keys: tuple[bytes, ...], reply: Reply) -> None:
            """Forget what a task has published: these, or all."""

        def abort(self, rank: int, status: int) -> None:
            """A task wants the step ended."""

        def lost(self, rank: int) -> None:
            """A task ended without announcing it."""


#: the prefix of the keys of options; other keys are the user's
_OPTION = b"pmix."


class Server:
    """The library as server of the tasks of one step on one node. Each method raises PmixError where it refuses."""

    def __init__(self, about: Pmix, directory: str, host: Host) -> None:
        self._about = about
        self._directory = directory
        self._host = host
        self._library = load()
        #: objects that the library calls or reads, which must not be collected
        self._kept: list[object] = []
        #: data of answers that the library still reads, by number
        self._lent: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._lent_count = 0
        self._released = Release(self._release)

    def start(self, identity: Identity) -> None:
        """Begin to serve: from now on tasks may connect."""
        infos = Infos()
        infos.text("pmix.srvr.tmpdir", self._directory)
        infos.text("pmix.sys.tmpdir", self._directory)
        infos.text("pmix.hname", self._about.nodes[self._about.node])
        module = self._module()
        self._kept += (infos, module)
        check(self._library, "PMIx_server_init", ctypes.byref(module), Pointer(infos.address), c_size_t(len(infos)))
        self._watch_events()
        job = job_infos(self._library, self._about, self._directory)
        self._kept.append(job)
        local = self._about.ranks[self._about.node]
        name = self._about.namespace.encode()
        check(
            self._library,
            "PMIx_server_register_nspace",
            name,
            c_int(len(local)),
            Pointer(job.address),
            c_size_t(len(job)),
            None,
            None,
        )
        for rank in local:
            proc = Proc(name, rank)
            uid, gid = c_uint32(identity.uid), c_uint32(identity.gid)
            check(self._library, "PMIx_server_register_client", ctypes.byref(proc), uid, gid, None, None, None)

    def environment(self, rank: int) -> tuple[bytes, ...]:
        """`NAME=value` of what a task must have to find us."""
        variables = Pointer()
        proc = Proc(self._about.namespace.encode(), rank)
        check(self._library, "PMIx_server_setup_fork", ctypes.byref(proc), ctypes.byref(variables))
        return strings(variables.value)

    def local_data(self, rank: int, reply: Reply) -> None:
        """The data that a task of this node has put, as soon as it has."""

        def answer(status: int, data: int, size: int, _token: int) -> None:
            copied = ctypes.string_at(data, size) if data and size else b""

            def call() -> None:
                self._kept.remove(callback)
                reply(status, copied)

            self._host.post(call)

        callback = ModexData(answer)
        self._kept.append(callback)
        proc = Proc(self._about.namespace.encode(), rank)
        try:
            check(self._library, "PMIx_server_dmodex_request", ctypes.byref(proc), callback, None)
        except PmixError:
            self._kept.remove(callback)
            reply(ERR_NOT_FOUND, b"")

    def finish(self) -> None:
        """Serve no more, and remove what tasks have left for us to remove."""
        self._library.PMIx_server_deregister_nspace(self._about.namespace.encode(), None, None)
        check(self._library, "PMIx_server_finalize")

    # -- what it asks

    def _module(self) -> Module:
        module = Module()
        callbacks = {
            "abort": Abort(self._on_abort),
            "fence_nb": Fence(self._on_fence),
            "direct_modex": Fetch(self._on_fetch),
            "publish": Publish(self._on_publish),
            "lookup": Lookup(self._on_lookup),
            "unpublish": Lookup(self._on_unpublish),
            "connect": Connect(lambda *given: self._on_connect(b"connect", *given)),
            "disconnect": Connect(lambda *given: self._on_connect(b"disconnect", *given)),
            # Files that a task wants removed when it is gone are the library's own matter, if only we have this.
            "job_control": Control(lambda *_: ERR_NOT_SUPPORTED),
        }
        for name, callback in callbacks.items():
            setattr(module, name, ctypes.cast(callback, Pointer))
        self._kept.append(callbacks)
        return module

    def _on_abort(
        self,
        proc: int,
        _object: int,
        status: int,
        _text: bytes,
        _procs: int,
        _count: int,
        done: int,
        token: int,
    ) -> int:
        rank = Proc.from_address(proc).rank

        def call() -> None:
            OpDone(done)(SUCCESS, token)  # it waits for that to exit
            self._host.abort(rank, status)

        self._host.post(call)
        return SUCCESS

    def _on_fence(
        self, procs: int, count: int, _infos: int, _info_count: int, data: int, size: int, done: int, token: int
    ) -> int:
        ranks = self._ranks(procs, count)
        if ranks is None:
            return ERR_NOT_SUPPORTED
        copied = ctypes.string_at(data, size) if data and size else b""
        reply = self._data_reply(done, token)
        self._host.post(lambda: self._host.collect(b"fence", ranks, copied, reply))
        return SUCCESS

    def _on_fetch(self, proc: int, _infos: int, _count: int, done: int, token: int) -> int:
        wanted = Proc.from_address(proc)
        if wanted.namespace != self._about.namespace.encode():
            return ERR_NOT_FOUND
        rank = wanted.rank
        reply = self._data_reply(done, token)
        self._host.post(lambda: self._host.fetch(rank, reply))
        return SUCCESS

    def _on_connect(
        self, kind: bytes, procs: int, count: int, _infos: int, _info_count: int, done: int, token: int
    ) -> int:
        ranks = self._ranks(procs, count)
        if ranks is None:
            return ERR_NOT_SUPPORTED
        self._host.post(lambda: self._host.collect(kind, ranks, b"", lambda status, _: OpDone(done)(status, token)))
        return SUCCESS

    def _on_publish(self, proc: int, infos: int, count: int, done: int, token: int) -> int:
        rank = Proc.from_address(proc).rank

        def call() -> None:  # what is to be published stays where it is until we answer
            try:
                entries = tuple(
                    (info.key, self._packed(info.value))
                    for info in (Info * count).from_address(infos)
                    if not info.key.startswith(_OPTION)
                )
            except PmixError:
                OpDone(done)(ERROR, token)
                return
            self._host.publish(rank, entries, lambda status, _: OpDone(done)(status, token))

        self._host.post(call)
        return SUCCESS

    def _on_lookup(self, _proc: int, keys: int, infos: int, count: int, done: int, token: int) -> int:
        wanted = strings(keys)
        given = options(infos, count)
        wait = given.get(b"pmix.wait", False)
        # A number, 0 for all of them; Open MPI 4 says yes for that.
        needed = 0 if wait is False else len(wanted) if wait is True else wait or len(wanted)

        def reply(status: int, data: bytes) -> None:
            try:
                published = self._unpacked(data) if data else (Published * 0)()
            except (PmixError, protocol.ProtocolError):
                status, published = ERROR, (Published * 0)()
            LookupDone(done)(status, ctypes.addressof(published), len(published), token)

        self._host.post(lambda: self._host.look_up(wanted, needed, given.get(b"pmix.timeout", 0), reply))
        return SUCCESS

    def _on_unpublish(self, proc: int, keys: int, _infos: int, _count: int, done: int, token: int) -> int:
        rank, wanted = Proc.from_address(proc).rank, strings(keys)
        self._host.post(lambda: self._host.unpublish(rank, wanted, lambda status, _: OpDone(done)(status, token)))
        return SUCCESS

    def _packed(self, value: Value) -> bytes:
        """A value of any type in the library's own form."""
        buffer = DataBuffer()
        check(
            self._library, "PMIx_Data_pack", None, ctypes.byref(buffer), ctypes.byref(value), c_int(1), c_uint16(VALUE)
        )
        packed = ctypes.string_at(buffer.base or 0, buffer.used)
        ctypes.CDLL(None).free(Pointer(buffer.base))
        return packed

    def _unpacked(self, data: bytes) -> ctypes.Array[Published]:
        """Inverse of `_packed`, for a list. What it allocates is not given back: a process serves one step."""
        listed = messages.decode_published(data)
        entries = (Published * len(listed))()
        for entry, (rank, key, packed) in zip(entries, listed, strict=True):
            entry.proc.namespace, entry.proc.rank, entry.key = self._about.namespace.encode(), rank, key
            memory = ctypes.create_string_buffer(packed, len(packed))
            base = ctypes.addressof(memory)
            buffer = DataBuffer(base, base + len(packed), base, len(packed), len(packed))
            check(
                self._library,
                "PMIx_Data_unpack",
                None,
                ctypes.byref(buffer),
                ctypes.byref(entry.value),
                ctypes.byref(c_int(1)),
                c_uint16(VALUE),
            )
        return entries

    def _ranks(self, address: int, count: int) -> tuple[int, ...] | None:
        """Ranks of an array of processes; None if some are not of this step."""
        namespace = self._about.namespace.encode()
        ranks: set[int] = set()
        for proc in (Proc * count).from_address(address):
            if proc.namespace != namespace:
                return None
            if proc.rank == LOCAL_NODE:
                ranks.update(self._about.ranks[self._about.node])
            else:
                ranks.add(proc.rank)
        return (WILDCARD,) if WILDCARD in ranks else tuple(sorted(ranks))

    def _data_reply(self, done: int, token: int) -> Reply:
        def reply(status: int, data: bytes) -> None:
            buffer = ctypes.create_string_buffer(data, len(data) or 1)
            self._lent_count += 1
            self._lent[self._lent_count] = buffer
            address = ctypes.addressof(buffer)
            ModexDone(done)(status, address, len(data), token, self._released, self._lent_count)

        return reply

    def _release(self, number: int) -> None:
        self._lent.pop(number, None)

    def _watch_events(self) -> None:
        def happened(
            _id: int, status: int, source: int, _i: int, _n: int, _r: int, _m: int, done: int, token: int
        ) -> None:
            if status == ERR_LOST_CONNECTION:
                rank = Proc.from_address(source).rank
                self._host.post(lambda: self._host.lost(rank))
            if done:
                EventDone(done)(EVENT_ACTION_COMPLETE, None, 0, None, None, token)

        handler = Event(happened)
        self._kept.append(handler)
        check(self._library, "PMIx_Register_event_handler", None, c_size_t(0), None, c_size_t(0), handler, None, None)
