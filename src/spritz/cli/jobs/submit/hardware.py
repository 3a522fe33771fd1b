"""Values of options for hardware that Spritz does not drive: what Slurm would take is taken, with a warning where it
asks for something. Imported only when one is used.

Source: srun(1) and sbatch(1) --accel-bind, --cpu-freq, --gpu-freq, --oom-kill-step, --profile, --send-libs; texts of
Slurm 22.05.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.jobs.submit.refusals import PARSE_STATUS, Fields, Source, invalid, not_built
from spritz.model.errors import SpritzError
from spritz.notation import nodecount
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS = ("low", "medium", "high", "highm1")
_GOVERNORS = ("conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
_PROFILES = ("all", "none", "energy", "task", "filesystem", "lustre", "network")


def _cpu_freq(fields: Fields, text: str, source: Source) -> None:
    """MIN[-MAX[:GOVERNOR]], or a governor."""
    frequencies, colon, governor = text.lower().partition(":")
    words = frequencies.split("-")
    valid = all(word in _LEVELS or word.isdecimal() for word in words) and len(words) <= 2
    if not (valid and (not colon or governor in _GOVERNORS)) and text.lower() not in _GOVERNORS:
        raise SpritzError(
            "Invalid --cpu-freq argument",
            exit_code=PARSE_STATUS,
            details=(f'unrecognized --cpu-freq argument "{shown(text)}"',),
        )


def _gpu_freq(fields: Fields, text: str, source: Source) -> None:
    for word in text.lower().split(","):
        unit, equals, level = word.rpartition("=")
        if word == "verbose" or (unit in ("", "memory") and (level in _LEVELS or level.isdecimal())):
            continue
        which = f"{unit}:{level}" if equals else f"gpu:{word}"
        raise SpritzError(f"Invalid --gpu-freq argument: {shown(which)}", exit_code=PARSE_STATUS)


def _accel_bind(fields: Fields, text: str, source: Source) -> None:
    if not text or set(text) - set("gmnv"):
        raise invalid("accel-bind")


def _burst_buffer_file(fields: Fields, text: str, source: Source) -> None:
    try:
        with open(os.path.join(source.cwd, text), "rb"):
            pass
    except (OSError, ValueError) as error:
        raise SpritzError("Invalid --bbf specification", hint=str(error)) from error


def _profile(fields: Fields, text: str, source: Source) -> None:
    words = text.lower().split(",")
    for word in words:
        if word not in _PROFILES:
            raise SpritzError(f"invalid --profile={shown(text)} option", exit_code=PARSE_STATUS)
    if words != ["none"]:
        source.warn(f"--profile={text} has no effect: profiles are not collected")


def _send_libs(fields: Fields, text: str, source: Source) -> None:
    if text.lower() in ("", "yes"):
        source.warn("--send-libs has no effect: shared libraries are not copied")
    elif text.lower() != "no":
        raise invalid("send-libs")


def _oom_kill_step(fields: Fields, text: str, source: Source) -> None:
    if text not in ("", "0", "1"):
        raise invalid("oom-kill-step")
    if text == "0":
        raise not_built("oom-kill-step=0", "a step is always ended as a whole when memory runs out")


def _number(option: str, minimum: int) -> Callable[[Fields, str, Source], None]:
    def check(fields: Fields, text: str, source: Source) -> None:
        nodecount.parse_count(text, f"--{option}", minimum=minimum)

    return check


SETTERS: dict[str, Callable[[Fields, str, Source], None]] = {
    "accel-bind": _accel_bind,
    "bbf": _burst_buffer_file,
    "core-spec": _number("core-spec", 0),
    "cpu-freq": _cpu_freq,
    "gpu-freq": _gpu_freq,
    "msg-timeout": _number("msg-timeout", 1),
    "oom-kill-step": _oom_kill_step,
    "profile": _profile,
    "send-libs": _send_libs,
    "thread-spec": _number("thread-spec", 1),
}
