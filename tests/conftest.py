"""Options of every test run."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import bytecode, hermetic

#: How long an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
#: The same examples each time, so that a change is judged and not its luck; `make fuzz` looks for others.
settings.register_profile("same", settings.get_profile("any"), derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    """Commands run by themselves, unless SPRITZ_TEST_SERVER asks for the command server (`make test-server`)."""
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("same")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script: what tests start would ignore Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup
    directory = hermetic.configure(config)
    # Not the user's own, where other checkouts have their command servers.
    runtime = directory / "runtime" / os.environ.get("PYTEST_XDIST_WORKER", "main")
    runtime.parent.mkdir(exist_ok=True)
    runtime.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    if not os.environ.get("SPRITZ_TEST_SERVER"):
        os.environ["SPRITZ_NO_SERVER"] = "1"
    bytecode.compile_share(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need root are skipped for others; those of one group run one after the other, in one process.

    A group is what `xdist_group` names, and what shares a cluster of its module: each process would start one.
    pytest-xdist says so in the nodes' ids, and up to 3.8 by an attribute that pytest 9.2 has renamed.
    """
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root") is not None:
                item.add_marker(pytest.mark.skip(reason="needs to run as root"))
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
        if not groups and _shares(item):
            groups = {item.path.stem}
        if groups and hasattr(item, "_id") and "@" not in item.nodeid.rpartition("]")[2]:
            item._id = type(item._id).parse(f"{item.nodeid}@{'_'.join(sorted(groups))}")


def _shares(item: pytest.Item) -> bool:
    """Whether this end-to-end test uses what is made once for its module."""
    if not isinstance(item, pytest.Function) or not item.nodeid.startswith("tests/e2e/"):
        return False
    used = item._fixtureinfo.name2fixturedefs.values()
    return any(definitions[-1].scope in ("module", "class") for definitions in used)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups are handed out in the order of their names: what waits comes first, and quick unit tests even out the end.

    The tests of a file are a group, but for end-to-end tests, which are few and long. (The time that pytest-xdist 3.8
    needs grows with the square of the number of groups.)
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Groups(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            group: str = super()._split_scope(nodeid)
            return group if group.startswith("tests/e2e/") else group.partition("::")[0]

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--bless` rewrites transcripts with what came; read the difference before committing it."""
    parser.addoption("--bless", action="store_true", help="rewrite transcripts with what came")
    parser.addoption("--traces", metavar="DIR", help="folder of public workload traces (docs/simulate.md)")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are to be rewritten."""
    return bool(request.config.getoption("--bless"))
