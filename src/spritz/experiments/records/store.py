"""The index of all runs: SQLite in the home directory, or any database of SQLAlchemy by $SPRITZ_RUN_STORE.

The record of a run is in its directory (`record`); the index finds runs fast, assigns names, and stores the last known
state. It can be rebuilt from the directories.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import directory_mode
from spritz.experiments.records.database import Taken, Transaction, Unwritable, connect
from spritz.experiments.records.events import JOB_ID, YEAR_9999
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from spritz.experiments.records.record import Run

#: Version of the tables; a newer version is refused.
LAYOUT = 3
#: Columns that a layout after the first has added.
_ADDED = {2: "changed INTEGER", 3: "note TEXT"}

_NEWEST = 50
_RESTORES_MAX = 20
#: What follows the base of a run's name: numbers of runs, array tasks, trials and attempts.
_NUMBERS = re.compile(r"(?:[-.]\d+)+\Z")

#: States that may change: ours, and those of squeue.
OPEN = (
    "CREATED", "PENDING", "RUNNING", "PAUSED", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_FED",
    "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
)  # fmt: skip

_TABLES = (
    """CREATE TABLE IF NOT EXISTS runs (
        name VARCHAR(200) NOT NULL, owner VARCHAR(100) NOT NULL, created_at FLOAT NOT NULL, job_id VARCHAR(40),
        state VARCHAR(30) NOT NULL, exit_code INTEGER, started_at FLOAT, ended_at FLOAT, branch VARCHAR(300),
        commit_id VARCHAR(64), tree VARCHAR(64), parent VARCHAR(200), run_group VARCHAR(200), command TEXT NOT NULL,
        tags TEXT NOT NULL, metrics TEXT NOT NULL, directory TEXT NOT NULL, changed INTEGER,
        note TEXT, PRIMARY KEY (owner, name))""",
    "CREATE INDEX IF NOT EXISTS runs_created ON runs (owner, created_at)",
    "CREATE INDEX IF NOT EXISTS runs_open ON runs (owner, state)",
    "CREATE INDEX IF NOT EXISTS runs_group ON runs (owner, run_group)",
    "CREATE TABLE IF NOT EXISTS layout (number INTEGER NOT NULL)",
)


@dataclass(frozen=True)
class Entry:
    """A run's row in the index."""

    name: str
    owner: str
    created_at: float
    job_id: str
    state: str
    exit_code: int | None
    started_at: float | None
    ended_at: float | None
    branch: str
    commit_id: str
    tree: str
    parent: str
    run_group: str
    command: str
    tags: tuple[str, ...]
    metrics: dict[str, float]
    directory: str
    #: whether the code differed from the commit; False for runs that a release without this column recorded
    changed: bool
    note: str = ""


_COLUMNS = tuple(Entry.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Selects runs. Texts match substrings, ignoring case. Without `owner`: runs of all users."""

    owner: str = ""
    text: str = ""
    branch: str = ""
    tag: str = ""
    states: tuple[str, ...] = ()
    group: str = ""
    since: float = 0.0
    until: float = 0.0
    #: (metric, operator, value), as ("accuracy", ">", 0.9)
    metrics: tuple[tuple[str, str, float], ...] = ()
    #: in any of these groups, and in none of those
    groups: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    limit: int = 0


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that belong together: of a sweep, a pipeline or a job array."""

    name: str
    newest: Entry
    #: state -> number of runs
    states: Mapping[str, int]
    started_at: float | None
    #: None while one of them has not ended
    ended_at: float | None


class Store:
    """The index. Raises ExperimentError if the database is locked, read-only, full, damaged or of a later release.

    `url`: another database than that of the environment. `foreign`: it is for looking at runs of another user, so what
    is found out about them is not written.
    """

    def __init__(self, home: Path, url: str = "", *, foreign: bool = False) -> None:
        self.home = home
        self.url = url or os.environ.get("SPRITZ_RUN_STORE") or f"sqlite:///{home}/runs.db"
        self.foreign = foreign
        self._database = connect(self.url)
        self._checked = False
        #: columns that could not be written: (name, owner) -> columns
        self._unwritten: dict[tuple[str, str], dict[str, Any]] = {}

    def close(self) -> None:
        self._database.close()
        self._checked = False

    def reserve(self, base: str, owner: str, created_at: float, directory: Path, command: str) -> str:
        """A free name made of `base` (BASE-1, BASE-2 …), with a row and a directory below `directory` that hold it."""
        clean = re.sub(r"[^\w.-]+", "-", base).strip("-.") or "run"
        for number in self._free_numbers(clean, owner, directory):
            name = f"{clean}-{number}"
            try:
                with self._begin() as connection:
                    self._insert(connection, name, owner, created_at, str(directory / name), command)
                    directory.mkdir(parents=True, exist_ok=True)
                    (directory / name).mkdir(mode=directory_mode(self.home))
                return name
            except (Taken, FileExistsError):
                continue  # taken meanwhile
        raise ExperimentError(f"no free name for a run {clean}")

    def reserve_array(self, base: str, owner: str, created_at: float, directory: Path, commands: Sequence[str]) -> str:
        """A free name as `reserve` makes it, with NAME-0, NAME-1 … that hold it, one for each command."""
        clean = re.sub(r"[^\w.-]+", "-", base).strip("-.") or "run"
        for number in self._free_numbers(clean, owner, directory):
            name = f"{clean}-{number}"
            directories: list[Path] = []
            try:
                with self._begin() as connection:
                    for index, command in enumerate(commands):
                        row = f"{name}-{index}"
                        self._insert(connection, row, owner, created_at, str(directory / row), command)
                    directory.mkdir(parents=True, exist_ok=True)
                    for index in range(len(commands)):
                        place = directory / f"{name}-{index}"
                        place.mkdir(mode=directory_mode(self.home))
                        directories.append(place)
                return name
            except (Taken, FileExistsError):
                for place in directories:
                    place.rmdir()
        raise ExperimentError(f"no free name for runs {clean}")

    def hold(self, name: str, owner: str, created_at: float, directory: Path, command: str) -> None:
        """Add a row for a run whose name the caller has chosen; replaces the row of an interrupted submission."""
        with self._begin() as connection:
            _execute(connection, "DELETE FROM runs WHERE owner = :o AND name = :n AND job_id = ''", o=owner, n=name)
            self._insert(connection, name, owner, created_at, str(directory / name), command)

    def _free_numbers(self, base: str, owner: str, directory: Path) -> Iterator[int]:
        """Numbers to try: after the largest of the newest runs, after the largest in the index, then after directories.

        Directories without a row are another user's, or those of an index that was lost.
        """
        # Of 100,000 runs of one name the newest are found in a millisecond, the largest number in a tenth of a second.
        newest = [entry.name for entry in self.find(Query(owner=owner, limit=_NEWEST))]
        if number := _largest(base, newest):
            yield number + 1
        yield self._largest_number(base, owner) + 1
        for _ in range(1000):
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                names = []
            yield max(self._largest_number(base, owner), _largest(base, names)) + 1

    def _largest_number(self, base: str, owner: str) -> int:
        with self._begin() as connection:
            # As a range, so that the key finds them: names begin with BASE-, and the character after "-" is ".".
            rows = _execute(
                connection,
                f"SELECT name FROM runs WHERE owner = :owner AND {_LIKE.format('name', 'like')} AND name >= :low "
                "AND name < :high",
                owner=owner,
                like=f"{_escaped(base)}-%",
                low=f"{base}-",
                high=f"{base}.",
            )
            return _largest(base, (name for (name,) in rows))

    def restore(self, rows: Sequence[tuple[Run, Path, Mapping[str, Any]]]) -> None:
        """Add rows for runs (run, directory, columns) that the index has lost, in one transaction; leaves those that
        another process has added meanwhile.
        """
        for _ in range(_RESTORES_MAX):
            with suppress(Taken), self._begin() as connection:
                for run, directory, values in rows:
                    if self._has(connection, run):
                        continue
                    self._insert(connection, run.name, run.user, run.created_at, str(directory), run.command_line)
                    self._set(connection, run.name, run.user, {**_known(run), **values})
                return
            # Another process, which restores them too, has added one after we looked.
        raise ExperimentError("other processes change the index all the time", hint="try again")

    def _has(self, connection: Transaction, run: Run) -> bool:
        rows = _execute(connection, "SELECT 1 FROM runs WHERE owner = :o AND name = :n", o=run.user, n=run.name)
        return bool(list(rows))

    def add(self, runs: Sequence[tuple[Run, str]]) -> None:
        """Add rows for runs (run, directory) whose names the caller has chosen; all or none.

        Raises ExperimentError if a name is taken.
        """
        try:
            with self._begin() as connection:
                for run, directory in runs:
                    self._insert(connection, run.name, run.user, run.created_at, directory, run.command_line)
                    self._set(connection, run.name, run.user, _known(run))
        except Taken as error:
            raise ExperimentError(f"the index has a run of that name already: {error}") from error

    def _insert(self, connection: Transaction, name: str, owner: str, at: float, directory: str, command: str) -> None:
        values = {
            "name": name, "owner": owner, "created_at": at, "job_id": "", "state": "CREATED", "exit_code": None,
            "started_at": None, "ended_at": None, "branch": "", "commit_id": "", "tree": "", "parent": "",
            "run_group": "", "command": command, "tags": "[]", "metrics": "{}", "directory": directory,
            "changed": 0, "note": "",
        }  # fmt: skip
        names = ", ".join(values)
        _execute(connection, f"INSERT INTO runs ({names}) VALUES ({', '.join(f':{key}' for key in values)})", **values)

    def queued(self, *runs: Run, state: str = "PENDING") -> None:
        """Record that the runs' jobs are queued."""
        self.change_all({(run.name, run.user): {"state": state, **_known(run)} for run in runs})

    def change(self, name: str, owner: str, **values: Any) -> None:
        """Set columns of a run's row."""
        self.change_all({(name, owner): values})

    def change_all(self, changes: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Set columns of several runs, (name, owner) -> columns, in a single transaction."""
        if not changes:
            return
        with self._begin() as connection:
            for (name, owner), values in changes.items():
                self._set(connection, name, owner, values)

    def note(self, changes: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Set columns that were found out by looking. Where the index cannot be written, as on a full file system, this
        object alone has them: who only reads needs no room. So it is with runs of another user, of which it is not
        found out that they are lost: Slurm may keep their jobs from us.
        """
        if self.foreign:
            self._keep({key: values for key, values in changes.items() if values.get("state") != "LOST"})
            return
        try:
            self.change_all(changes)
        except Unwritable:
            self._keep(changes)

    def _keep(self, changes: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        for key, values in changes.items():
            self._unwritten.setdefault(key, {}).update(values)

    def _set(self, connection: Transaction, name: str, owner: str, values: Mapping[str, Any]) -> None:
        assignments = ", ".join(f"{key} = :{key}" for key in values)
        _execute(connection, f"UPDATE runs SET {assignments} WHERE owner = :o AND name = :n", o=owner, n=name, **values)

    @contextmanager
    def editing(self, names: Sequence[str], owner: str) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """A transaction in which columns of these runs are set by (name, columns); others that edit them wait.

        Raises ExperimentError if one of them is gone, or was renamed since the caller saw it.
        """
        with self._begin() as connection:
            for name in names:
                self._lock(connection, name, owner)
            yield lambda name, values: self._set(connection, name, owner, values)

    def _lock(self, connection: Transaction, name: str, owner: str) -> None:
        """Keep others from changing the run's row until the transaction ends."""
        _execute(connection, "UPDATE runs SET name = name WHERE owner = :o AND name = :n", o=owner, n=name)
        if not list(_execute(connection, "SELECT 1 FROM runs WHERE owner = :o AND name = :n", o=owner, n=name)):
            raise ExperimentError(f"{name} has another name now, or was removed")

    def rename(self, old: str, new: str, owner: str, write: Callable[[], None]) -> None:
        """Give a run another name, also where it is the parent of others. `write` records the name in the run's
        directory before the index has it; what it raises is passed on. Raises ExperimentError if the name is taken, or
        the run has another one now.
        """
        try:
            with self._begin() as connection:
                self._lock(connection, old, owner)
                names = {"o": owner, "old": old, "new": new}
                _execute(connection, "UPDATE runs SET name = :new WHERE owner = :o AND name = :old", **names)
                _execute(connection, "UPDATE runs SET parent = :new WHERE owner = :o AND parent = :old", **names)
                for_others = {"old": f"{owner}/{old}", "new": f"{owner}/{new}"}
                _execute(connection, "UPDATE runs SET parent = :new WHERE parent = :old", **for_others)
                write()
        except Taken as error:
            raise ExperimentError(f"{new} is the name of another run") from error

    def remove_group(self, group: str, owner: str) -> None:
        """Delete the rows of a group's runs."""
        with self._begin() as connection:
            _execute(connection, "DELETE FROM runs WHERE owner = :o AND run_group = :g", o=owner, g=group)

    def remove(self, name: str, owner: str) -> None:
        """Delete a run's row from the index; its directory stays."""
        with self._begin() as connection:
            _execute(connection, "DELETE FROM runs WHERE owner = :o AND name = :n", o=owner, n=name)

    def find(self, query: Query) -> list[Entry]:
        """The index entries that match the query, newest first; `query.limit` bounds them."""
        where, values = _conditions(query)
        in_sql = bool(query.metrics and self._database.metric)
        if in_sql:
            terms = []
            for place, (name, operator, value) in enumerate(query.metrics):
                terms.append(f"{self._database.metric.format(name=f':m{place}')} {operator} :v{place}")
                values |= {f"m{place}": name, f"v{place}": value}
            where = f"{where or 'WHERE 1 = 1'} AND {' AND '.join(terms)}"
        text = f"SELECT {', '.join(_COLUMNS)} FROM runs {where} ORDER BY created_at DESC, name DESC"
        if query.limit and (in_sql or not query.metrics):
            text += f" LIMIT {query.limit:d}"
        with self._begin() as connection:
            entries = self._entries(_execute(connection, text, **values))
        if query.metrics and not in_sql:
            entries = [entry for entry in entries if _meets(entry, query.metrics)]
        return entries[: query.limit] if query.limit else entries

    def find_folded(self, query: Query) -> list[Entry | Group]:
        """Runs and groups by their newest run, newest first. A group's numbers are those of all its runs."""
        newest: dict[str, Entry] = {}
        while True:
            newest_entries = self.find(replace(query, without=tuple(newest)))
            newest |= {entry.run_group: entry for entry in reversed(newest_entries) if entry.run_group}
            kept = [*newest.values(), *(entry for entry in newest_entries if not entry.run_group)]
            # Whatever is missing is older than all that was found, as each question leaves out more groups.
            if not query.limit or len(newest_entries) < query.limit or len(kept) >= query.limit:
                break
        kept.sort(key=lambda entry: (entry.created_at, entry.name), reverse=True)
        kept = kept[: query.limit] if query.limit else kept
        groups = self._groups([entry for entry in kept if entry.run_group], query.owner)
        return [groups.get(entry.run_group, entry) for entry in kept]

    def _groups(self, newest: Sequence[Entry], owner: str) -> dict[str, Group]:
        """The groups of these runs that have more than one run, by name."""
        if not newest:
            return {}
        where, values = _conditions(Query(owner=owner, groups=tuple(entry.run_group for entry in newest)))
        with self._begin() as connection:
            rows = list(
                _execute(
                    connection,
                    "SELECT run_group, state, count(*), min(started_at), max(ended_at), count(ended_at) FROM runs "
                    f"{where} GROUP BY run_group, state",
                    **values,
                )
            )
        groups = {}
        for entry in newest:
            rows_of_group = [row for row in rows if row[0] == entry.run_group]
            count = sum(row[2] for row in rows_of_group)
            if count > 1:
                groups[entry.run_group] = Group(
                    name=entry.run_group,
                    newest=entry,
                    states={row[1]: row[2] for row in rows_of_group},
                    started_at=min((row[3] for row in rows_of_group if row[3]), default=None),
                    ended_at=max(row[4] for row in rows_of_group)
                    if sum(row[5] for row in rows_of_group) == count
                    else None,
                )
        return groups

    def best(self, owner: str, group: str, metric: str, *, maximize: bool) -> float | None:
        """The largest or smallest value that complete runs of the group have of the metric."""
        entries = self.find(Query(owner=owner, group=group, states=("COMPLETED",)))
        values = [entry.metrics[metric] for entry in entries if metric in entry.metrics]
        return (max if maximize else min)(values, default=None)

    def get(self, name: str, owner: str) -> Entry:
        """The run of that name or job number, or the newest whose name begins so (`train`: train-12).

        Raises ExperimentError, with a similar name, if there is none; and for OWNER/RUN: `others.find` looks at these.
        """
        other, slash, run = name.partition("/")
        if slash and other == owner:
            name = run
        elif slash and other:
            raise ExperimentError(
                f"{name} is not your run: only {other} can do that",
                hint=f"`spritz show {name}` shows it, `spritz rerun {name}` runs it again as yours",
            )
        if not name:  # as the job number of a run without a job is
            raise ExperimentError("no name of a run is given", hint="`spritz runs` lists them")
        with self._begin() as connection:
            rows = list(
                _execute(
                    connection,
                    f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE owner = :o AND "
                    f"(name = :n OR job_id = :n OR {_LIKE.format('name', 'like')}) ORDER BY created_at DESC",
                    o=owner, n=name, like=f"{_escaped(name)}-%",
                )
            )  # fmt: skip
        entries = self._entries(rows)
        for entry in entries:
            if name in (entry.name, entry.job_id):
                return entry
        if self.foreign and self.find(Query(owner=owner, group=name, limit=1)):
            raise ExperimentError(
                f"{owner}/{name} is a group of runs", hint=f"`spritz runs --user {owner} --group {name}` lists them"
            )
        if os.path.exists(self.home / "sweeps" / name / "sweep.json"):
            raise ExperimentError(f"{name} is a sweep", hint=f"`spritz sweep --status {name}` shows it and its trials")
        if os.path.exists(self.home / "pipelines" / name / "pipeline.json"):
            raise ExperimentError(f"{name} is a pipeline", hint=f"`spritz pipeline show {name}` shows it and its steps")
        if entries:
            return entries[0]
        near = self._similar(name, owner)
        near = near if near != name else ""  # its row is not one, of another user's index
        if near and os.path.basename(self.get(near, owner).directory) == name:
            raise ExperimentError(f"{name} has another name now: {near}")
        whose = f"{owner}/" if self.foreign else ""
        raise ExperimentError(
            f"{whose}{name}: no such run" + (f" (did you mean {whose}{near}?)" if near else ""),
            hint=f"`spritz runs{f' --user {owner}' if self.foreign else ''}` lists them",
        )

    def _similar(self, name: str, owner: str) -> str:
        """The run that was probably meant: the present name of a renamed one, else by typing errors; "" without any.

        Names are compared without their numbers, of which there are few even among tens of thousands of runs.
        """
        with self._begin() as connection:
            rows = _execute(
                connection, "SELECT name, directory FROM runs WHERE owner = :o ORDER BY created_at DESC", o=owner
            )
            newest: dict[str, str] = {}
            names: set[str] = set()
            for other, directory in rows:
                if name == os.path.basename(directory):
                    return str(other)
                names.add(other)
                newest.setdefault(_NUMBERS.sub("", other), other)
        base = _NUMBERS.sub("", name)
        near = nearest(base, newest)
        if near is None:
            return ""
        wanted = near + name[len(base) :]
        return wanted if wanted in names else newest[near]

    def later_attempt(self, entry: Entry) -> str:
        """Name of the newest attempt of a pipeline's step, NAME.N, whose first attempt is `entry`; "" without any."""
        if not entry.run_group:
            return ""
        attempts = self.find(Query(owner=entry.owner, group=entry.run_group))
        return next((attempt.name for attempt in attempts if attempt.name.startswith(f"{entry.name}.")), "")

    def owners(self) -> list[str]:
        """Users who have runs in the index."""
        with self._begin() as connection:
            return [owner for (owner,) in _execute(connection, "SELECT DISTINCT owner FROM runs ORDER BY owner")]

    def trees(self) -> dict[str, str]:
        """Name -> tree of its snapshot, of the runs of all owners."""
        with self._begin() as connection:
            return {name: tree or "" for name, tree in _execute(connection, "SELECT name, tree FROM runs")}

    def open_runs(self, owner: str) -> list[Entry]:
        """Runs whose last known state is not final."""
        return self.find(Query(owner=owner, states=OPEN))

    def _entries(self, rows: Iterable[Sequence[Any]]) -> list[Entry]:
        """The rows, of another user's index without those that are none."""
        if not self.foreign:
            return [self._entry(row) for row in rows]
        entries = []
        for row in rows:
            with suppress(ValueError, TypeError):
                entry = msgspec.convert(asdict(self._entry(row)), Entry)
                times = (entry.created_at, entry.started_at or 0.0, entry.ended_at or 0.0)
                if all(0 <= at < YEAR_9999 for at in times) and JOB_ID.fullmatch(entry.job_id):
                    entries.append(entry)
        return entries

    def _entry(self, row: Sequence[Any]) -> Entry:
        values = dict(zip(_COLUMNS, row, strict=True))
        values.update(self._unwritten.get((values["name"], values["owner"]), {}))
        values["tags"] = tuple(json.loads(values["tags"] or "[]"))
        values["metrics"] = json.loads(values["metrics"] or "{}")
        values["changed"] = bool(values["changed"])
        for key in ("job_id", "branch", "commit_id", "tree", "parent", "run_group", "note"):
            values[key] = values[key] or ""
        return Entry(**values)

    @contextmanager
    def _begin(self) -> Iterator[Transaction]:
        if not self._checked:
            self._check()
        with self._database.begin() as transaction:
            yield transaction

    def _check(self) -> None:
        """Create or upgrade the tables. Raises ExperimentError if a later release created them."""
        if not self._database.has_table("layout"):
            try:
                with self._database.begin() as transaction:
                    for statement in _TABLES:
                        _execute(transaction, statement)
                    if not list(_execute(transaction, "SELECT number FROM layout")):
                        _execute(transaction, "INSERT INTO layout (number) VALUES (:number)", number=LAYOUT)
            except (Taken, ExperimentError):
                # PostgreSQL's IF NOT EXISTS fails if another process creates them at the same moment.
                if not self._database.has_table("layout"):
                    raise
        before = self._layout()
        if 0 < before < LAYOUT:
            for number in range(before + 1, LAYOUT + 1):
                self._add_column(_ADDED[number])
            with self._database.begin() as transaction:
                _execute(transaction, "UPDATE layout SET number = :number", number=LAYOUT)
        if self._layout() > LAYOUT:
            url = secrets.masked_text(self.url)
            raise ExperimentError(f"{url} was made by a later release of spritz", hint="use that release")
        self._checked = True

    def _add_column(self, column: str) -> None:
        try:
            with self._database.begin() as transaction:
                _execute(transaction, f"ALTER TABLE runs ADD COLUMN {column}")
        except ExperimentError:
            # Another process may have been faster, or killed before it set the number: then the column is there.
            with self._database.begin() as transaction:
                list(_execute(transaction, f"SELECT {column.partition(' ')[0]} FROM runs LIMIT 1"))

    def _layout(self) -> int:
        """Version of the tables in the database; 0 while another process creates them."""
        with self._database.begin() as transaction:
            return int(next(iter(_execute(transaction, "SELECT max(number) FROM layout")))[0] or 0)


def _largest(base: str, names: Iterable[str]) -> int:
    """The largest number N among names BASE-N and, for runs of an array, BASE-N-INDEX."""
    begin = len(base) + 1
    ends = (re.match(r"(\d+)(?:-\d+)?\Z", name[begin:]) for name in names if name[:begin] == f"{base}-")
    return max((int(end[1]) for end in ends if end), default=0)


def _known(run: Run) -> dict[str, Any]:
    """Columns of a run's row, from its record."""
    return {
        "job_id": run.job_id,
        "branch": run.code.get("branch", ""),
        "commit_id": run.code.get("commit", ""),
        "tree": run.code.get("tree", ""),
        "changed": int(run.code.get("dirty", False)),
        "parent": run.parent,
        "run_group": run.group,
        "tags": json.dumps(run.tags),
        "note": run.note,
    }


def _execute(transaction: Transaction, statement: str, **values: Any) -> Iterable[Any]:
    # Words of a command line may have bytes that are no text, which no database takes.
    texts = {name: text.encode("utf-8", "replace").decode() for name, text in values.items() if type(text) is str}
    return transaction.execute(statement, {**values, **texts})


#: A pattern with `_escaped` parts. A backslash would be read as such in the JSON of tags.
_LIKE = "{} LIKE :{} ESCAPE '!'"
#: Columns in which a search looks for a text.
_TEXTS = ("name", "command", "note")


def _escaped(text: str) -> str:
    """The text for a pattern of LIKE, in which it stands for itself."""
    return re.sub("([!%_])", r"!\1", text)


def _conditions(query: Query) -> tuple[str, dict[str, Any]]:
    parts: list[str] = []
    values: dict[str, Any] = {}
    for column, value in (("owner", query.owner), ("branch", query.branch), ("run_group", query.group)):
        if value:
            parts.append(f"{column} = :{column}")
            values[column] = value
    if query.text:
        # As it is too: the database may know the small letters of ASCII alone.
        forms = [(f"lower({column})", "text") for column in _TEXTS] + [(column, "same") for column in _TEXTS]
        inside = " OR ".join(_LIKE.format(*form) for form in forms)
        tags, commit = _LIKE.format("tags", "text_tag"), _LIKE.format("commit_id", "begin")
        parts.append(f"({inside} OR {tags} OR job_id = :plain OR {commit})")
        plain = _escaped(query.text)
        values |= {"text": f"%{plain.lower()}%", "same": f"%{plain}%", "plain": query.text, "begin": f"{plain}%"}
        values["text_tag"] = f"%{_escaped(json.dumps(query.text))}%"
    if query.tag:
        parts.append(_LIKE.format("tags", "tag"))
        values["tag"] = f"%{_escaped(json.dumps(query.tag))}%"
    if query.states:
        parts.append(f"state IN ({', '.join(f':s{n}' for n in range(len(query.states)))})")
        values |= {f"s{n}": state for n, state in enumerate(query.states)}
    for key, operator, names in (("g", "IN", query.groups), ("w", "NOT IN", query.without)):
        if names:
            parts.append(f"run_group {operator} ({', '.join(f':{key}{n}' for n in range(len(names)))})")
            values |= {f"{key}{n}": name for n, name in enumerate(names)}
    if query.since:
        parts.append("created_at >= :since")
        values["since"] = query.since
    if query.until:
        parts.append("created_at < :until")
        values["until"] = query.until
    return ("WHERE " + " AND ".join(parts)) if parts else "", values


def _meets(entry: Entry, wanted: Iterable[tuple[str, str, float]]) -> bool:
    for name, operator, value in wanted:
        have = entry.metrics.get(name)
        if have is None or not {
            ">": have > value, ">=": have >= value, "<": have < value, "<=": have <= value, "=": have == value,
        }[operator]:  # fmt: skip
            return False
    return True
