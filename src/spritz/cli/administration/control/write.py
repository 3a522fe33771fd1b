"""`write batch_script JOB [FILE|-]` and `write config [FILE]`. Source: scontrol(1) write."""

from __future__ import annotations

import os
from time import localtime, strftime
from typing import TYPE_CHECKING

from spritz.cli.administration.control.jobs import target_of
from spritz.client.errors import RemoteError
from spritz.client.locate import locate_controller
from spritz.config.load import load
from spritz.config.render import whole
from spritz.model.errors import ESLURM
from spritz.model.queries.jobs import GetScript, Script
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def run(session: Session, words: list[str]) -> int:
    """`scontrol write batch_script|config …`. Returns the exit status."""
    what, *operands = words
    if len(what) >= 5 and "batch_script".startswith(what.lower()):
        return batch_script(session, operands)
    if len(what) >= 3 and "config".startswith(what.lower()):
        return write_config(session, operands)
    session.say(f"invalid write argument:{what}")
    return 1


def batch_script(session: Session, words: list[str]) -> int:
    """Into `slurm-JOB.sh`, the file named, or with `-` to standard output. As in Slurm, a refusal is printed but is no
    failure.
    """
    if not words:
        session.say("too few arguments for keyword:write batch_script")
        return 1
    target = target_of(words[0])
    problem = ESLURM["ESLURM_INVALID_JOB_ID"][1]
    answer = None
    if target is not None:
        try:
            answer = session.call(GetScript(job_id=target.job_id), Script)
        except RemoteError as error:
            problem = error.message
    if answer is None:
        session.say(f"job script retrieval failed: {problem}")
        return 0
    path = words[1] if len(words) > 1 else f"slurm-{words[0]}.sh"
    if path == "-":
        _print(session, answer.script)
        return 0
    if not _save(session, path, answer.script):
        return 1
    if not session.quiet:
        session.out(f"batch script for job {words[0]} written to {path}\n")
    return 0


def _print(session: Session, script: bytes) -> None:
    """Byte for byte where standard output is a file."""
    raw = getattr(session.context.stdout, "buffer", None)
    if raw is None:
        session.out(script.decode("utf-8", "surrogateescape"))
    else:
        session.context.stdout.flush()
        raw.write(script)
        raw.flush()
    if not script.endswith(b"\n"):
        session.out("\n")


def _save(session: Session, path: str, content: bytes) -> bool:
    """Written whole or not at all; only its owner may read it."""
    path = os.path.join(session.context.cwd, path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        session.context.error(f"failed to create file `{path}`: {error.strerror}")
        return False
    return True


def write_config(session: Session, words: list[str]) -> int:
    """The configuration in force, as `show config` knows it, into FILE.<time> or slurm.conf.<time> next to the one in
    use."""
    path = locate_controller().path
    if not path:
        session.context.error("there is no slurm.conf to write")
        return 1
    loaded = load(path)

    stamp = strftime("%Y%m%d%H%M%S", localtime(SystemClock().now()))
    target = f"{words[0] if words else path}.{stamp}"
    text = whole(loaded)
    if not _save(session, target, text.encode("utf-8", "surrogateescape")):
        return 1
    session.out(f"Slurm config saved to {target}\n")
    return 0
