"""What the keys do to jobs and nodes: Slurm's own commands, with the caller's rights.

What destroys work is asked for first; what needs a value asks for that. The command line is shown either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct


class Action(Struct, frozen=True):
    """One key. `words(targets, value)` is the command; `value` what is typed, where `asks` says for what.

    `confirms`: it is asked for, yes or no. `of`: job or node.
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
        asks="reason, by which you say that no more jobs are to start there",
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
  i           all that scontrol shows of it
  h           what happened to it (accounting)
  e           what it used of what it asked for
  /           filter: words, user:alice state:pd part:gpu name:train node:n1, -word
  u           my jobs alone, and all
  E           jobs that have ended too
  s S         order by the next column; the other way round (or click a title)
  Space A     mark a job, or all that are shown: what follows is done to all marked
  Esc         forget filter and marks
  q           leave

Jobs:   c cancel   H hold   R release   Q requeue   Z suspend   X resume   T time limit   P priority
Nodes:  D drain (asks for a reason)   X resume

Everything is done by Slurm's own commands with your rights; what destroys work asks first.
In the GPU view each letter is a job, · is free, x is on a node that starts no jobs, # is held by a job that
you may not see.
"""
