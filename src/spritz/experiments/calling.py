"""A Python function as a run: the call's file, its execution in the job, and its result.

`call.pkl` in the run's directory has the module search path, then the function and its arguments (cloudpickle). Each
rank atomically writes `result-RANK.pkl`: how it ended, then the value or the exception. Each file consists of two
pickles, so that the first is readable even if the second is not.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import lives
from spritz.extras import pip_install

CALL = "call.pkl"
#: Bytes of a call that are searched for secrets; beyond that, it is data.
_SEARCHED_BYTES = 16 << 20
_DEPTH = 6


class RemoteTraceback(Exception):
    """The cause of an exception from a job: the traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class CallFailed(ExperimentError):
    """The job raised an exception that cannot be unpickled here; the message is the exception's text."""


@dataclass(frozen=True)
class Outcome:
    """The end of one rank: its pickled result or exception, with the text for a process that cannot unpickle it."""

    ok: bool
    ranks: int
    #: type and message of the exception, and its traceback in the job
    message: str
    traceback: str
    payload: bytes

    def value(self) -> Any:
        """The return value. Raises the function's exception, or CallFailed."""
        if self.ok:
            try:
                return pickle.loads(self.payload)
            except Exception as error:
                raise CallFailed(f"the result cannot be read here: {error}") from error
        cause = RemoteTraceback(self.traceback)
        try:
            raised = pickle.loads(self.payload) if self.payload else None
        except Exception:
            raised = None
        if isinstance(raised, BaseException) and not isinstance(raised, SystemExit | KeyboardInterrupt):
            raise raised from cause
        raise CallFailed(self.message) from cause


def dumps(value: Any, what: str) -> bytes:
    """Pickle a value, with the code of functions and classes of __main__. Raises ExperimentError naming the part that
    cannot be pickled.
    """
    cloudpickle = _cloudpickle()
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        place, part = _unpicklable(value, what, _DEPTH)
        raise ExperimentError(
            f"{place} cannot be pickled: {type(part).__module__}.{type(part).__qualname__} ({error})",
            hint="make it inside the function, or pass what it is made from (a path, a name, a number)",
        ) from error
    return data


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError as error:
        raise ExperimentError(
            f"Python functions as jobs need cloudpickle, which {sys.executable} does not have",
            hint=pip_install("experiments"),
        ) from error
    return cloudpickle


def _unpicklable(value: Any, where: str, depth: int) -> tuple[str, Any]:
    """(path to the innermost part that cannot be pickled, that part)."""
    if depth:
        for name, part in _parts(value, where):
            try:
                _cloudpickle().dumps(part)
            except Exception:
                return _unpicklable(part, name, depth - 1)
    return where, value


def _parts(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{where}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{where}[{place}]", part) for place, part in enumerate(value))
    elif hasattr(value, "__code__"):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        yield from ((f"variable {name} of {where}", cell.cell_contents) for name, cell in cells)
        names = [name for name in value.__code__.co_names if name in value.__globals__]
        yield from ((f"global variable {name} of {where}", value.__globals__[name]) for name in names)
        yield from ((f"a default of {where}", part) for part in value.__defaults__ or ())
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f"{where}.{name}", part) for name, part in vars(value).items())


def written(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], *, root: str) -> bytes:
    """The content of `call.pkl`; `root`: base of the snapshot's paths, "" without a snapshot.

    Raises ExperimentError for values that cannot be pickled, and for secrets, which must not be written to files.
    """
    label = name_of(function)
    head = pickle.dumps({"path": sys.path, "root": root})
    try:
        body: bytes = _cloudpickle().dumps((function, tuple(arguments), dict(named)))
    except ExperimentError:
        raise
    except Exception:
        # Pickle each part again, to name the one that fails.
        dumps(function, f"function {label}")
        for place, value in enumerate(arguments):
            dumps(value, f"argument {place + 1} of {label}")
        for name, value in named.items():
            dumps(value, f"argument {name} of {label}")
        raise
    for name, value in named.items():
        if secrets.is_secret_name(name) and isinstance(value, str) and value:
            raise _secret(f"argument {name} of {label}")
    text = body[:_SEARCHED_BYTES].decode("ascii", "replace")
    if secrets.masked_text(text) != text or any(known in text for known in secrets.secret_values(os.environ)):
        raise _secret(f"what is passed to {label}")
    return head + body


def _secret(what: str) -> ExperimentError:
    return ExperimentError(
        f"{what} holds a secret, which would be written to disk",
        hint="the job has the variables of this process: read it from os.environ inside the function",
    )


def name_of(function: Callable[..., Any]) -> str:
    """The function's qualified name, for messages."""
    inner = getattr(function, "func", function)
    name = str(getattr(inner, "__qualname__", type(inner).__qualname__))
    return "lambda" if "<lambda>" in name else name.rpartition(".")[2]


def read(directory: Path, rank: int = 0) -> Outcome | None:
    """How the rank ended; None if it has not."""
    try:
        data = (directory / f"result-{rank}.pkl").read_bytes()
    except FileNotFoundError:
        return None
    stream = io.BytesIO(data)
    head = pickle.load(stream)
    return Outcome(head["ok"], head["ranks"], head["message"], head["traceback"], stream.read())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old or the new content, and sync it to disk."""
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def succeeded(payload: bytes) -> bytes:
    """The content of the result file of a successful call. `payload`: the pickled value."""
    ranks = int(os.environ.get("SLURM_NTASKS") or 1)
    head: bytes = pickle.dumps({"ok": True, "ranks": ranks, "message": "", "traceback": ""})
    return head + payload


def failed(error: BaseException) -> bytes:
    """The content of the result file of a failed call. Masks secrets of the environment in its text."""
    known = secrets.secret_values(os.environ)
    words = secrets.without(secrets.masked_text("".join(traceback.format_exception(error))), known)
    message = secrets.without(secrets.masked_text(f"{type(error).__name__}: {error}"), known)
    try:
        payload: bytes = _cloudpickle().dumps(error.with_traceback(None))
        pickle.loads(payload)
        if any(secret.encode() in payload for secret in known):
            payload = b""
    except Exception:
        payload = b""
    ranks = int(os.environ.get("SLURM_NTASKS") or 1)
    return pickle.dumps({"ok": False, "ranks": ranks, "message": message, "traceback": words}) + payload


def use_path(path: Sequence[str], root: str, code: Path) -> None:
    """Set the module search path to the submitter's, with the snapshot's checkout in place of the working tree."""
    for entry in reversed(path):
        place = entry
        if root and (entry == root or entry.startswith(root + os.sep)):
            inside = code / os.path.relpath(entry, root)
            place = str(inside) if inside.exists() else entry
        if place and place not in sys.path:
            sys.path.insert(0, place)
    if "" in path:
        sys.path.insert(0, os.getcwd())


def main() -> int:
    """Run the call in this job's directory. Returns the exit code."""
    directory = Path(os.environ["SPRITZ_RUN_DIR"])
    rank = int(os.environ.get("SLURM_PROCID") or 0)
    target = directory / f"result-{rank}.pkl"
    earlier = read(directory, rank)
    if earlier is not None and earlier.ok:
        return 0  # the job was requeued after the call had ended
    try:
        with (directory / CALL).open("rb") as file:
            head = pickle.load(file)
            use_path(head["path"], head["root"], directory / "code")
            function, arguments, named = pickle.load(file)
        value = function(*arguments, **named)
        payload = dumps(value, f"the result of {name_of(function)}")
    except BaseException as error:
        traceback.print_exc()
        if not lives.newer():
            write_whole(target, failed(error))
        return 1
    if lives.newer():
        return 1  # the result is that of the newer start
    write_whole(target, succeeded(payload))
    return 0


if __name__ == "__main__":
    sys.exit(main())
