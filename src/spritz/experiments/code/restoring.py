"""The environment that a run had, made again from the versions in its record: a virtual environment for another run.

It is made once and kept in $SPRITZ_HOME/venvs/DIGEST, by a digest of the interpreter, the packages and the machine:

    venv/      at its last place from the start, since a virtual environment cannot be moved
    complete   is written last; without it, venv/ was interrupted and is made again
    lock       held by the process that makes it, and by the installer that it started

Packages come from their index, or from the commit or archive that they were installed from. The user's editable
packages are not among them: only the files of their installation are written again, and what these lead to comes from
the run's snapshots (`imports`).
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments import imports
from spritz.experiments.code import interpreters, runners
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import lock_refused, need_space

#: The file of a run that has such an environment (`Restored`).
FILE = "environment.json"
#: Programs that start others in environments which cannot be chosen from outside.
_CLOSED = frozenset({"hatch", "pixi", "conda", "mamba", "micromamba", "uvx", "pipx"})
#: Options with which `uv run` makes a further environment.
_UV_OPTIONS = frozenset(
    {"--with", "--with-editable", "--with-requirements", "--isolated", "--no-project", "--python", "-p"}
)
#: Variables that would lead an installer elsewhere.
_MISLEADING = frozenset({
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT",
    "PIP_REQUIRE_VIRTUALENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_SYSTEM_PYTHON",
})  # fmt: skip
_PACKAGE = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9._!+-]+")
_SHOWN = 5
#: Last lines of an installer that are shown after its failure.
_LINES = 8


@dataclass(frozen=True)
class Restored:
    """An environment that was made again, as a run uses it."""

    #: the run whose environment it is
    run: str
    #: its directory
    venv: str
    #: directories of environments in whose place it stands, resolved
    prefixes: tuple[str, ...]

    @property
    def python(self) -> str:
        return os.path.join(self.venv, "bin", "python")

    def words(self, command: Sequence[str], directory: Path) -> tuple[str, ...]:
        """The command, with programs of this environment in place of the former's. Raises ExperimentError."""
        return tuple(self._word(word, directory) for word in command)

    def _word(self, word: str, directory: Path) -> str:
        if len(word.split()) > 1:  # a line for a shell
            for prefix in self.prefixes:
                if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
                    word = word.replace(f"{prefix}/bin/", f"{self.venv}/bin/")
            return word
        place, name = os.path.split(os.path.join(directory, word))
        folder, prefix = os.path.basename(place), os.path.realpath(os.path.dirname(place))
        if os.sep not in word or folder != "bin" or prefix not in self.prefixes:
            return word
        if os.path.exists(there := os.path.join(self.venv, "bin", name)):
            return there
        if not os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
            return word  # /usr/bin/env
        raise ExperimentError(
            f"--environment recorded: {word}: no package of {self.run} has this program",
            hint=f"{self.venv}/bin has those that there are",
        )

    def need_use(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        """Raises ExperimentError if the command would start another interpreter, as a script that names one does."""
        python = interpreters.of_command(self.words(command, directory), directory, environment)
        if python is None or os.path.dirname(os.path.abspath(python)) != os.path.join(self.venv, "bin"):
            raise _impossible(self.run, [f"the command would still start {python}"])

    def variables(self, command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
        """Variables with which programs are looked up in this environment first."""
        path = f"{self.venv}/bin{os.pathsep}{environment.get('PATH', os.defpath)}"
        return {"VIRTUAL_ENV": self.venv, "PATH": path, **runners.chosen(runners.runner(command), self.venv)}

    def lines(self, command: Sequence[str]) -> str:
        """The same for the job's shell, after the user's `setup:` lines, which may activate another environment."""
        place = shlex.quote(self.venv)
        pairs = [f"{name}={shlex.quote(text)}" for name, text in self.variables(command, {}).items() if name != "PATH"]
        return f"export PATH={place}/bin:$PATH {' '.join(pairs)}; unset PYTHONHOME\n"

    def targets(self, root: str, names: Sequence[str]) -> dict[str, str]:
        """Those of the links into the working tree that lead to a former environment -> this one."""
        return {name: self.venv for name in names if os.path.realpath(os.path.join(root, name)) in self.prefixes}


def of_run(directory: Path) -> Restored | None:
    """The environment that was made for the run; None for a run in the present one. Raises ExperimentError."""
    path = directory / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Restored(values["run"], values["venv"], tuple(values["prefixes"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ExperimentError(f"{path} is damaged: {error}") from error


def written(restored: Restored) -> str:
    """The content of a run's file."""
    return json.dumps(asdict(restored), indent=1) + "\n"


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of."""

    python: str
    machine: str
    #: where the interpreter was
    base: str
    #: for an installer, each of one fixed version
    requirements: tuple[str, ...]
    #: NAME==VERSION of all packages
    packages: tuple[str, ...]
    #: package -> files of its editable installation, by their paths from site-packages
    editables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: .pth files
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        parts = [self.python, self.machine, sorted(self.requirements), self.editables, self.paths]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def recipe(run: str, facts: Mapping[str, Any]) -> Recipe:
    """What the environment of a run is made of, by what is known of its interpreter (`imports.interpreter`).

    Raises ExperimentError, with every reason, if it cannot be made again.
    """
    if "packages" not in facts:
        raise _impossible(run, ["it is not known which interpreter ran"])
    if "origins" not in facts:
        raise _impossible(run, ["an older release recorded it, without the origins of its packages"])
    reasons = []
    if facts["implementation"] != "cpython":
        reasons.append(f"its interpreter is {facts['implementation']}")
    if facts["machine"] != os.uname().machine:
        reasons.append(f"it ran on a machine of another architecture ({facts['machine']})")
    requirements, of_conda = [], []
    for package in facts["packages"]:
        name = package.partition("==")[0]
        origin = facts["origins"].get(name, {})
        if origin.get("installer") == "conda":
            of_conda.append(name)
        elif origin.get("dir_info", {}).get("editable"):
            texts = facts["editables"].get(name) or {"": None}
            if None in texts.values():
                reasons.append(f"{name} is editable, but parts of it were built when it was installed")
        elif not _PACKAGE.fullmatch(package):
            reasons.append(f"{package!r} is no version of a package")
        elif not origin:
            requirements.append(package)
        elif (fixed := _fixed(origin)) and not re.search(r"\s", fixed):
            requirements.append(f"{name} @ {fixed}")
        else:
            reasons.append(
                f"{name} was installed from {origin.get('url') or 'an unknown place'}, which may have changed"
            )
    if of_conda:
        more = f" and {len(of_conda) - _SHOWN} more" if len(of_conda) > _SHOWN else ""
        reasons.append(f"these packages are conda's: {', '.join(of_conda[:_SHOWN])}{more}")
    if reasons:
        raise _impossible(run, reasons)
    paths = {name: text for name, text in facts["paths"].items() if not name.startswith("_virtualenv")}
    return Recipe(
        facts["python"], facts["machine"], facts["base"], tuple(requirements), tuple(facts["packages"]),
        facts["editables"], paths,
    )  # fmt: skip


def _impossible(run: str, reasons: Sequence[str]) -> ExperimentError:
    return ExperimentError(
        f"--environment recorded: the environment of {run} cannot be made again: {'; '.join(reasons)}",
        hint="without this option it runs in the present environment, and the differences are named",
    )


def _fixed(origin: Mapping[str, Any]) -> str:
    """The address that always gives the same package; "" if there is none. Source: PEP 610."""
    url = origin.get("url", "")
    fragment = f"subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        return f"{origin['vcs_info']['vcs']}+{url}@{commit}{f'#{fragment}' if fragment else ''}"
    archive = origin.get("archive_info", {})
    digests = [f"{name}={digest}" for name, digest in archive.get("hashes", {}).items()] or [archive.get("hash")]
    if url and digests[0]:
        return f"{url}#{'&'.join(filter(None, (digests[0], fragment)))}"
    return ""


def need_command(run: str, command: Sequence[str], image: str) -> None:
    """Raises ExperimentError for a command that uses no environment which could be replaced."""
    name = os.path.basename(command[0]) if command else ""
    before_program = itertools.takewhile(
        lambda word: word != "--" and not word.endswith(".py") and not interpreters.PYTHON.fullmatch(word), command[2:]
    )
    if image:
        raise _impossible(run, [f"the command runs in the container {image}, whose packages are its own"])
    if name in _CLOSED or (name == "uv" and tuple(command[1:2]) == ("tool",)):
        raise _impossible(run, [f"`{name}` chooses its environments itself"])
    if name == "uv" and (extra := _UV_OPTIONS & {word.partition("=")[0] for word in before_program}):
        raise _impossible(run, [f"`uv run {min(extra)}` makes an environment itself"])


def make(
    run: str, wanted: Recipe, home: Path, directory: Path, environment: Mapping[str, str], tell: Callable[[str], None]
) -> str:
    """The directory of the environment, which is made unless it is there. `directory`: of the project, whose settings
    of uv apply. `tell` gets lines for the user. Raises ExperimentError; nothing half made is left.
    """
    need_space(home)
    place = home / "venvs" / wanted.digest
    venv, complete = place / "venv", place / "complete"
    with _locked(place, tell) as lock:
        if complete.exists() and (venv / "bin" / "python").exists():
            os.utime(complete)
            return str(venv)
        variables = {name: text for name, text in environment.items() if name not in _MISLEADING}
        variables |= {"UV_PYTHON_DOWNLOADS": "never", "GIT_TERMINAL_PROMPT": "0"}
        uv = shutil.which("uv", path=environment.get("PATH"))
        base = _base(run, wanted, uv, variables)
        begun = time.monotonic()
        by = "uv" if uv else "pip"
        count = len(wanted.packages)
        tell(f"making the environment of {run} ({count} package{'s' if count != 1 else ''}) with {by}")
        complete.unlink(missing_ok=True)
        _remove(venv)
        try:
            _build(_Builder(run, venv, uv, variables, directory if directory.is_dir() else home, lock), wanted, base)
            _verify(run, wanted, home, venv, variables)
            _write(complete, f"{run}\n")
        except OSError as error:
            _remove(venv)
            raise ExperimentError(f"{error.filename or place}: {error.strerror}") from error
        except BaseException:
            _remove(venv)
            raise
        tell(f"made {venv} in {time.monotonic() - begun:.0f} s")
    return str(venv)


@contextmanager
def _locked(place: Path, tell: Callable[[str], None]) -> Iterator[int]:
    """Holds the lock of an environment; its file's descriptor. Raises ExperimentError."""
    while (descriptor := _acquired(place / "lock", tell)) is None:
        pass
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _acquired(path: Path, tell: Callable[[str], None]) -> int | None:
    """The descriptor of the locked file; None if it was removed meanwhile, with its directory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another process makes {path.parent}: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            held, descriptor = descriptor, -1
            return held
    except FileNotFoundError:
        pass
    except OSError as error:
        raise lock_refused(path, error) from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _base(run: str, wanted: Recipe, uv: str | None, variables: Mapping[str, str]) -> str:
    """An interpreter of the recorded version. Raises ExperimentError."""
    short = ".".join(wanted.python.split(".")[:2])
    by_name = (shutil.which(name, path=variables.get("PATH")) for name in (f"python{short}", "python3", "python"))
    by_uv = runners.answer((uv, "python", "find", "--no-project", wanted.python), Path("/"), variables) if uv else ""
    program = "import sys; print(sys.implementation.name, sys.version.split()[0])"
    for candidate in filter(None, (wanted.base, *by_name, by_uv)):
        if runners.answer((candidate, "-I", "-c", program), Path("/"), variables) == f"cpython {wanted.python}":
            return candidate
    error = _impossible(run, [f"Python {wanted.python} is not on this machine"])
    error.hint = f"`uv python install {wanted.python}` installs it" if uv else error.hint
    raise error


@dataclass(frozen=True)
class _Builder:
    """Runs installers."""

    run: str
    venv: Path
    uv: str | None
    variables: Mapping[str, str]
    directory: Path
    #: the lock's descriptor: it is held as long as an installer lives, even if this process is killed
    lock: int

    def call(self, *words: str) -> None:
        """Its progress appears on a terminal. Raises ExperimentError."""
        shown = sys.stderr.isatty()
        try:
            done = subprocess.run(
                words, cwd=self.directory, env=dict(self.variables), stdin=subprocess.DEVNULL, text=True, check=False,
                stdout=sys.stderr if shown else subprocess.PIPE, stderr=None if shown else subprocess.STDOUT,
                pass_fds=(self.lock,),
            )  # fmt: skip
        except OSError as error:
            raise ExperimentError(f"{words[0]}: {error.strerror}") from error
        if done.returncode:
            printed = (done.stdout or "").strip().splitlines()
            # Of a package whose build fails, pip's last lines do not say the name.
            package = [line for line in printed[:-_LINES] if line.startswith("Collecting ")][-1:]
            last = "\n".join([*package, *printed[-_LINES:]])
            raise ExperimentError(
                f"--environment recorded: the environment of {self.run} could not be made: `{shlex.join(words[:4])} …` "
                f"ended with status {done.returncode}",
                hint=last or "its messages are above",
            )


def _build(builder: _Builder, wanted: Recipe, base: str) -> None:
    venv, uv = builder.venv, builder.uv
    python = str(venv / "bin" / "python")
    listed = venv.with_name("requirements.txt")
    listed.write_text("".join(f"{line}\n" for line in wanted.requirements), encoding="utf-8")
    if uv:
        builder.call(uv, "venv", "--quiet", "--no-project", "--no-config", "--python", base, str(venv))
        if wanted.requirements:
            builder.call(uv, "pip", "install", "--no-deps", "--python", python, "-r", str(listed))
    else:
        _build_by_pip(builder, wanted, base, listed)
    site = next(venv.glob("lib/python3*/site-packages"))
    for texts in wanted.editables.values():
        for name, text in texts.items():
            _put(venv, Path(os.path.normpath(site / name)), text.replace(imports.PREFIX, str(venv)))
    for name, text in wanted.paths.items():
        # Those of packages are there. Of others, only directories: the modules that they import are not known.
        if not (site / name).exists():
            lines = [line for line in text.splitlines() if line and not line.startswith(("import ", "import\t", "#"))]
            _put(venv, site / os.path.basename(name), "".join(f"{line}\n" for line in lines))


def _build_by_pip(builder: _Builder, wanted: Recipe, base: str, listed: Path) -> None:
    """By the interpreter's pip, if that can install elsewhere (22.3); else by one in the environment."""
    python = str(builder.venv / "bin" / "python")
    program = "import pip; print(tuple(map(int, pip.__version__.split('.')[:2])) >= (22, 3))"
    outside = runners.answer((base, "-I", "-c", program), Path("/"), builder.variables) == "True"
    needed = bool(wanted.requirements) and not outside
    builder.call(base, "-I", "-m", "venv", *([] if needed else ["--without-pip"]), str(builder.venv))
    if not wanted.requirements:
        return
    pip = (base, "-I", "-m", "pip", "--python", python) if outside else (python, "-m", "pip")
    builder.call(*pip, "install", "--no-deps", "-r", str(listed))
    names = {package.partition("==")[0].lower() for package in wanted.packages}
    if needed and (brought := sorted({"pip", "setuptools"} - names, reverse=True)):
        builder.call(*pip, "uninstall", "--yes", "--quiet", *brought)


def _put(venv: Path, path: Path, text: str) -> None:
    """Write a file of an editable installation, unless its place is outside the environment."""
    if not imports.is_below(str(path), str(venv)):
        return
    program = path.parent == venv / "bin"
    first, newline, others = text.partition("\n")
    if program and first.startswith("#!") and "python" in first and str(venv) not in first:
        text = f"#!{venv}/bin/python{newline}{others}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if program:
        path.chmod(0o755)


def _verify(run: str, wanted: Recipe, home: Path, venv: Path, variables: Mapping[str, str]) -> None:
    """Raises ExperimentError unless the environment has the packages: settings of installers may override versions."""
    facts = interpreters.examine(home, str(venv / "bin" / "python"), variables)
    if missing := sorted(set(wanted.packages) - set(facts.get("packages", ()))):
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ExperimentError(
            f"--environment recorded: the environment of {run} was made without {', '.join(missing[:_SHOWN])}{more}",
            hint="settings of uv or pip, such as constraints and overrides, may choose other versions",
        )


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _remove(venv: Path) -> None:
    if venv.exists():
        shutil.rmtree(venv, ignore_errors=True)


def remove_unused(home: Path, directories: Sequence[Path], before: float) -> None:
    """Remove environments that no run in these directories has, and that none was given since that time.

    Raises ExperimentError if it is not known what a run has.
    """
    environments = [place for place in home.glob("venvs/*") if place.is_dir()]
    if not environments:
        return
    used = {restored.venv for directory in directories if (restored := of_run(directory))}
    for place in environments:
        if str(place / "venv") in used:
            continue
        with suppress(OSError), open(place / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            complete = place / "complete"
            newest = complete if complete.exists() else place / "lock"
            if newest.stat().st_mtime < before:
                complete.unlink(missing_ok=True)
                shutil.rmtree(place, ignore_errors=True)
