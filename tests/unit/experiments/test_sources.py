"""Imports of a run come from its snapshots, by whatever way its environment leads to the working trees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from spritz.experiments import imports
from spritz.experiments.code import cleaning, interpreters, outward, snapshot, sources
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.records import record
from spritz.experiments.records.record import Run

from .test_snapshot import git

#: As setuptools writes it for a package whose directory's parent has other packages too.
_FINDER = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
MAPPING = {mapping!r}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return spec_from_file_location(name, MAPPING[name] + "/__init__.py")
        return None
def install():
    sys.meta_path.append(Finder)
"""


@dataclass
class Site:
    """A user's home with a project and an environment beside it."""

    base: Path

    @property
    def project(self) -> Path:
        return self.base / "project"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def store(self) -> Path:
        return self.home / "snapshots.git"

    @property
    def python(self) -> str:
        return str(self.base / "env" / "bin" / "python")

    def site_packages(self) -> Path:
        return next((self.base / "env" / "lib").glob("python3*/site-packages"))

    def tree(self, name: str, files: dict[str, str], *, in_git: bool = True) -> Path:
        path = self.base / name
        for file, text in files.items():
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_text(text)
        if in_git:
            git(path, "init", "-q", "-b", "main")
            git(path, "add", "-A")
            git(path, "commit", "-q", "-m", "one")
        return path

    def freeze(self, **environment: str) -> Snapshot:
        def take(directory: Path, modules: Sequence[str]) -> Snapshot:
            return snapshot.take(directory, self.store, modules=modules)

        found = interpreters.examine(self.home, self.python, environment)
        places = interpreters.places(found, environment, self.home)
        return sources.with_paths(sources.freeze(self.project, self.store, places, take), found, environment)

    def run(self, code: Snapshot, program: str, *flags: str, name: str = "r", **environment: str) -> str:
        """What the program prints where a job's script would start it."""
        directory = self.home / "runs" / name
        directory.mkdir(parents=True)
        trees = {"code": code.tree} | {f"sources/{source.name}": source.tree for source in code.sources}
        for place, tree in trees.items():
            script = snapshot.checkout_lines(self.store, tree, str(directory / place))
            subprocess.run(["bash", "-euc", script], check=True)
        places = {source.root: f"{directory}/sources/{source.name}" for source in code.sources}
        subprocess.run(["bash", "-euc", outward.lines(code.outward, places, str(directory / "code"))], check=True)
        (directory / sources.FILE).write_bytes(sources.pairs(code, directory))
        path = [str(sources.install(self.home)), *filter(None, [environment.pop("PYTHONPATH", "")])]
        done = subprocess.run(
            [self.python, *flags, "-c", program],
            cwd=directory / "code",
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(path),
                "SPRITZ_RUN_DIR": str(directory),
                "SPRITZ_RUN_SOURCES": str(directory / sources.FILE),
                **environment,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    base = Path(os.path.realpath(tmp_path))
    venv.create(base / "env", symlinks=True)
    made = Site(base)
    made.home.mkdir()
    made.tree("project", {"src/mylib/__init__.py": "VALUE = 5\n", "train.py": ""})
    return made


def installed_by_path(site: Site, path: Path) -> None:
    (site.site_packages() / "own.pth").write_text(f"{path}\n")


def installed_by_finder(site: Site, name: str, path: Path) -> None:
    (site.site_packages() / "__editable___finder.py").write_text(_FINDER.format(mapping={name: str(path)}))
    (site.site_packages() / "editable.pth").write_text("import __editable___finder; __editable___finder.install()\n")


@pytest.mark.parametrize("how", ["path", "finder", "PYTHONPATH", "link"])
def test_an_edit_after_submission_does_not_reach_the_run(site: Site, how: str) -> None:
    package, variables = site.project / "src" / "mylib", {}
    if how == "path":
        installed_by_path(site, package.parent)
    elif how == "finder":
        installed_by_finder(site, "mylib", package)
    elif how == "PYTHONPATH":
        variables["PYTHONPATH"] = str(package.parent)
    else:
        (site.base / "link").symlink_to(site.project)
        installed_by_path(site, site.base / "link" / "src")
    code = site.freeze(**variables)
    (package / "__init__.py").write_text("VALUE = 999\n")
    assert site.run(code, "import mylib; print(mylib.VALUE)", **variables) == "5"
    assert code.unfrozen == ()
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}


@pytest.mark.parametrize("gone", ["moved", "link to another", "uninstalled", "another installation"])
@pytest.mark.parametrize("how", ["path", "PYTHONPATH", "link"])
def test_a_working_tree_that_is_gone_is_not_missed(site: Site, how: str, gone: str) -> None:
    """The interpreter leaves out a .pth file's directory that does not exist, or finds another one in its place."""
    common = site.tree("common", {"commonlib.py": "C = 1\n"})
    variables = {"PYTHONPATH": str(common)} if how == "PYTHONPATH" else {}
    if how == "path":
        installed_by_path(site, common)
    elif how == "link":
        (site.base / "link").symlink_to(common)
        installed_by_path(site, site.base / "link")
    code = site.freeze(**variables)
    other = site.tree("other", {"commonlib.py": "C = 2\n"})
    if gone == "uninstalled" and how != "PYTHONPATH":
        (site.site_packages() / "own.pth").unlink()
    elif gone == "another installation" and how != "PYTHONPATH":
        installed_by_path(site, other)
    else:
        common.rename(site.base / "moved")
        if gone == "link to another":
            common.symlink_to(other)
    assert site.run(code, "import commonlib; print(commonlib.C)", **variables) == "1"


def test_another_environment_gets_no_paths_of_the_one_at_submission(site: Site) -> None:
    installed_by_path(site, site.tree("common", {"commonlib.py": "C = 1\n"}))
    code = site.freeze()
    venv.create(site.base / "other", symlinks=True)
    shutil.rmtree(site.base / "env")
    (site.base / "other").rename(site.base / "elsewhere")
    (site.base / "env").symlink_to(site.base / "elsewhere")
    assert site.run(code, "import importlib.util; print(importlib.util.find_spec('commonlib'))") == "None"


def test_a_job_does_not_answer_for_the_next_submission(site: Site) -> None:
    """What its interpreter writes down has the snapshots' paths: the next run would not freeze the other tree."""
    first = site.freeze()
    common = site.tree("common", {"commonlib.py": "C = 1\n"})
    installed_by_path(site, common)  # between its submission and its start
    site.run(first, "")
    assert [source.root for source in site.freeze().sources] == [str(common)]


@pytest.mark.parametrize("in_git", [True, False])
def test_another_working_tree_is_frozen_too(site: Site, in_git: bool) -> None:
    common = site.tree("common", {"commonlib/__init__.py": "C = 1\n"}, in_git=in_git)
    installed_by_finder(site, "commonlib", common / "commonlib")
    code = site.freeze()
    (common / "commonlib" / "__init__.py").write_text("C = 2\n")
    assert site.run(code, "import commonlib; print(commonlib.C)") == "1"
    (source,) = code.sources
    assert source.root == str(common if in_git else common / "commonlib")
    assert bool(source.commit) is in_git
    assert Snapshot.of(json.loads(json.dumps(asdict(code)))) == code


def test_sources_are_kept_as_long_as_the_snapshot_that_they_belong_to(site: Site) -> None:
    installed_by_path(site, site.tree("common", {"commonlib.py": "C = 1\n"}))
    code = site.freeze()
    for now in (3e9, 4e9):
        cleaning.remove_all_but({code.tree}, site.store, now)
    assert site.run(code, "import commonlib; print(commonlib.C)") == "1"
    (source,) = code.sources
    for now in (5e9, 6e9):
        cleaning.remove_all_but(set(), site.store, now)
    assert snapshot.names(site.store, source.tree) == []


def test_modules_that_git_ignores_belong_to_the_snapshot(site: Site) -> None:
    """Compiled modules and versions that a build writes: without them a package in the snapshot cannot be imported."""
    (site.project / ".gitignore").write_text("_version.py\n*.so\nloose.py\ngenerated/\ndata/\n")
    package = site.project / "src" / "mylib"
    (package / "_version.py").write_text("V = 7\n")
    (package / "generated").mkdir()
    (package / "generated" / "__init__.py").write_text("G = 8\n")
    (package.parent / "loose.py").write_text("L = 9\n")
    (site.project / "data").mkdir()
    (site.project / "data" / "large.py").write_text("no package\n")
    (site.project / "loose.py").write_text("not imported from here\n")
    installed_by_path(site, package.parent)
    code = site.freeze()
    names = {name for name in snapshot.names(site.store, code.tree) if name.endswith(".py")}
    assert names == {
        "train.py",
        *(f"src/{name}" for name in ("mylib/__init__.py", "mylib/_version.py", "mylib/generated/__init__.py")),
        "src/loose.py",
    }


def test_an_environment_inside_the_project_is_not_taken_for_code(site: Site) -> None:
    shutil.move(site.base / "env", site.project / ".venv")
    (site.base / "env").symlink_to(site.project / ".venv")
    site_packages = next((site.project / ".venv" / "lib").glob("python3*/site-packages"))
    (site_packages / "installed.py").write_text("I = 3\n")
    (site.project / ".gitignore").write_text(".venv\n")
    code = site.freeze()
    program = "import installed; print(installed.__file__)"
    done = subprocess.run([site.project / ".venv/bin/python", "-c", program], capture_output=True, text=True)
    assert site.run(code, program).endswith("site-packages/installed.py"), done.stdout
    assert code.sources == ()
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}


def test_what_cannot_be_frozen_is_named(site: Site) -> None:
    (site.project / ".gitignore").write_text("build/\n")
    (site.project / "build" / "editable").mkdir(parents=True)
    (site.project / "build" / "editable" / "strict.py").write_text("S = 1\n")
    installed_by_path(site, site.project / "build" / "editable")
    code = site.freeze()
    assert code.unfrozen == (f"{site.project}/build/editable: git ignores it",)
    assert site.run(code, "import strict; print(strict.S)") == "1"
    assert list(interpreters.imported_from_outside(site.home / "runs" / "r")) == [
        str(site.project / "build" / "editable" / "strict.py")
    ]


def test_a_source_that_is_too_large_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_by_path(site, site.tree("big", {f"m{number}.py": "" for number in range(5)}, in_git=False))

    def take(directory: Path, modules: Sequence[str]) -> Snapshot:
        return snapshot.take(directory, site.store, modules=modules, files_max=3)

    found = interpreters.examine(site.home, site.python, {})
    code = sources.freeze(site.project, site.store, interpreters.places(found, {}, site.home), take)
    (line,) = code.unfrozen
    assert line.startswith(f"{site.base}/big: 5 changed and untracked files are too many")
    assert code.sources == ()


def test_what_a_process_imported_from_elsewhere_is_written_down_with_its_content(site: Site) -> None:
    loose = site.tree("loose", {"loosemod.py": "X = 1\n"}, in_git=False)
    code = site.freeze()
    program = f"import sys; sys.path.insert(0, {str(loose)!r}); import loosemod"
    site.run(code, program, name="one")
    (loose / "loosemod.py").write_text("X = 2\n")
    site.run(code, program, name="two")
    one, two = (interpreters.imported_from_outside(site.home / "runs" / name) for name in ("one", "two"))
    assert set(one) == set(two) == {str(loose / "loosemod.py")}
    assert one != two


def test_a_script_from_elsewhere_is_written_down_with_its_content(site: Site) -> None:
    script = site.tree("loose", {"script.py": "import sys; sys.argv[:] = ['/other.py']\n"}, in_git=False) / "script.py"
    code = site.freeze()
    site.run(code, "", str(script), name="one")
    site.run(code, "", "train.py", name="two")
    one, two = (interpreters.imported_from_outside(site.home / "runs" / name) for name in ("one", "two"))
    assert set(one) == {str(script)}
    assert not two


@pytest.mark.parametrize("place", ["bin", "env/bin", "local/bin"])
def test_a_program_that_an_installer_has_made_is_not_the_user_s(site: Site, place: str) -> None:
    script = site.tree(place, {"tool": "import json\n"}, in_git=False) / "tool"
    site.run(site.freeze(), "", str(script), PYTHONUSERBASE=str(site.base / "local"))
    known = interpreters.imported_from_outside(site.home / "runs" / "r")
    assert list(known) == ([str(script)] if place == "bin" else [])


def test_a_home_behind_a_link_is_the_home(site: Site) -> None:
    (site.base / "link").symlink_to(".")
    through = Site(site.base / "link")
    installed_by_path(site, site.project / "src")
    assert through.run(through.freeze(), "import mylib; print(mylib.VALUE)") == "5"
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}


def test_the_interpreter_that_ran_is_written_down(site: Site) -> None:
    site.run(site.freeze(), "import json")
    ran = interpreters.of_run(site.home, site.home / "runs" / "r")
    assert ran["executable"] == site.python
    assert ran["python"] == sys.version.split()[0]


def test_what_is_known_of_an_interpreter_is_in_the_record_too(site: Site) -> None:
    """Its file in the home may be lost."""
    expected = interpreters.examine(site.home, site.python, {})
    site.run(site.freeze(), "import json")
    shutil.rmtree(site.home / "environments")
    directory = site.home / "runs" / "r"
    of = Run(name="r", user="me", created_at=1.0, command=["x"], surroundings={"python": expected})
    assert record.surroundings(site.home, directory, of)["python"] == expected
    of.surroundings = {"python": {**expected, "executable": "/another/python"}}
    assert record.surroundings(site.home, directory, of)["python"] == {"executable": site.python}


def test_a_sitecustomize_of_the_environment_is_executed(site: Site) -> None:
    (site.site_packages() / "sitecustomize.py").write_text("import builtins; builtins.seen = 'theirs'\n")
    program = "import builtins, sys; print(builtins.seen, sys.modules['sitecustomize'].__file__.count('site-packages'))"
    assert site.run(site.freeze(), program) == "theirs 1"


def test_the_order_of_imports_stays(site: Site) -> None:
    """The snapshot takes the place of the working tree behind the standard library, whose modules it must not hide."""
    (site.project / "src" / "json.py").write_text("raise ImportError\n")
    installed_by_path(site, site.project / "src")
    assert site.run(site.freeze(), "import json, mylib; print(json.dumps(mylib.VALUE))") == "5"


def test_words_of_a_command_lead_into_the_snapshot(site: Site) -> None:
    (site.project / "conf").mkdir()
    (site.project / "conf" / "a.yaml").write_text("a: 1\n")
    (site.project / ".venv" / "bin").mkdir(parents=True)
    (site.project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (site.project / ".gitignore").write_text(".venv\ndata\n")
    (site.project / "data").mkdir()
    code = snapshot.take(site.project, site.store)
    root = str(site.project)
    command = [".venv/bin/python", f"{root}/train.py", f"--config={root}/conf/a.yaml", f"--data={root}/data", "src/x"]
    assert sources.words(command, code, site.store) == [
        *(f"{root}/.venv/bin/python", "./train.py", "--config=./conf/a.yaml", f"--data={root}/data", "src/x")
    ]
    below = snapshot.take(site.project / "conf", site.store)
    assert sources.words([f"{root}/train.py"], below, site.store) == ["./../train.py"]
    assert sources.words(command, None, site.store) == command
    # Through a link to the project, and out of it.
    (site.base / "link").symlink_to("project")
    site.tree("other", {"run.py": "", "a b.yaml": ""}, in_git=False)
    link, base = f"{site.base}/link", str(site.base)
    command = [f"{link}/.venv/bin/python", f"{link}/train.py", f"--config={link}/conf/a.yaml", f"--data={link}/data"]
    assert sources.words(command, code, site.store) == [command[0], "./train.py", "--config=./conf/a.yaml", command[3]]
    command = [
        "../other/run.py",
        "--config=../other/a b.yaml",
        "../other",
        "../new",
        "cat x/../../other/run.py",
        "../../x",
    ]
    assert sources.words(command, code, site.store) == [
        *(f"{base}/other/run.py", f"--config={base}/other/a b.yaml", f"{base}/other", *command[3:])
    ]
    assert sources.words(["../../other", "../train.py"], below, site.store) == [f"{base}/other", "../train.py"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "-I", "x.py"], True),
        (["/e/bin/python3", "-uE", "-m", "x"], True),
        (["python", "x.py", "-I"], False),
        (["python", "-c", "-I"], False),
        (["python", "-W", "ignore", "x.py"], False),
        (["bash", "-I"], False),
        ([], False),
    ],
)
def test_flags_by_which_the_snapshot_is_left_out(command: list[str], expected: bool) -> None:
    assert interpreters.ignores_variables(command) is expected


def test_the_interpreter_of_a_command(site: Site, tmp_path: Path) -> None:
    tool = tmp_path / "env" / "bin" / "tool"
    tool.write_text(f"#!{site.python}\n")
    tool.chmod(0o755)
    (site.project / ".venv" / "bin").mkdir(parents=True)
    (site.project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    environment = {"PATH": f"{tool.parent}:/usr/bin:/bin"}

    def of(*words: str) -> str | None:
        return interpreters.of_command(words, site.project, environment)

    assert of("tool", "x") == site.python
    assert of(".venv/bin/python", "x.py") == str(site.project / ".venv/bin/python")
    assert of("uv", "run", "x.py") == str(site.project / ".venv/bin/python")
    assert of("bash", "-c", "x") == of() == str(tool.parent / "python")


def test_the_program_is_one_that_old_interpreters_can_compile() -> None:
    import ast

    ast.parse(Path(imports.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_what_is_known_of_an_environment_is_asked_again_when_packages_that_it_sees_change(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, user = site.base / "env", site.base / "user" / "lib" / "python3.99" / "site-packages"
    user.mkdir(parents=True)
    monkeypatch.setenv("PYTHONUSERBASE", str(site.base / "user"))

    def stamps() -> tuple[str, str]:
        """Of the environment, and of one that also sees packages outside of it."""
        config = environment / "pyvenv.cfg"
        alone = config.read_text()
        first = imports.stamp("python", str(environment))
        config.write_text(alone.replace("= false", "= true"))
        second = imports.stamp("python", str(environment))
        config.write_text(alone)
        return first, second

    before = stamps()
    assert stamps() == before
    os.utime(user, (1, 1))
    after = stamps()
    assert (after[0], after[1] == before[1]) == (before[0], False)
    os.utime(site.site_packages(), (1, 1))
    assert stamps()[0] != before[0]


def test_packages_are_those_that_are_installed_with_their_origins(site: Site) -> None:
    def package(place: Path, name: str, version: str, **files: str) -> None:
        folder = place / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for file, text in files.items():
            (folder / file.replace("_json", ".json")).write_text(text)

    package(site.site_packages(), "plain", "1.0", INSTALLER="pip\n")
    package(site.site_packages(), "forge", "2.0", INSTALLER="conda\n")
    package(site.site_packages(), "mine", "3.0", direct_url_json='{"url": "git+https://me:secret@h/x", "vcs_info": {}}')
    package(site.site_packages(), "torn", "4.0", direct_url_json="{")
    package(site.project / "src", "mylib", "0.1")
    installed_by_path(site, site.project / "src")
    found = interpreters.examine(site.home, site.python, {})
    assert [line for line in found["packages"] if "pip" not in line and "setuptools" not in line] == [
        "forge==2.0", "mine==3.0", "plain==1.0", "torn==4.0",
    ]  # fmt: skip
    assert found["origins"] == {
        "forge": {"installer": "conda"}, "mine": {"url": "git+https://h/x", "vcs_info": {}}, "torn": {"url": ""},
    }  # fmt: skip
    assert found["paths"]["own.pth"] == f"{site.project}/src\n"


def test_the_project_s_interpreter_counts_although_its_runner_is_a_larger_python_program(site: Site) -> None:
    """`pdm run` starts the command from an interpreter of its own."""
    code = site.freeze()
    runs = site.home / "runs" / "r"
    site.run(code, "import json")
    other = {"id": "x", "executable": "/opt/pdm/bin/python", "modules": 9999}
    (runs / "python" / "x.json").write_text(json.dumps(other))
    assert interpreters.of_run(site.home, runs)["executable"] == other["executable"]
    command = ("pdm", "run", "python", "train.py")
    assert interpreters.of_run(site.home, runs, command, str(site.base / "env"))["executable"] == site.python
    assert interpreters.of_run(site.home, runs, command, "/another/env")["executable"] == other["executable"]


def _linked(site: Site, link: str, target: str) -> Path:
    path = site.project / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    git(site.project, "add", "-A")
    return path


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_code_behind_a_link_out_of_the_project_is_frozen_too(site: Site, form: str) -> None:
    common = site.tree("common", {"lib/tools.py": "C = 1\n", "lib/sub/__init__.py": "S = 2\n"})
    _linked(site, "src/lib", "../../common/lib" if form == "relative" else str(common / "lib"))
    code = site.freeze()
    (common / "lib" / "tools.py").write_text("C = 999\n")
    program = "import sys; sys.path.append('src'); from lib import tools, sub; print(tools.C, sub.S)"
    assert site.run(code, program) == "1 2"
    assert [source.root for source in code.sources] == [str(common)]
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}
    assert Snapshot.of(json.loads(json.dumps(asdict(code)))) == code


def test_a_relative_link_to_data_leads_there_from_the_checkout_too(site: Site) -> None:
    (site.base / "data").mkdir()
    (site.base / "data" / "a.txt").write_text("data\n")
    _linked(site, "data", "../data")
    _linked(site, "inside", "src/mylib")
    _linked(site, "nowhere", "../no/such/place")
    code = site.freeze()
    assert code.outward == (("data", str(site.base / "data")),)
    assert code.sources == ()
    assert site.run(
        code, "import os; print(open('data/a.txt').read(), os.listdir('inside'), os.readlink('nowhere'))"
    ) == ("data\n ['__init__.py'] ../no/such/place")


def test_a_link_that_says_its_place_in_the_project_from_outside_leads_into_the_checkout(site: Site) -> None:
    (site.project / ".gitignore").write_text("data\n")
    (site.project / "data").mkdir()
    (site.project / "data" / "a.txt").write_text("data")
    (site.project / "conf.txt").write_text("conf")
    _linked(site, "src/absolute", str(site.project / "src" / "mylib"))
    _linked(site, "src/around", "../../project/src/mylib")
    _linked(site, "conf", str(site.project / "conf.txt"))
    _linked(site, "through", "../hop")
    (site.base / "hop").symlink_to(site.project / "conf.txt")
    for link in ("absolute_data", "around_data"):
        _linked(site, link, str(site.project / "data") if link[1] == "b" else "../project/data")
    code = site.freeze()
    (site.project / "src" / "mylib" / "__init__.py").write_text("VALUE = 999\n")
    (site.project / "conf.txt").write_text("changed")
    program = "import sys; sys.path.append('src'); import absolute, around; print(absolute.VALUE, around.VALUE); "
    program += "print(*(open(name).read() for name in ('conf', 'through', 'absolute_data/a.txt', 'around_data/a.txt')))"
    assert site.run(code, program) == "5 5\nconf conf data data"
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}


def test_a_link_to_what_git_ignores_in_the_project_leads_there_from_the_checkout(site: Site) -> None:
    (site.project / ".gitignore").write_text("data\nexternal\n.venv\n")
    for file, text in {"data/a.txt": "data", "external/lib/__init__.py": "X = 1\n", ".venv/bin/python": ""}.items():
        (site.project / file).parent.mkdir(parents=True, exist_ok=True)
        (site.project / file).write_text(text)
    for link, target in {"inputs": "data", "lib": "external/lib", "python": ".venv/bin/python"}.items():
        _linked(site, link, target)
    code = site.freeze()
    program = "import lib, os; print(open('inputs/a.txt').read(), lib.X, os.readlink('python'))"
    assert site.run(code, program) == "data 1 .venv/bin/python"
    assert code.unfrozen == (f"{site.project}/external/lib: git ignores it",)


def test_links_of_a_source_lead_where_those_of_the_project_would(site: Site) -> None:
    site.tree("third", {"deep.py": "D = 3\n"})
    common = site.tree("common", {"lib/__init__.py": "L = 1\n", "real.py": "R = 2\n"}, in_git=False)
    (site.base / "data").mkdir()
    (site.base / "data" / "a.txt").write_text("data")
    (common / "alias.py").symlink_to(common / "real.py")
    (common / "third").symlink_to("../third")
    (common / "data").symlink_to("../data")
    _linked(site, "common", "../common")
    code = site.freeze()
    (common / "real.py").write_text("R = 999\n")
    (site.base / "third" / "deep.py").write_text("D = 999\n")
    program = "import sys; sys.path[:0] = ['common', 'common/third']; import lib, alias, deep; "
    assert site.run(code, program + "print(lib.L, alias.R, deep.D, open('common/data/a.txt').read())") == "1 2 3 data"
    assert interpreters.imported_from_outside(site.home / "runs" / "r") == {}


def test_of_a_large_directory_behind_a_link_few_entries_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    (tmp_path / "image.jpg").touch()
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "exists", asked.append)
        assert not outward.is_code(str(tmp_path))
        assert asked == []
    (tmp_path / "loader.py").touch()
    assert outward.is_code(str(tmp_path))
    monkeypatch.setattr(outward, "_ENTRIES_MAX", 0)
    assert not outward.is_code(str(tmp_path))


def test_a_link_to_code_that_cannot_be_frozen_is_named(site: Site) -> None:
    (site.base / "huge").mkdir()
    with (site.base / "huge" / "big.py").open("wb") as file:
        file.truncate(snapshot.FILE_BYTES_MAX + 1)
    _linked(site, "huge", "../huge")
    code = site.freeze()
    (line,) = code.unfrozen
    assert line.startswith(f"{site.base}/huge: ")
    assert code.outward == (("huge", str(site.base / "huge")),)
