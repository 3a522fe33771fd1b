"""The actions of keys on jobs and nodes: Slurm's own commands, with the caller's privileges.

An action that destroys work asks for confirmation; an action that needs a value asks for it. Both show the command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct


class Action(Struct, frozen=True):
    """The action of a key. `words(targets, value)` returns the command; the user types `value` after the prompt `asks`.

    `confirms`: ask yes or no first. `of`: "job" or "node".
    """

    key: str
    name: str
    of: str
    words: Callable[[Sequence[str], str], list[str]]
    confirms: bool = False
    asks: str = ""


def _list(targets: Sequence[str]) -> str:
    return ",".join(targets)


ACTIONS = (
    Action("c", "cancel", "job", lambda jobs, value: ["scancel", *jobs], confirms=True),
    Action("H", "hold", "job", lambda jobs, value: ["scontrol", "hold", _list(jobs)]),
    Action("R", "release", "job", lambda jobs, value: ["scontrol", "release", _list(jobs)]),
    Action("Q", "requeue", "job", lambda jobs, value: ["scontrol", "requeue", _list(jobs)], confirms=True),
    Action("Z", "suspend", "job", lambda jobs, value: ["scontrol", "suspend", _list(jobs)], confirms=True),
    Action("X", "resume", "job", lambda jobs, value: ["scontrol", "resume", _list(jobs)]),
    Action(
        "T", "time limit", "job",
        lambda jobs, value: ["scontrol", "update", f"JobId={_list(jobs)}", f"TimeLimit={value}"],
        asks="new time limit (minutes, h:m:s, +30 for 30 minutes more)",
    ),
    Action(
        "P", "priority", "job",
        lambda jobs, value: ["scontrol", "update", f"JobId={_list(jobs)}", f"Priority={value}"],
        asks="new priority",
    ),
    Action(
        "D", "drain", "node",
        lambda nodes, value: ["scontrol", "update", f"NodeName={_list(nodes)}", "State=DRAIN", f"Reason={value}"],
        asks="reason; no more jobs will start there",
    ),
    Action(
        "X", "resume", "node",
        lambda nodes, value: ["scontrol", "update", f"NodeName={_list(nodes)}", "State=RESUME"],
    ),
)  # fmt: skip

BY_KEY = {(action.of, action.key): action for action in ACTIONS}

HELP = """\
spritz top: the cluster, live.

  1 2 3 4     queue, nodes, GPUs, history (accounting, the last day)
  j k ↓ ↑     move; g and G: first and last; Ctrl-d and Ctrl-u, Page keys: by pages
  J K         scroll the page at the right; f: follow its end
  Enter z     give the page the whole screen, and back; Tab: the other half
  o           its output, live, from its end
  w           why it waits, and when it starts
  i           its record (scontrol show)
  h           its history (accounting)
  e           its efficiency: used of requested resources
  /           filter: words, user:alice state:pd part:gpu name:train node:n1, -word
  u           only my jobs, or all
  E           show ended jobs too
  s S         order by the next column; reverse the order (or click a title)
  Space A     mark a job, or all jobs shown: actions apply to all marked jobs
  Esc         clear filter and marks
  q           quit

Jobs:   c cancel   H hold   R release   Q requeue   Z suspend   X resume   T time limit   P priority
Nodes:  D drain (asks for a reason)   X resume

All actions are Slurm's own commands with your privileges; those that destroy work ask first.
In the GPU view each letter is a job, · is free, x is on a node that cannot start jobs, # is held by a job that
you may not see.
"""
