"""The pages: one for each subject, and an overview."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from spritz.cli.administration.manager.settings import ASSOCIATION, QOS
from spritz.cli.jobs.submit import variables
from spritz.presentation.json import documents
from tools import configuration as reference
from tools.commands import COMMANDS
from tools.compatibility import entries
from tools.compatibility.entries import Entry, Section
from tools.compatibility.text import anchor, table

_GENERATED = "Generated from the tables of the code (`make docs`); do not edit."

#: Slurm's programs that Spritz does not have.
_MISSING = ("scrun", "sview", "sh5util")

#: Variables that commands read besides those of their options.
_FURTHER_VARIABLES = {
    "SLURM_CONF": "the configuration file",
    "SLURM_CLUSTERS": "as `--clusters`, for every command that has the option",
    "SLURM_JWT": "a token: commands act as its user",
    "SLURM_TIME_FORMAT": "how times are printed",
    "SLURM_BITSTR_LEN": "length of a printed list of array indexes",
    "SLURM_HOSTFILE": "hosts for `--distribution=arbitrary`",
    "SLURM_EXIT_ERROR": "exit status of sbatch, srun and salloc after an error of Slurm itself",
    "SLURM_EXIT_IMMEDIATE": "exit status of srun and salloc if `--immediate` fails",
}

#: sbcast and sgather name the variables of their options without this prefix.
_PREFIXES = {"sbcast": "SBCAST_", "sgather": "SGATHER_"}


def overview() -> str:
    """The first page: what works, in one screen, and where to look further."""
    commands, fields, keywords = entries.options(), entries.fields(), entries.keywords()
    keys = reference.counts()
    works, refused = _sum([*commands, *fields, *keywords])
    lines = [
        "# Compatibility with Slurm",
        "",
        "**Will the scripts of my site run?** Most will, unchanged. Spritz has Slurm's commands, options, environment "
        f"variables, exit codes, configuration files and REST paths, at the level of Slurm 25.05: {works} options, "
        f"fields and keywords work, {refused} are refused. Nothing is ignored silently: what does not work ends with "
        "an error that names it and says why. So a script that runs through does what it says.",
        "",
        *table(
            ("your site uses", "with Spritz"),
            [
                (
                    "batch scripts, `srun`, `salloc`, job arrays, dependencies, heterogeneous jobs, GPUs",
                    "they run; see what is [refused](refused.md)",
                ),
                (
                    "programs that read `squeue`, `sinfo`, `sacct`, `scontrol show`, `--json`",
                    "same columns and words; see [differences on purpose](differences.md)",
                ),
                ("variables such as `SLURM_PROCID` and `SBATCH_PARTITION`", "[the same](environment.md)"),
                (
                    "`slurm.conf` and its relatives",
                    f"read as they are: {keys['done']} keys work, {keys['partly']} with some values, {keys['later']} "
                    f"are checked and have no effect yet, {keys['none']} have no meaning ([keys](configuration.md)); "
                    "`spritz config check FILE` names every mistake",
                ),
                ("slurmrestd and its clients", f"every operation of {', '.join(documents.VERSIONS)} ([REST](rest.md))"),
                (
                    "accounts, QOS, limits, fair share, preemption",
                    "enforced as in Slurm, from slurmdbd ([limits](limits.md))",
                ),
                ("`job_submit.lua`, `cli_filter.lua`", "they run ([plugins](../plugins.md))"),
                (
                    "SPANK plugins, burst buffers, X11 forwarding, `scrun`, `sview`",
                    "there is none; the options are [refused](refused.md)",
                ),
                ("MPI", "`--mpi=pmix` and `pmi2` ([install](../how-to/install.md))"),
            ],
        ),
        "",
        "To try it: `sbatch --test-only SCRIPT` on a cluster of `spritz up` refuses what would be refused later, and "
        "`spritz simulate` replays your own jobs. [Move from Slurm](../tutorials/from-slurm.md) has the steps.",
        "",
        "| page | |",
        "|---|---|",
    ]
    lines += [f"| [{title}]({name}) | {what} |" for name, (title, what, _) in _SUBJECTS.items()]
    return _page([*lines, "", _GENERATED])


def commands() -> str:
    """Commands, and what follows `scontrol`."""
    missing = ", ".join(f"`{name}`" for name in _MISSING)
    lines = [
        "# Commands and keywords",
        "",
        f"Spritz has all commands of Slurm for users and administrators except {missing}. {_GENERATED}",
        "",
        *table(
            ("command", "what it is for", "options that work", "taken with a warning", "refused"),
            [
                (
                    f"[{section.title}](options.md#{_options_anchor(section.title)})",
                    COMMANDS[section.title],
                    str(section.done),
                    str(section.without_effect),
                    str(section.refused),
                )
                for section in entries.options()
            ],
        ),
    ]
    for section in entries.keywords():
        lines += ["", f"## {section.title}", "", *_works_and_refused(section)]
    return _page(lines)


def options() -> str:
    """The options of each command; those of sbatch, srun and salloc side by side."""
    sections = {section.title: section for section in entries.options()}
    submission = [sections.pop(name) for name in entries.SUBMISSION]
    names = "sbatch, srun and salloc"
    lines = [
        "# Options of each command",
        "",
        "Each command has the options of its namesake in Slurm 25.05. An option that is in no table here is unknown to "
        f"the command, as in Slurm. {_GENERATED}",
        "",
        "Jump to: " + ", ".join(f"[{title}](#{anchor(title)})" for title in (names, *sections)) + ".",
        "",
        f"## {names}",
        "",
        "A dash means that the command has no such option, in Slurm neither.",
        "",
        *_side_by_side(submission),
    ]
    for title, section in sections.items():
        lines += ["", f"## {title}", "", *_works_and_refused(section)]
    return _page(lines)


def fields() -> str:
    """The fields of each listing."""
    lines = [
        "# Fields of listings",
        "",
        "The letters of `--format=%…` and the names of `--Format` and of `--format=NAME`, with the heading of the "
        f"column. {_GENERATED}",
    ]
    for section in entries.fields():
        lines += ["", f"## {section.title}", "", *_works_and_refused(section, "heading")]
    return _page(lines)


def configuration() -> str:
    """The keys of configuration files by what becomes of them."""
    by_state: dict[str, list[tuple[str, str, str, str]]] = defaultdict(list)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for title, key, state, detail in reference.states():
        counts[title][state] += 1
        by_state[state].append((title, key.name, key.meaning, detail))
    states = ("done", "partly", "later", "none")
    lines = [
        "# Keys of configuration files",
        "",
        "slurmctld, slurmd and slurmdbd read Slurm's files as they are. A mistake is an error with file and line; "
        "`spritz config check FILE` lists all of them. [The reference](../reference/slurm.conf.md) has every key with "
        f"its values, default and meaning. {_GENERATED}",
        "",
        *table(
            ("file or line", "work", "work with some values", "no effect yet", "no meaning in Spritz"),
            [(title, *(str(counts[title][state]) for state in states)) for title in counts],
        ),
        "",
        "## Keys that have no effect yet",
        "",
        "Their values are checked. A value that would change something is named in a warning when the daemon starts.",
        "",
        *table(("file or line", "key", "meaning"), [(row[0], f"`{row[1]}`", row[2]) for row in by_state["later"]]),
        "",
        "## Keys of which some values or options work",
        "",
        "Other values of Slurm are known, and named in a warning or refused.",
        "",
        *table(
            ("file or line", "key", "what works"),
            [(row[0], f"`{row[1]}`", row[3]) for row in by_state["partly"]],
        ),
        "",
        "## Keys without a meaning in Spritz",
        "",
        *table(("file or line", "key", "why"), [(row[0], f"`{row[1]}`", row[3]) for row in by_state["none"]]),
    ]
    return _page(lines)


def rest() -> str:
    """Versions of REST, and what is refused in a job."""
    counts = [(version, str(len(documents.operations(version)))) for version in documents.VERSIONS]
    lines = [
        "# REST",
        "",
        "slurmrestd serves every path and method of the documents that Slurm publishes for these versions, side by "
        "side. An answer has exactly the fields of its version's document; a field for which Spritz has no value is "
        "empty. [All paths](../reference/rest.md); [how to run it](../how-to/rest.md). " + _GENERATED,
        "",
        *table(("version", "operations"), counts),
        "",
        "In a request, a field that the document lacks is ignored, with a warning in `warnings`. A field of the "
        "document that Spritz does not support is refused if it has a value other than zero, false or empty:",
        "",
        *table(("field of a job", "why it is refused"), _names(entries.request_fields().entries)),
        "",
        "Paths under `/spritz/v1` have data for which Slurm's documents have no field "
        "([list](../how-to/rest.md#for-pages-and-terminals)).",
    ]
    return _page(lines)


def environment() -> str:
    """Variables that commands read."""
    lines = [
        "# Environment variables",
        "",
        "Commands read Slurm's variables; options on the command line override them. Jobs and tasks get Slurm's "
        "output variables (`SLURM_JOB_ID`, `SLURM_PROCID`, `SLURM_NODELIST`, `CUDA_VISIBLE_DEVICES` …) under the same "
        "conditions as in Slurm. " + _GENERATED,
        "",
        "A variable of an option that is refused is refused too. An empty value, `yes` or a number other than 0 sets "
        "an option that takes no argument.",
        "",
        "## sbatch, srun and salloc",
        "",
        *table(("option", *entries.SUBMISSION), _submission_variables()),
        "",
        "A step that `srun` creates inside a job inherits the job's resources: there it does not read the variables "
        "that describe the job's memory, GPUs and other devices. Slurm's srun does, so that each step asks for all of "
        "them and steps cannot run in parallel.",
        "",
        "## Other commands",
        "",
        *table(("command", "variable", "option"), _other_variables()),
        "",
        "## Variables without an option",
        "",
        *table(("variable", "meaning"), [(f"`{name}`", what) for name, what in _FURTHER_VARIABLES.items()]),
    ]
    return _page(lines)


def limits() -> str:
    """Words of sacctmgr for limits and other settings of associations and QOS."""
    associations, qos = _settings(ASSOCIATION), _settings(QOS)
    lines = [
        "# Limits and accounting",
        "",
        "slurmdbd has Slurm's accounts, users, associations, QOS, wckeys, licenses, federations and transactions; "
        "`sacctmgr`, `sacct`, `sreport`, `sshare` and `sstat` show them. The controller enforces limits as "
        "`AccountingStorageEnforce` says, also while slurmdbd does not answer. " + _GENERATED,
        "",
        "Each of these settings works. Any other word is unknown to `sacctmgr`, as in Slurm.",
        "",
        *table(
            ("setting", "of accounts and users", "of QOS", "also written"),
            [
                (
                    f"`{title}`",
                    "yes" if title in associations else "",
                    "yes" if title in qos else "",
                    ", ".join(sorted((associations.get(title, set()) | qos.get(title, set())) - {title.lower()})),
                )
                for title in sorted({*associations, *qos}, key=str.lower)
            ],
        ),
        "",
        "`Guarantee` and `ReclaimAfter` are Spritz's own: see [guarantees](../explanation/scheduling.md#guarantees).",
    ]
    return _page(lines)


def refused() -> str:
    """Everything that is refused, by its reason."""
    lines = [
        "# What is refused, and why",
        "",
        "Using one of these is an error with the reason in the middle column. Change the script as the reason says, or "
        f"leave the option out. {_GENERATED}",
        "",
        *table(("refused", "why", "where"), _reasons()),
        "",
        "Refused fields of REST requests are on the page [REST](rest.md), keys of slurm.conf without effect on "
        "the page [Keys of configuration files](configuration.md), names that job_submit plugins cannot set in "
        "[plugins](../plugins.md#names-of-a-request).",
    ]
    return _page(lines)


def differences() -> str:
    """What is meant to differ, as the side-by-side comparison sets it aside (`tests/conformance/meant.txt`)."""
    from tests.conformance.meant import read

    lines = [
        "# Differences on purpose",
        "",
        "Sessions recorded on a real Slurm 22.05 are replayed on Spritz, and every command must print the same and end "
        "with the same status. These differences are meant. " + _GENERATED,
        "",
        *table(("in Spritz", "in Slurm 22.05, or why"), [(what, why) for what, why in read().reasons if why]),
    ]
    return _page(lines)


#: file -> its title, what it has, what writes it
_SUBJECTS: dict[str, tuple[str, str, Callable[[], str]]] = {
    "refused.md": ("What is refused, and why", "every refused option, field and keyword, by reason", refused),
    "differences.md": ("Differences on purpose", "what commands print or do otherwise than a real Slurm", differences),
    "commands.md": ("Commands and keywords", "all commands; keywords and keys of `scontrol`", commands),
    "options.md": ("Options of each command", "every option, with its meaning", options),
    "fields.md": ("Fields of listings", "every column of `squeue`, `sinfo`, `sacct` and the others", fields),
    "configuration.md": ("Keys of configuration files", "which keys of slurm.conf and the others work", configuration),
    "environment.md": ("Environment variables", "variables that the commands read", environment),
    "limits.md": ("Limits and accounting", "settings of accounts, users and QOS", limits),
    "rest.md": ("REST", "versions, and fields that are refused", rest),
}

#: path below docs/ -> what writes the page
PAGES: dict[str, Callable[[], str]] = {
    "compatibility/index.md": overview,
    **{f"compatibility/{name}": make for name, (_, _, make) in _SUBJECTS.items()},
}


def _page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _sum(sections: Iterable[Section]) -> tuple[int, int]:
    every = list(sections)
    return sum(section.done for section in every), sum(section.refused for section in every)


def _options_anchor(command: str) -> str:
    return anchor("sbatch, srun and salloc" if command in entries.SUBMISSION else command)


def _names(listed: Iterable[Entry]) -> list[tuple[str, str]]:
    return [(f"`{entry.name}`", entry.refused or entry.meaning) for entry in listed]


def _works_and_refused(section: Section, meaning: str = "meaning") -> list[str]:
    """The section's table, after those of its entries that are refused. Entries without a meaning: a list."""
    done = [entry for entry in section.entries if not entry.refused]
    wrong = [entry for entry in section.entries if entry.refused]
    lines = [*table(("refused", "why"), _names(wrong)), ""] if wrong else []
    explained = [entry for entry in done if entry.meaning]
    plain = [entry for entry in done if not entry.meaning]
    if explained:
        lines += table(("name", meaning), _names(explained))
    if explained and plain:
        lines += [""]
    if plain:
        also = "These work as well: " if explained else "These work: "
        lines += [also + ", ".join(f"`{entry.name}`" for entry in plain) + "."]
    return lines


def _side_by_side(sections: list[Section]) -> list[str]:
    """One row for each option: what it does, and which command has it, has it not, or refuses it."""
    columns = [{entry.name: entry for entry in section.entries} for section in sections]
    listed = {name: entry for column in reversed(columns) for name, entry in column.items()}
    rows = []
    for name in sorted(listed, key=lambda name: name.partition("--")[2].lower() or name):
        found = [column.get(name) for column in columns]
        reasons = {entry.refused for entry in found if entry is not None and entry.refused}
        meaning = next((entry.meaning for entry in found if entry is not None and not entry.refused), "")
        cells = [_cell(entry) for entry in found]
        rows.append((f"`{name}`", "; ".join(filter(None, (meaning, *sorted(reasons)))), *cells))
    titles = (section.title for section in sections)
    return table(("option", "meaning, or why it is refused or has no effect", *titles), rows)


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    return "refused" if entry.refused else "a warning" if entry.no_effect else "yes"


def _reasons() -> list[tuple[str, str, str]]:
    """(names, why, commands) of everything that is refused, those with the same reason together."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for section in [*entries.options(), *entries.keywords(), *entries.fields()]:
        for entry in section.entries:
            if entry.refused:
                found[entry.refused][entry.name].append(section.title)
    rows = []
    for why, names in found.items():
        places = sorted({place for listed in names.values() for place in listed})
        rows.append((", ".join(f"`{name}`" for name in names), why, ", ".join(places)))
    return sorted(rows, key=lambda row: row[0].lstrip("`-").lower())


def _submission_variables() -> list[tuple[str, ...]]:
    """One row for each option that has a variable: (option, variable of sbatch, srun and salloc)."""
    cells: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command in entries.SUBMISSION:
        known = {row.name for row in entries.rows(command)}
        for variable, option in variables.table(command):
            if option in known:
                cells[option][command].append(f"`{variable}`")
    return [
        (f"`--{option}`", *(", ".join(cells[option][command]) for command in entries.SUBMISSION))
        for option in sorted(cells)
    ]


def _other_variables() -> list[tuple[str, str, str]]:
    return [
        (command, f"`{_PREFIXES.get(command, '')}{row.env}`", f"`--{row.name}`")
        for command in COMMANDS
        if command not in entries.SUBMISSION
        for row in entries.rows(command)
        if row.env
    ]


def _settings(words: dict[str, tuple[str, str, str]]) -> dict[str, set[str]]:
    """By title, the words that sacctmgr takes for the setting, in lower case."""
    titles: dict[str, set[str]] = defaultdict(set)
    for word, (_field, _kind, title) in words.items():
        titles[title].add(word)
    return titles
