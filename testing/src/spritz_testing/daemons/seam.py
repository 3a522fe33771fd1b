"""Every name of the production code that a simulation replaces, in one table.

Names are replaced wherever a module of Spritz has them, so `from time import monotonic` is found like `import time`.
What is not in the table runs as it is. `installed(world)` is meant for a process of its own: it never puts back what
other threads may still use.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import importlib
import pkgutil
import pwd
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.client.trust import same_machine
from spritz.controller import clock_changes, forked
from spritz.runtime import directory, garbage_collection, log, privilege, programs, randomness, sockets, watchdog
from spritz.wire import bounded
from spritz_testing.daemons.system import executors, identity, machine, network, threads

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import World


class _Signals:
    """Stands for the module `signal`: dispositions are of the real process, and stay; all else is the real module's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    @staticmethod
    def signal(number: int, handler: Any) -> Any:
        return signal.SIG_DFL


def replacements() -> list[tuple[object, object]]:
    """What stands for what."""
    table: list[tuple[object, object]] = [
        (time, threads.Time),
        (time.time, threads.now),  # noqa: TID251 - this is what stands for it
        (time.monotonic, threads.monotonic),
        (time.perf_counter, threads.monotonic),
        (time.sleep, threads.sleep),
        (threading, threads.Threading),
        (threading.Thread, threads.Thread),
        (threading.Event, threads.Event),
        (threading.Lock, threads.Lock),
        (threading.RLock, threads.RLock),
        (threading.Condition, threads.Condition),
        (queue, threads.Queue),
        (queue.SimpleQueue, threads.SimpleQueue),
        (concurrent.futures.ThreadPoolExecutor, executors.ThreadPoolExecutor),
        (signal, _Signals()),
        (gc, machine.NoCollector()),
        (sockets.unix_socket, network.unix_socket),
        (sockets.tcp_socket, network.tcp_socket),
        (sockets.listen, network.listen),
        (sockets.connect_unix, network.connect_unix),
        (sockets.connect_tcp, network.connect_tcp),
        (same_machine.is_own_address, lambda family, address: True),
        (same_machine.is_here, lambda hosts: True),
        (clock_changes.watch_clock, machine.watch_clock),
        (forked.Child, machine.Child),
        (forked.wait_for_go, machine.wait_for_go),
        (watchdog.Watchdog, machine.NoWatchdog),
        (garbage_collection.tame, lambda: None),
        (garbage_collection.keep_sweeping, machine.never),
        (log.get_logger, machine.get_logger),
        (programs.run_programs, machine.run_programs),
        (randomness.SystemRandomness, machine.Randomness),
        (pwd, machine.Passwd),
        (pwd.getpwnam, machine.getpwnam),
        (pwd.getpwuid, machine.getpwuid),
        (privilege.lookup_user, machine.lookup_user),
        (directory.person_of, machine.person_of),
        (directory.user_name_of, machine.user_name_of),
        (directory.uid_of, machine.uid_of),
        (directory.group_name_of, machine.group_name_of),
        (directory.gid_of, machine.gid_of),
    ]
    for more in MORE:
        table += more()
    return table


#: Further parts of the table: of node daemons, databases (functions, since they import these).
MORE: list[Callable[[], list[tuple[object, object]]]] = []

#: Names of single modules and classes: (module, name, replacement). For what other modules keep, as `os`.
NAMES: list[Callable[[], Sequence[tuple[ModuleType | type[Any], str, object]]]] = []


def rebound(function: Callable[..., Any], **names: object) -> Callable[..., Any]:
    """The same function with other global names."""
    assert isinstance(function, FunctionType), "written in Python"
    made = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


#: Packages whose code may run in a simulation.
_PACKAGES: tuple[str, ...] = (
    *("accounting", "client", "config", "controller", "core", "model", "node", "notation", "plugins"),
    *("presentation", "runtime", "scheduling", "stepd", "wire"),
)


@functools.cache
def load_all() -> None:
    """Import every module that may run: one that is imported later would find the real names."""
    for package in _PACKAGES:
        parent = importlib.import_module(f"spritz.{package}")
        for module in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
            if ".migrations." in module.name or module.name.endswith(".__main__"):
                continue  # these act when they are imported
            with contextlib.suppress(ImportError):  # of an extra that is not installed: it cannot run either
                importlib.import_module(module.name)
    _make_checkers()


def _make_checkers() -> None:
    """Make what daemons check requests with, which they make once: each run is a new process, and would do it again."""
    for name in [name for name in sys.modules if name.startswith("spritz.model.")]:
        for kind in list(vars(sys.modules[name]).values()):
            if isinstance(kind, type) and issubclass(kind, Struct) and kind.__module__ == name:
                with contextlib.suppress(RecursionError):  # records that contain themselves are in no request
                    bounded.checker(kind)


def install(world: World) -> None:
    """Replace all of it in every module of Spritz that is loaded; this world is the one that runs."""
    load_all()
    identity.number_all()
    threads.use(world)
    world.new_pool = executors.ThreadPoolExecutor
    by_id = {id(original): replacement for original, replacement in replacements()}
    keep = [original for original, _ in replacements()]  # their ids stay theirs
    for name, module in list(sys.modules.items()):
        if name.startswith("spritz.") and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                replacement = by_id.get(id(value))
                if replacement is not None:
                    setattr(module, attribute, replacement)
    # Some functions import it when they are called.
    pwd.getpwnam, pwd.getpwuid = machine.getpwnam, machine.getpwuid  # type: ignore[assignment]
    del keep
    for names in NAMES:
        for owner, attribute, replacement in names():
            setattr(owner, attribute, replacement)
