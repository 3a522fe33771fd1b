"""The first lines of `sinfo -v`: its options, and the values that its columns need. Source: what 22.05 prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.node.node_fields import LETTERS, NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.presentation.columns import Column

#: Slurm's own names for the formats of --summarize, --Node, --list-reasons and --long
_FORMATS = {
    "summarize": "partition:9 ,available:.5 ,time:.10 ,nodeaiot:.16 ,nodelist:0",
    "Node": "nodelist:0 ,nodes:.6 ,partition:.9 ,statecompact:6",
    "Node long": "nodelist:0 ,nodes:.6 ,partition:.9 ,statelong:.11 ,cpus:4 ,socketcorethread:.8 ,memory:.6 ,disk:.8 ,"
    "weight:.6 ,features:.8 ,reason:20",
    "list-reasons": "reason:20 ,user:9 ,timestamp:19 ,nodelist:0",
    "list-reasons long": "reason:20 ,userlong:12 ,timestamp:19 ,statecompact:6 ,nodelist:0",
    "": "partition:9 ,available:.5 ,time:.10 ,nodes:.6 ,statecompact:.6 ,nodelist:0",
    " long": "partition:9 ,available:.5 ,time:.10 ,size:.10 ,root:.4 ,oversubscribe:.8 ,groups:.10 ,nodes:.6 ,"
    "statelong:.11 ,nodelist:0",
}

#: title, as Slurm has it with its blanks -> letters and names of the columns that set it
_FLAGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("alloc_mem_flag  = ", "", ("allocmem",)),
    ("avail_flag      = ", "a", ()),
    ("comment_flag    = ", "", ("comment",)),
    ("cpus_flag       = ", "cC", ()),
    ("default_time_flag =", "L", ()),
    ("disk_flag       = ", "d", ()),
    ("extra_flag      = ", "", ("extra",)),
    ("features_flag   = ", "f", ()),
    ("features_flag_act = ", "b", ()),
    ("groups_flag     = ", "g", ()),
    ("gres_flag       = ", "G", ()),
    ("gres_used_flag  = ", "", ("gresused",)),
    ("job_size_flag   = ", "s", ()),
    ("max_time_flag   = ", "l", ()),
    ("memory_flag     = ", "m", ()),
    ("partition_flag  = ", "PR", ()),
    ("port_flag       = ", "", ("port",)),
    ("priority_job_factor_flag   = ", "I", ()),
    ("priority_tier_flag   = ", "p", ()),
    ("reason_flag     = ", "E", ()),
    ("reason_timestamp_flag = ", "H", ()),
    ("reason_user_flag = ", "uU", ()),
    ("reservation_flag = ", "", ()),  # of --reservation's own table
    ("root_flag       = ", "r", ()),
    ("oversubscribe_flag      = ", "h", ()),
    ("state_flag      = ", "tT", ()),
    ("statecomplete_flag = ", "", ("statecomplete",)),
    ("weight_flag     = ", "w", ()),
)


def text(options: Mapping[str, str], shown: Sequence[Column], times: int) -> str:
    """The whole output. `times`: how often -v was given."""

    def word(truth: object) -> str:
        return "true" if truth else "false"

    own_format = options.get("Format", options.get("format"))
    kind = next((name for name in ("summarize", "Node", "list-reasons") if name in options), "")
    default = _FORMATS.get(f"{kind} long") if "long" in options else None
    filters = ("dead", "nodes", "partition", "list-reasons", "responding", "states")
    states = options.get("states") or ("down" if "list-reasons" in options else "(null)")
    rule = "-" * 29
    rows = {
        "dead": word("dead" in options),
        "exact": int("exact" in options),
        "filtering": word(any(name in options for name in filters)),
        "format": own_format if own_format is not None else default or _FORMATS[kind],
        "iterate": options.get("iterate", "0"),
        "long": word("long" in options),
        "no_header": word("noheader" in options),
        "node_field": word("Node" in options),
        "node_format": word("Node" in options),
        "nodes": options.get("nodes") or "n/a",
        "part_field": word(own_format is None and "list-reasons" not in options),
        "partition": options.get("partition") or "n/a",
        "responding": word("responding" in options),
        "states": states,
        "sort": options.get("sort", "(null)"),
        "summarize": word("summarize" in options),
        "verbose": times,
    }
    fields = [column.field for column in shown]
    lines = [rule, *(f"{title:<11} = {value}" for title, value in rows.items()), rule]
    lines.append(f"all_flag        = {word('all' in options or 'partition' in options)}")
    for title, letters, names in _FLAGS:
        meant = [*(LETTERS[letter] for letter in letters), *(NAMES[name] for name in names)]
        lines.append(title + word(any(field is wanted for field in fields for wanted in meant)))
    return "\n".join([*lines, rule]) + "\n\n"
