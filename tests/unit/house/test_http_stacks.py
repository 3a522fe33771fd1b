"""What speaks HTTP, and with what: three stacks, each declared, and one client of slurmrestd (docs/decisions/0227)."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import spritz

SOURCE = Path(spritz.__file__).parent
ROOT = SOURCE.parent.parent

#: Every library that speaks HTTP, and which modules may import it: aiohttp for clients; uvicorn and httptools for
#: servers, with Starlette above; the standard library where users' own programs, or a daemon without extras, send a few
#: requests.
ALLOWED: dict[str, set[str]] = {
    "aiohttp": {"http.transport"},
    "httptools": {"controller.metrics.http"},
    "uvicorn": {"agents.command", "experiments.tracking_server", "http.serving", "rest.protocol"},
    "starlette": {"rest", "web"},
    "http.client": {"controller.jobcomp.web"},
    # `http.transport`: the proxies that the environment names
    "urllib.request": {"experiments.inside", "experiments.watch", "http.transport"},
}
FORBIDDEN = {
    "fastapi", "flask", "h11", "h2", "http.server", "httpcore", "httpx", "httpx2", "hypercorn", "pycurl", "requests",
    "tornado", "urllib3", "websockets", "wsproto", "xmlrpc", "yarl",
}  # fmt: skip

#: Who sends requests to other servers by the transport of `spritz.http`.
SENDERS = {"k8s.api", "web.login"}

#: The extras that a package's users install.
EXTRAS = {
    "agents": "mcp", "controller": "metrics", "experiments": "experiments", "k8s": "kubernetes", "rest": "rest",
    "web": "dashboard",
}  # fmt: skip
#: Packages that `spritz.http` brings to its users.
BROUGHT = {"aiohttp": ("dashboard", "kubernetes"), "uvicorn": ("dashboard", "kubernetes", "rest")}

#: What is used of uvicorn and lightkube beside that which their documentation names.
INTERNALS = {
    "uvicorn": {
        "uvicorn.server:Server": "startup capture_signals shutdown",
        "uvicorn.config:Config": "load",
        "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol": (
            "connection_made connection_lost data_received on_headers_complete on_message_complete pause_writing "
            "resume_writing"
        ),
    },
    "lightkube": {
        "lightkube.config.kubeconfig:SingleConfig": "cluster user namespace abs_file",
        "lightkube.config.models:Cluster": "server certificate_auth certificate_auth_data insecure",
        "lightkube.config.models:User": (
            "exec username password token token_file auth_provider client_cert client_cert_data client_key "
            "client_key_data"
        ),
        "lightkube.config.models:UserExec": "apiVersion command env args",
        "lightkube.core.resource:ApiInfo": "__dataclass_fields__",
        "lightkube.core.resource:NamespacedResource": "",
        "lightkube.core.resource:NamespacedSubResource": "",
        "lightkube.core.resource:api_info": "",
    },
}
#: Attributes that `uvicorn`'s objects get when they are made, and that we read or set.
SET = {
    "uvicorn.server:Server": ("config", "should_exit", "servers"),
    "uvicorn.config:Config": ("ssl",),
    "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol": ("app_state", "connections", "loop", "transport"),
}
#: The extras for packages that use them.
NARROW = {"uvicorn": ("rest", "kubernetes"), "lightkube": ("kubernetes",)}


@cache
def sources() -> dict[str, str]:
    """Module -> source."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in sorted(SOURCE.rglob("*.py"))
    }


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(sources()[name])


@cache
def imports(name: str) -> frozenset[str]:
    """Everything that a module imports anywhere, `package.module` or `package.module.name`."""
    found = set[str]()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def importers(library: str) -> set[str]:
    first, _, last = library.rpartition(".")
    words = re.compile(rf"^ *(?:import|from) +{re.escape(first or last)}\b", re.MULTILINE)
    return {
        name
        for name, source in sources().items()
        if last in source
        and words.search(source)  # the others need no closer look
        and any(one == library or one.startswith(f"{library}.") for one in imports(name))
    }


@cache
def extras() -> dict[str, dict[str, str]]:
    """Extra -> package -> bounds."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def of(extra: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in declared[extra]:
            match = re.match(r"([A-Za-z0-9-]+)(?:\[([\w,-]+)\])?([^;]*)", line)
            assert match is not None, line
            if match[1] == "spritz-base":
                found |= {name: bounds for one in match[2].split(",") for name, bounds in of(one).items()}
            else:
                found[match[1].lower()] = match[3].strip()
        return found

    return {extra: of(extra) for extra in declared}


@pytest.mark.parametrize("library", [*ALLOWED, *sorted(FORBIDDEN)])
def test_each_library_is_used_where_it_may_be_and_nowhere_else(library: str) -> None:
    allowed = ALLOWED.get(library, set())
    found = importers(library)
    beyond = {name for name in found if not any(name == one or name.startswith(f"{one}.") for one in allowed)}
    assert not beyond, f"{library} is not for these: docs/decisions/0227"
    unused = {one for one in allowed if not any(name == one or name.startswith(f"{one}.") for name in found)}
    assert not unused, f"these no longer use {library}"


def test_one_module_speaks_to_slurmrestd() -> None:
    spoken = re.compile(r"""["']x-slurm-user-""", re.IGNORECASE)
    naming = {name for name, source in sources().items() if spoken.search(source) and not name.startswith("rest.")}
    assert naming == {"http.rest"}
    assert importers("spritz.http.transport") - {"http.rest"} == SENDERS
    for name in (importers("http.client") | importers("urllib.request")) - {"http.transport"}:
        assert not re.search(r"slurmrestd|/slurm/v|/spritz/v", sources()[name]), name


@pytest.mark.parametrize("library", ["aiohttp", "httptools", "starlette", "uvicorn"])
def test_each_library_is_declared_by_the_extras_of_its_users(library: str) -> None:
    wanted = {EXTRAS[name.partition(".")[0]] for name in ALLOWED[library] if not name.startswith("http.")}
    for extra in sorted(wanted | set(BROUGHT.get(library, ()))):
        bounds = extras()[extra].get(library, "")
        assert ">=" in bounds, f"{extra} does not declare {library}"
        assert "<" in bounds, f"{extra} does not bound {library}"
    # uvicorn parses requests by httptools, which it does not bring.
    assert all("httptools" in extras()[extra] for extra in BROUGHT["uvicorn"])


@pytest.mark.parametrize(("library", "extra"), [(name, extra) for name, some in NARROW.items() for extra in some])
def test_what_is_used_inside_is_bounded_to_releases_that_were_tried(library: str, extra: str) -> None:
    """A new release of the library is let in by a person, who runs the tests with it, and moves the bound."""
    bounds = extras()[extra][library]
    match = re.fullmatch(r">=(\d+)\.(\d+),<(\d+)\.(\d+)", bounds)
    assert match is not None, bounds
    major, minor = map(int, importlib.metadata.version(library).split(".")[:2])
    assert (int(match[1]), int(match[2])) <= (major, minor)
    assert (int(match[3]), int(match[4])) == (major, minor + 1), f"{library}{bounds} is not the release that is tried"


@pytest.mark.parametrize("library", INTERNALS)
def test_what_is_used_inside_is_there(library: str) -> None:
    for place, names in INTERNALS[library].items():
        module, _, name = place.partition(":")
        thing = getattr(importlib.import_module(module), name)
        missing = [one for one in names.split() if not hasattr(thing, one)]
        assert not missing, f"{place} has no {missing}"
        for one in SET.get(place, ()):
            assert re.search(rf"\bself\.{one}\b[^=\n]*=", inspect.getsource(thing)), f"{place} sets no {one}"


@pytest.mark.parametrize("library", INTERNALS)
def test_no_private_name_of_these_libraries_is_used(library: str) -> None:
    for name in importers(library):
        tree = tree_of(name)
        used = [one for one in imports(name) if one.startswith(library) and "._" in one]
        own = {
            found
            for node in ast.walk(tree)
            for found in (
                [node.name]
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                else [node.attr]
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                else [node.id]
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                else []
            )
        }
        used += [
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr) and node.attr not in own
        ]
        assert not used, f"spritz.{name}"
