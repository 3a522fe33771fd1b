"""Contents of the tables: the queue, nodes, GPUs, and jobs from accounting.

Pure: no view sends queries. Styles are Rich's, with the terminal's own sixteen colours; they add no information to the
text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.live.choice import Choice, chosen
from spritz.live.logs import plain
from spritz.live.picture import indexes
from spritz.notation.duration import format_elapsed
from spritz.notation.hostlist import compress

if TYPE_CHECKING:
    from spritz.live.jobs import Job
    from spritz.live.nodes import Node
    from spritz.live.picture import Picture

#: (text, style)
Cell = tuple[str, str]


class Column(Struct, frozen=True, kw_only=True):
    """A column. Columns of the highest `rank` are dropped first; `grows`: its share of the remaining width."""

    title: str
    place: int
    width: int
    rank: int = 0
    grows: int = 0
    #: largest width in cells; 0: no limit
    most: int = 0
    right: bool = False
    #: the order that a click on the title selects
    order: str = ""


class View:
    title = ""
    columns: tuple[Column, ...] = ()

    def __init__(self) -> None:
        self.kept_place: tuple[Hashable, int] = (None, 0)
        self.order = ""
        self.backwards = False
        self._rows: Sequence[Any] = ()

    def rows(self) -> Sequence[Any]:
        """The rows, computed from the present picture."""
        return self._rows

    def key(self, row: Any) -> Hashable:
        """Identity of a row, which stays the same when its contents change."""
        name: Hashable = row.name
        return name

    def place_of(self, key: Hashable, near: int) -> int | None:
        """Present index of a row, None if it is gone. `near`: where to search first."""
        rows = self._rows
        if near < len(rows) and self.key(rows[near]) == key:
            return near
        return next((place for place, row in enumerate(rows) if self.key(row) == key), None)

    def cells(self, row: Any) -> Sequence[Cell]:
        """The cells of a row, indexed by `Column.place`."""
        raise NotImplementedError

    def empty(self) -> str:
        """The text to show instead of rows."""
        return "nothing"


STATE_STYLES = {
    "R": "green",
    "PD": "yellow",
    "CG": "cyan",
    "CF": "cyan",
    "S": "magenta",
    "CD": "dim",
    "CA": "dim",
    "F": "red",
    "NF": "red",
    "TO": "red",
    "OOM": "red",
    "BF": "red",
    "DL": "red",
}


class QueueView(View):
    title = "Queue"
    columns = (
        Column(title=" ", place=0, width=1),
        Column(title="JOBID", place=1, width=9, grows=1, most=14, order="id"),
        Column(title="USER", place=2, width=8, rank=2, order="user"),
        Column(title="ST", place=3, width=3, order="state"),
        Column(title="NAME", place=4, width=10, grows=4, most=40, order="name"),
        Column(title="TIME", place=5, width=10, right=True, rank=1, order="time"),
        Column(title="LIMIT", place=6, width=10, right=True, rank=7, order="left"),
        Column(title="NODES", place=7, width=5, right=True, rank=5, order="nodes"),
        Column(title="CPUS", place=8, width=5, right=True, rank=8, order="cpus"),
        Column(title="GPUS", place=9, width=4, right=True, rank=4, order="gpus"),
        Column(title="PART", place=10, width=8, rank=6, order="part"),
        Column(title="PRIO", place=11, width=7, rank=9, right=True, order="prio"),
        Column(title="NODELIST(REASON)", place=12, width=16, rank=3, grows=6),
    )

    def __init__(self, picture: Picture, clock: Callable[[], float]) -> None:
        super().__init__()
        self._picture = picture
        self._clock = clock
        self.choice = Choice()
        self.order = "queue"
        #: ids of the marked jobs, to which the next action applies
        self.marked: set[int] = set()

    def rows(self) -> Sequence[Job]:
        self.marked &= self._picture.jobs.keys()
        self._rows = chosen(
            self._picture.jobs.values(), self.choice, self.order, self._clock(), backwards=self.backwards
        )
        return self._rows

    def key(self, row: Job) -> Hashable:
        return row.id

    def cells(self, row: Job) -> Sequence[Cell]:
        code = row.state_code
        words = STATE_STYLES.get(code, "")
        seconds = row.used_seconds(self._clock())
        where = compress(row.node_names) if row.allocation and row.state != "PENDING" else ""
        return (
            ("*" if row.id in self.marked else " ", "bold"),
            (row.label, ""),
            (plain(row.user), ""),
            (code, words),
            (plain(row.name), "bold" if code == "R" else ""),
            (format_elapsed(seconds) if row.started_at else "", ""),
            (row.limit_text, ""),
            (str(row.node_count), ""),
            (str(row.cpu_count), ""),
            (str(row.gpu_count or ""), ""),
            (plain(row.partition or ",".join(row.partitions)), ""),
            (str(row.priority), ""),
            (where or plain(f"({row.why})" if row.why else ""), words if code == "PD" else ""),
        )

    def empty(self) -> str:
        if not self._picture.is_known:
            return "waiting for slurmctld …"
        if self.choice.text:
            return f"no job matches {self.choice.text} (Esc shows all)"
        return "no job is queued or running"


def node_style(node: Node) -> str:
    if node.is_closed:
        return "red"
    return "green" if node.cpus_used else ""


class NodesView(View):
    """Nodes with their load and jobs."""

    title = "Nodes"
    columns: tuple[Column, ...] = (
        Column(title="NODE", place=0, width=10, grows=1, most=24),
        Column(title="STATE", place=1, width=10, grows=1, most=26),
        Column(title="CPUS", place=2, width=9, right=True),
        Column(title="USE", place=3, width=10, rank=2, grows=1, most=20),
        Column(title="LOAD", place=4, width=6, right=True, rank=3),
        Column(title="MEMORY GiB", place=5, width=11, right=True, rank=1),
        Column(title="GPUS", place=6, width=7, right=True),
        Column(title="JOBS", place=7, width=4, right=True, rank=4),
        Column(title="PARTITIONS", place=8, width=10, rank=6, grows=1),
        Column(title="REASON", place=9, width=12, rank=5, grows=2),
    )

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self._picture = picture
        self.choice_text = ""

    def rows(self) -> Sequence[Node]:
        words = self.choice_text.lower().split()
        self._rows = [node for node in self._picture.nodes.values() if all(_node_has(node, word) for word in words)]
        return self._rows

    def cells(self, row: Node) -> Sequence[Cell]:
        words = node_style(row)
        share = row.cpus_used / row.cpus if row.cpus else 0.0
        return (
            (row.name, ""),
            (row.state_short, words),
            (f"{row.cpus_used}/{row.cpus}", ""),
            (bar(share, 10), ""),
            ("" if row.cpu_load is None else f"{row.cpu_load:.2f}", ""),
            (f"{row.memory_used_mib / 1024:.0f}/{row.memory_mib / 1024:.0f}", ""),
            (f"{row.gpus_used_count}/{row.gpu_count}" if row.gpu_count else "-", ""),
            (str(len(row.jobs)), ""),
            (",".join(row.partitions), ""),
            (plain(row.reason), "red" if row.reason else ""),
        )

    def empty(self) -> str:
        return "no node matches" if self.choice_text else "no nodes are shown to you"


def _node_has(node: Node, word: str) -> bool:
    _, colon, value = word.partition(":")
    text_sought = value if colon else word
    return any(
        text_sought in text.lower()
        for text in (node.name, node.state, ",".join(node.partitions), node.reason, node.features)
    )


class GpusView(NodesView):
    """Nodes with GPUs: a letter for each GPU, and the job of each letter."""

    title = "GPUs"
    columns = (
        Column(title="NODE", place=0, width=8, grows=1, most=20),
        Column(title="TYPE", place=1, width=6, rank=3, grows=1, most=14),
        Column(title="GPUS", place=2, width=8, grows=1, most=16),
        Column(title="USED", place=3, width=5, right=True),
        Column(title="BUSY", place=4, width=5, right=True, rank=4),
        Column(title="STATE", place=5, width=8, rank=2, grows=1, most=16),
        Column(title="JOBS: LETTER JOB USER NAME", place=6, width=24, rank=1, grows=10),
    )

    def __init__(self, picture: Picture) -> None:
        super().__init__(picture)
        self._holders: dict[str, dict[int, Job]] = {}

    def rows(self) -> Sequence[Node]:
        self._holders = self._picture.holders()
        self._rows = [node for node in super().rows() if node.gpus]
        return self._rows

    def cells(self, row: Node) -> Sequence[Cell]:
        strip, legend = occupancy(row, self._holders.get(row.name, {}))
        busy = list(row.gpu_use.values())
        return (
            (row.name, ""),
            (",".join(kind or "-" for kind, _ in row.gpus), ""),
            (strip, "bold"),
            (f"{row.gpus_used_count}/{row.gpu_count}", ""),
            (f"{sum(busy) / len(busy):.0f}%" if busy else "", ""),
            (row.state_short, node_style(row)),
            (legend, ""),
        )

    def empty(self) -> str:
        return "no node matches" if self.choice_text else "no node has GPUs"


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def occupancy(node: Node, holders: dict[int, Job]) -> tuple[str, str]:
    """(a sign for each GPU, legend): `AAAABB··` and `A 12 alice train, B 13 bob eval`.

    `·`: free; `#`: held by a job that the user may not see; `x`: on a node that cannot start jobs.
    """
    letters: dict[int, str] = {}
    jobs: list[Job] = []
    places = sorted(index for _, mask in node.gpus for index in indexes(mask))
    unseen = node.gpus_used_count - len(holders.keys() & set(places))
    strip = []
    for index in places:
        job = holders.get(index)
        if job is None:
            if unseen > 0:
                strip.append("#")
                unseen -= 1
            else:
                strip.append("x" if node.is_closed else "·")
            continue
        if job.id not in letters:
            letters[job.id] = _LETTERS[len(jobs) % len(_LETTERS)]
            jobs.append(job)
        strip.append(letters[job.id])
    legend = ", ".join(f"{letters[job.id]} {job.label} {plain(job.user)} {plain(job.name)[:30]}" for job in jobs)
    return "".join(strip), legend


def bar(share: float, width: int) -> str:
    """A bar such as `█████░░░░░`; `share` is from 0 to 1."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)


class Past(Struct, frozen=True):
    """A job from accounting, as sacct prints it."""

    name: str
    user: str
    job_name: str
    state: str
    exit_code: str
    elapsed: str
    start: str
    end: str
    nodes: str
    partition: str
    tres: str


#: Fields of `sacct -o`, in the order of `Past`.
PAST_FIELDS = "JobID,User,JobName,State,ExitCode,Elapsed,Start,End,NNodes,Partition,AllocTRES"


class HistoryView(View):
    """Jobs of the last day, from accounting."""

    title = "History"
    columns = (
        Column(title="JOBID", place=0, width=10, grows=1, most=16),
        Column(title="USER", place=1, width=8, rank=2),
        Column(title="NAME", place=2, width=10, grows=3, most=40),
        Column(title="STATE", place=3, width=12, grows=1, most=20),
        Column(title="EXIT", place=4, width=5, rank=4),
        Column(title="ELAPSED", place=5, width=10, right=True),
        Column(title="END", place=6, width=19, rank=1),
        Column(title="NODES", place=7, width=5, right=True, rank=5),
        Column(title="PART", place=8, width=8, rank=6),
        Column(title="RESOURCES", place=9, width=12, rank=7, grows=3),
    )

    def __init__(self) -> None:
        super().__init__()
        self.past: Sequence[Past] = ()
        self.choice_text = ""
        self.said = "asking accounting …"

    def take(self, text: str) -> None:
        """Set the rows from the output of `sacct -nPX -o PAST_FIELDS`."""
        past = []
        for line in text.splitlines():
            words = line.split("|")
            if len(words) >= 11:
                # A job's name may contain bars.
                name = "|".join(words[2 : len(words) - 8])
                past.append(Past(words[0], words[1], name, *words[-8:]))
        self.past = past[::-1]
        self.said = "no job of the last day"

    def rows(self) -> Sequence[Past]:
        words = self.choice_text.lower().split()
        self._rows = [past for past in self.past if all(_past_has(past, word) for word in words)]
        return self._rows

    def cells(self, row: Past) -> Sequence[Cell]:
        bad = row.state.startswith(("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF"))
        return (
            (row.name, ""),
            (plain(row.user), ""),
            (plain(row.job_name), ""),
            (row.state, "red" if bad else "green" if row.state.startswith("RUN") else ""),
            (row.exit_code, ""),
            (row.elapsed, ""),
            (row.end, ""),
            (row.nodes, ""),
            (row.partition, ""),
            (row.tres, ""),
        )

    def empty(self) -> str:
        return self.said


def _past_has(past: Past, word: str) -> bool:
    key, colon, value = word.partition(":")
    text_sought = value if colon and key in ("user", "state", "name", "part", "id") else word
    return any(
        text_sought in text.lower() for text in (past.name, past.user, past.job_name, past.state, past.partition)
    )
