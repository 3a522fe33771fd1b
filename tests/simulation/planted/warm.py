"""Plants a fault in a process that has imported the production code: functions get the changed code, in place.

A search forks one child per seed from one warm parent, so a fault costs what its runs simulate. Changes outside of
functions are limited to imports and constants; `Patch.of` raises Unfit for others, which need a tree of their own
(`plant.planted_tree`).
"""

from __future__ import annotations

import ast
import gc
import importlib
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import spritz
from tests.simulation.planted.entry import Edit, Planted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: The package that is imported here: not the one of the repository if it was planted in a tree.
SOURCE = Path(spritz.__file__).resolve().parent


class Unfit(Exception):
    """A change that cannot be made in a module that was imported already."""


def module_of(file: str) -> ModuleType:
    """The module of a file below src/spritz."""
    return importlib.import_module(".".join(("spritz", *Path(file).with_suffix("").parts)))


class Functions:
    """All functions of these files that exist: of modules, classes, closures and decorated ones. Made once, before the
    collector freezes them.
    """

    def __init__(self, files: Iterable[str]) -> None:
        names = {module_of(file).__file__ for file in files}
        self._known: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        for entry in gc.get_objects():
            if isinstance(entry, FunctionType) and entry.__code__.co_filename in names:
                self._known[entry.__code__.co_filename, entry.__code__.co_qualname].append(entry)

    def of(self, file: str, qualified_name: str) -> list[FunctionType]:
        return self._known[module_of(file).__file__ or "", qualified_name]


class Patch:
    """The changes that a fault makes in the modules of this process."""

    def __init__(self, fault: Planted, changed: dict[str, str], functions: Functions) -> None:
        self.fault = fault
        self._codes: list[tuple[FunctionType, CodeType]] = []
        self._statements: list[tuple[ModuleType, CodeType, dict[str, Any]]] = []
        for file, text in changed.items():
            self._read(file, text, functions)

    def _read(self, file: str, text: str, functions: Functions) -> None:
        module = module_of(file)
        name = module.__file__ or ""
        old_text = Path(name).read_text(encoding="utf-8")
        old = _codes(compile(old_text, name, "exec", dont_inherit=True))
        new = _codes(compile(text, name, "exec", dont_inherit=True))
        for qualified_name, code in new.items():
            before = old.get(qualified_name)
            if before is not None and _same(code, before):
                continue
            found = functions.of(file, qualified_name)
            if any(len(function.__code__.co_freevars) != len(code.co_freevars) for function in found):
                raise Unfit(f"{self.fault.name}: {qualified_name} uses other names around it")
            # A nested function has no object yet: it comes with the code around it.
            self._codes += [(function, code) for function in found]
        statements = [ast.dump(node) for node in ast.parse(old_text).body]
        for node in ast.parse(text).body:
            if ast.dump(node) in statements or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if isinstance(node, ast.ClassDef):
                _check_class(self.fault, node, old_text)
            elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)):
                code = compile(ast.Module(body=[node], type_ignores=[]), name, "exec", dont_inherit=True)
                self._statements.append((module, code, dict(vars(module))))
            elif not isinstance(node, ast.Expr):
                raise Unfit(f"{self.fault.name}: {ast.unparse(node)[:60]}")

    def apply(self) -> None:
        """In the process that is to have the fault."""
        for module, code, before in self._statements:
            exec(code, vars(module))
            for name, value in vars(module).items():
                if name in before and before[name] is not value:
                    _rebind(name, before[name], value)
        for function, code in self._codes:
            function.__code__ = code


def _codes(code: CodeType) -> dict[str, CodeType]:
    """All code objects in it, by their qualified names; classes' own left out."""
    found: dict[str, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function
                found[constant.co_qualname] = constant
            found |= _codes(constant)
    return found


def _same(code: CodeType, other: CodeType) -> bool:
    """Whether they do the same, wherever their lines are."""
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    others = [constant for constant in other.co_consts if not isinstance(constant, CodeType)]
    nested, other_nested = _codes(code), _codes(other)
    return (
        (code.co_code, code.co_names, code.co_freevars) == (other.co_code, other.co_names, other.co_freevars)
        and repr(constants) == repr(others)
        and nested.keys() == other_nested.keys()
        and all(_same(nested[name], other_nested[name]) for name in nested)
    )


def _check_class(fault: Planted, changed: ast.ClassDef, old_text: str) -> None:
    """Raises Unfit unless only methods differ."""
    old = next(
        (node for node in ast.parse(old_text).body if isinstance(node, ast.ClassDef) and node.name == changed.name),
        None,
    )
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if old is None or [ast.dump(node) for node in old.body if not isinstance(node, functions)] != [
        ast.dump(node) for node in changed.body if not isinstance(node, functions)
    ]:
        raise Unfit(f"{fault.name}: class {changed.name} changes outside of its methods")


def _rebind(name: str, old: object, new: object) -> None:
    """Other modules that have imported the constant."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("spritz.") and vars(module).get(name) is old:
            setattr(module, name, new)


# Which faults a run reaches


class Reach:
    """Notes which lines that faults change a run executes, in each of its threads."""

    def __init__(self, faults: Iterable[Planted]) -> None:
        #: (file, line) -> faults
        self._faults: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        #: files' parts that are looked at: file -> lines
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self._looked_at: dict[int, tuple[CodeType, bool]] = {}
        self.reached: set[str] = set()
        for fault in faults:
            for edit in fault.edits[:1]:
                for line in _lines_of(edit):
                    name = module_of(edit.file).__file__ or ""
                    self._faults[name, line].add(fault.name)
                    self._lines[name].add(line)

    def watch(self) -> None:
        """From now on, in this thread and all later ones."""
        sys.settrace(self._called)
        threading.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        known = self._looked_at.get(id(code))
        if known is None:
            lines = self._lines.get(code.co_filename)
            wanted = lines is not None and any(line in lines for _, _, line in code.co_lines())
            known = self._looked_at[id(code)] = code, wanted
        return self._executed if known[1] else None

    def _executed(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "line":
            self.reached |= self._faults.get((frame.f_code.co_filename, frame.f_lineno), set())
        return self._executed


def _lines_of(edit: Edit) -> Iterator[int]:
    """Numbers of the lines that the old text has and the new one has not; all of its lines if it is only added to."""
    text = (SOURCE / edit.file).read_text(encoding="utf-8")
    start = text[: text.index(edit.old)].count("\n") + 1
    old, new = edit.old.splitlines(), edit.new.splitlines()
    changed = [number for number, line in enumerate(old) if line not in new]
    for number in changed or range(len(old)):
        yield start + number
