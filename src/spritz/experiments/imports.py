"""The program's side of a run's code: imports come from the snapshot, and others are written down.

An editable installation, a .pth file or PYTHONPATH leads the interpreter to the working tree, which may change while
the run waits. In the job this file lies in a directory of PYTHONPATH as `sitecustomize.py`, so that each Python of the
run executes it after site-packages' .pth files and before the program:

- Paths into a working tree that the run has a snapshot of are replaced by paths into the snapshot, at the same place in
  `sys.path` and in the tables of the finders that editable installations put into `sys.meta_path`. Paths that are gone
  since, as of a working tree that was moved or an installation that was removed, are added again.
- When the process ends, it writes into the run's directory which interpreter it was (`python/`), and which modules came
  from files that are neither in the snapshot nor installed (`imports/`).

SPRITZ_RUN_SOURCES names a file of words, each ended by a NUL: the environment of the interpreter that was asked at
submission; the number of its paths into working trees, and each of them as the interpreter has it and resolved; then
pairs of a working tree and the place of its snapshot (relative: below SPRITZ_RUN_DIR). The module runs in the user's
interpreters: Python 3.7 and newer, the standard library only, few imports before the program's own; and its failures
are not the program's.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the import of `typing` takes 3 ms
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

#: Files of one process that are written down.
FILES_MAX = 500

#: Directories of installed packages.
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def is_below(path: str, directory: str) -> bool:
    """Whether the path is the directory or lies in it. Nothing counts as below the root directory."""
    return directory != os.sep and (path == directory or path.startswith(directory.rstrip(os.sep) + os.sep))


def is_installed(path: str) -> bool:
    """Whether the path belongs to the interpreter or to an installed package."""
    if any(part in path for part in _INSTALLED) or path.startswith("/usr/lib"):
        return True
    # `pip install -e git+…` clones into the environment's directory src.
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.abspath(os.__file__))} - {"/usr"}
    return any(is_below(path, place) and not is_below(path, os.path.join(place, "src")) for place in prefixes)


class Sources:
    """Working trees with the places of their snapshots."""

    def __init__(
        self, pairs: Iterable[tuple[str, str]], paths: Iterable[tuple[str, str]] = (), prefix: str = ""
    ) -> None:
        #: the innermost first
        self.pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
        #: paths of the interpreter in that environment at submission, and what they were resolved: a tree may have been
        #: moved since, and a link may lead there
        self.paths = dict(paths)
        self.prefix = prefix

    def moved(self, path: str) -> str:
        """The same path in the snapshot; the path itself if no snapshot has it."""
        if not os.path.isabs(path):
            return path
        real = self.paths.get(path) or os.path.realpath(path)
        for root, place in self.pairs:
            # A virtual environment in the project stays where it is.
            if not is_below(real, root) or (is_below(real, sys.prefix) and not is_below(root, sys.prefix)):
                continue
            there = os.path.normpath(os.path.join(place, os.path.relpath(real, root)))
            if os.path.exists(there):
                return there
        return path


def from_environment() -> Sources:
    """The sources of the run that this process belongs to. Raises KeyError and OSError."""
    with open(os.environ["SPRITZ_RUN_SOURCES"], "rb") as file:
        words = iter([os.fsdecode(word) for word in file.read().split(b"\0")[:-1]])
    run = os.environ["SPRITZ_RUN_DIR"]
    prefix = next(words, "")
    paths = [(next(words), next(words)) for _ in range(int(next(words, "0")))]
    return Sources([(root, os.path.join(run, next(words))) for root in words], paths, prefix)


def tables() -> Iterator[dict[Any, Any]]:
    """Dicts in which finders of editable installations (setuptools, editables, scikit-build) keep paths by names."""
    seen = set()
    for finder in list(sys.meta_path):
        kind = finder if isinstance(finder, type) else type(finder)
        if kind.__module__.startswith(("_frozen_importlib", "_distutils_hack", "importlib")):
            continue
        for holder in (finder, kind, sys.modules.get(kind.__module__)):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                if isinstance(value, dict) and not name.startswith("__") and id(value) not in seen:
                    seen.add(id(value))
                    yield value


def paths_in(table: dict[Any, Any]) -> Iterator[tuple[str, list[str]]]:
    """(key, paths) of a finder's table; nothing for other dicts."""
    for key, value in list(table.items()):
        paths = list(value) if isinstance(value, (list, tuple)) else [value]
        if isinstance(key, str) and paths and all(isinstance(path, str) and os.path.isabs(path) for path in paths):
            yield key, paths


def take_from(sources: Sources) -> None:
    """Replace paths into working trees, in place."""
    sys.path[:] = [sources.moved(path) for path in sys.path]
    if sources.paths and os.path.realpath(sys.prefix) == sources.prefix:
        frozen = [there for there in map(sources.moved, sources.paths) if there not in sources.paths]
        # Before what has come since, which would hide them.
        news = (
            at for at, path in enumerate(sys.path) if not is_installed(os.path.join(path, "")) and path not in frozen
        )
        place = next(news, len(sys.path))
        sys.path[place:place] = [path for path in frozen if path not in sys.path]
    sys.path_importer_cache.clear()
    for table in tables():
        for key, paths in paths_in(table):
            moved = [sources.moved(path) for path in paths]
            if moved != paths:
                table[key] = moved[0] if isinstance(table[key], str) else type(table[key])(moved)


def places() -> list[str]:
    """Directories and files outside the installation to which imports lead."""
    paths_seen = [path for path in sys.path if path and os.path.isdir(path)]
    paths_seen += [path for table in tables() for _, paths in paths_in(table) for path in paths if os.path.exists(path)]
    return sorted({path for path in paths_seen if not is_installed(os.path.join(path, ""))})


def stamp(name: str, prefix: str) -> str:
    """The key of an interpreter's file in `environments/`; it changes when a package is installed.

    `prefix`: its environment, resolved, since a run's checkout may have a link to it.
    """
    import glob
    import hashlib

    words = [name]
    places_of_packages = [os.path.join(prefix, "bin", name)]
    for place in _prefixes(prefix):
        pattern = os.path.join(glob.escape(place), "lib*", "python3*", "*-packages")
        places_of_packages += [place, *sorted(glob.glob(pattern))]
    for place in places_of_packages:
        try:
            words.append(f"{place}:{os.stat(place).st_mtime_ns}")
        except OSError:
            continue
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _prefixes(prefix: str) -> list[str]:
    """Directories below which an environment's packages lie: itself, and others that it lets its programs see."""
    prefixes = [prefix]
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            lines = [line.partition("=") for line in file]
        settings = {name.strip().lower(): text.strip() for name, _, text in lines}
        if settings.get("include-system-site-packages", "").lower() != "true":
            return prefixes
        prefixes.append(os.path.dirname(os.path.realpath(settings["home"])))
    except (OSError, KeyError):
        pass
    if prefixes[-1] == "/usr":
        prefixes.append("/usr/local")
    return [*prefixes, _user_base()]


#: Stands for the environment's directory in the texts of files that belong to an editable installation.
PREFIX = "@PREFIX@"
#: Characters of such a file; what is longer, or not text, was built at the installation.
_TEXT_MAX = 1 << 20
#: Files in the .dist-info directory that programs read.
_OF_A_DISTRIBUTION = ("METADATA", "RECORD", "WHEEL", "INSTALLER", "entry_points.txt", "direct_url.json")


def interpreter() -> dict[str, Any]:
    """This interpreter, its packages with their origins, and where else its imports lead (70 ms for 300 packages).

    `origins`: package -> how it was installed, if not by pip or its like from an index: the content of its
    direct_url.json (PEP 610), or {"installer": "conda"}. `editables`: package -> the files of its installation, by
    their paths from its directory, None for one that is not text. `paths`: .pth files.
    """
    packages: dict[str, str] = {}
    origins: dict[str, Any] = {}
    editables: dict[str, Any] = {}
    try:
        from importlib import metadata
    except ImportError:  # before 3.8
        pass
    else:
        for distribution in metadata.distributions():
            name = distribution.metadata["Name"]
            # Metadata in a working tree, as of `setup.py develop`, belongs to its code.
            if not name or name in packages or not is_installed(os.path.join(str(distribution.locate_file("")), "")):
                continue
            packages[name] = f"{name}=={distribution.version}"
            origin = _origin(distribution)
            if origin.get("dir_info", {}).get("editable"):
                editables[name] = _texts(distribution)
            if origin:
                origins[name] = origin
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "machine": os.uname().machine,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base": getattr(sys, "_base_executable", "") or sys.executable,
        "base_prefix": sys.base_prefix,
        "packages": sorted(packages.values(), key=str.lower),
        "origins": origins,
        "editables": editables,
        "paths": _path_files(),
        "places": places(),
        "path": [path for path in sys.path if os.path.isdir(path) and not is_installed(os.path.join(path, ""))],
    }


def _origin(distribution: Any) -> dict[str, Any]:
    """How the package was installed; {} if from an index."""
    import json

    try:
        origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
        # Its writer should have left out what is secret in the address.
        scheme, separator, address = origin.get("url", "").partition("://")
        host, slash, path = address.partition("/")
        if separator and ":" in host.rpartition("@")[0]:
            origin["url"] = scheme + separator + host.rpartition("@")[2] + slash + path
    except ValueError:
        origin = {"url": ""}
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        origin["installer"] = "conda"
    return origin


def _texts(distribution: Any) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    base = str(distribution.locate_file(""))
    for file in distribution.files or ():
        path = str(distribution.locate_file(file))
        folder, name = os.path.split(path)
        if name.endswith(".pyc") or (".dist-info" in folder and name not in _OF_A_DISTRIBUTION):
            continue
        try:
            with open(path, encoding="utf-8") as opened:
                text = opened.read(_TEXT_MAX + 1)
        except OSError:
            continue
        except ValueError:
            text = "\0"
        if name == "METADATA":
            text = text.partition("\n\n")[0].rstrip("\n") + "\n"  # without the description
        # Relative, although poetry writes absolute ones.
        texts[os.path.relpath(path, base)] = None if "\0" in text or len(text) > _TEXT_MAX else _without_prefix(text)
    return texts


def _without_prefix(text: str) -> str:
    for prefix in {sys.prefix, os.path.realpath(sys.prefix)} - {"/usr"}:
        text = text.replace(prefix + os.sep, PREFIX + os.sep)
    return text


def _path_files() -> dict[str, str]:
    """Name -> text of each .pth file."""
    texts: dict[str, str] = {}
    for place in sys.path:
        if not place.endswith("-packages") or not os.path.isdir(place):
            continue
        for name in sorted(os.listdir(place)):
            if name.endswith(".pth") and name not in texts:
                try:
                    with open(os.path.join(place, name), encoding="utf-8") as file:
                        texts[name] = _without_prefix(file.read(_TEXT_MAX))
                except (OSError, ValueError):
                    continue
    return texts


def program() -> str:
    """The script that this process runs, asked before it begins; "" for a module, `-c`, and Python 3.7."""
    words = getattr(sys, "argv", None) or [""]
    path = os.path.abspath(words[0])
    return path if words[0] and os.path.isfile(path) else ""


def _is_tool(path: str) -> bool:
    """Whether a script lies where installers put programs of the system and of the user."""
    places = ("/bin", "/usr/bin", "/usr/local/bin", "/usr/sbin", os.path.join(_user_base(), "bin"))
    return os.path.dirname(path) in places


def _user_base() -> str:
    return os.environ.get("PYTHONUSERBASE") or os.path.expanduser(os.path.join("~", ".local"))


def outside(run: str, sources: Sources, script: str = "") -> list[str]:
    """Files of this process's modules, and its script, that are neither installed nor in the run's snapshot."""
    home = os.path.dirname(os.path.dirname(run))
    frozen = [os.path.realpath(place) for place in (home, *(place for _, place in sources.pairs))]
    files = set()
    candidates: list[Any] = [] if _is_tool(script) else [script]
    for module in list(sys.modules.values()):
        try:
            candidates.append(object.__getattribute__(module, "__dict__").get("__file__"))  # loads no lazy module
        except AttributeError:
            continue
    for path in candidates:
        if not isinstance(path, str) or not os.path.isabs(path) or is_installed(path) or not os.path.isfile(path):
            continue
        real = os.path.realpath(path)
        if not is_installed(real) and not any(is_below(real, place) for place in frozen):
            files.add(real)
    return sorted(files)[:FILES_MAX]


def write_down(run: str, sources: Sources, script: str = "") -> None:
    """Write which interpreter this was, and which of its modules and `script` came from elsewhere; a file for each
    answer.

    Processes with the same answer, as a thousand ranks, write the same file. Raises OSError.
    """
    import hashlib
    import json

    home = os.path.dirname(os.path.dirname(run))
    if "SPRITZ_SAMPLER" in os.environ or is_below(script, os.path.join(home, "inside")):
        return  # a program of the run's script, not the user's
    prefix = os.path.realpath(sys.prefix)
    executable = os.path.join(prefix, "bin", os.path.basename(sys.executable))
    key = stamp(os.path.basename(executable), prefix)
    kept = os.path.join(home, "environments", f"{key}.json")
    if os.path.isdir(home) and not os.path.exists(kept):
        facts = dict(interpreter(), id=key, executable=executable, prefix=prefix)
        # They lead into this run's snapshots. The next submission asks again.
        del facts["places"], facts["path"]
        _write(kept, json.dumps(facts))
    path = os.path.join(run, "python", f"{key}.json")
    if _imported(path, json) < len(sys.modules):
        _write(path, json.dumps({"id": key, "executable": executable, "modules": len(sys.modules)}))
    digests = {}
    for file_name in outside(run, sources, script):
        with open(file_name, "rb") as file:
            digests[file_name] = hashlib.sha256(file.read()).hexdigest()
    if digests:
        text = json.dumps({"executable": executable, "files": digests}, sort_keys=True)
        path = os.path.join(run, "imports", f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json")
        if not os.path.exists(path):
            _write(path, text)


def _imported(path: str, json: Any) -> int:
    """The number of modules that the file tells of: the run's own interpreter has the most, others only start it."""
    try:
        with open(path, encoding="utf-8") as file:
            return int(json.load(file)["modules"])
    except (OSError, ValueError, KeyError):
        return 0


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = f"{path}.{os.uname()[1]}.{os.getpid()}"
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(scratch, path)


def _ended(pid: int, run: str, sources: Sources, script: str) -> None:
    if os.getpid() != pid:
        return  # a forked child with its parent's handlers
    try:
        write_down(run, sources, script)
    except Exception:  # a full disk, a home that no container sees: the program has its result
        pass


def start() -> None:
    """Called once in each interpreter of the run."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    try:
        sources = from_environment()
        take_from(sources)
        import atexit

        # Python takes the name of its script away before it calls this.
        atexit.register(_ended, os.getpid(), os.environ["SPRITZ_RUN_DIR"], sources, program())
    except Exception as error:
        sys.stderr.write(f"spritz: imports do not come from the snapshot: {error!r}\n")
    # The site's or the environment's own, which this one has hidden.
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # where there is one
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    start()
