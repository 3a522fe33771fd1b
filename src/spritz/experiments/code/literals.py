"""Strings in a program and its configuration that may be paths, without running it.

Of Python the syntax tree is read: an argument, a value or a default may be a path; a key of a mapping, or what is
printed or compared, is none. What is written (`torch.save`, `open(…, "w")`, `out_dir = …`) is kept apart. Of other text
each word counts.
"""

from __future__ import annotations

import ast
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

#: Names of variables, options and keys whose values are paths to write to, and of those whose values are other paths.
_OUTPUT_NAME = re.compile(
    r"(?:^|[_-])(?:out|output|save|saving|log|logging|ckpt|checkpoint|result|export|tmp|temp|cache|plot|fig|figure)s?"
    r"(?:[_-]|dir|path|file|folder|name|$)",
    re.IGNORECASE,
)
_PATH_NAME = re.compile(r"(?:^|_|-)(?:data|dataset|input|root)|dir|path|folder", re.IGNORECASE)
#: Functions that write, whose first argument is a path, and whose arguments are keys or text.
_WRITING = re.compile(
    r"(?:makedirs|mkdir|save\w*|dump|tofile|write_\w+|to_(?:csv|parquet|json|pickle|hdf|feather|excel)|rmtree|remove"
    r"|unlink|\w*Writer|\w*Logger|\w*FileHandler|ModelCheckpoint|mkstemp|mkdtemp)\Z"
)
_OF_PATHS = re.compile(r"(?:\w*Path|listdir|scandir|walk|i?glob|exists|is_?dir|is_?file|open|\w*Folder)\Z")
_OF_TEXT = re.compile(
    r"(?:get|pop|setdefault|\w+attr|startswith|endswith|r?split|replace|strip|join|print|format|log|info|warning|error"
    r"|debug|exception|encode|decode|getenv|import_module|isinstance)\Z"
)
_WORD = re.compile(r"[^\s\"'`,;=:()\[\]{}<>|&$]+")
#: The key before a value, in YAML, JSON, TOML and a shell.
_KEY = re.compile(r"([\w.-]+)[\"']?\s*[:=]\s*")
_LENGTH_MAX = 200


class Role(IntEnum):
    """What a string may be by its place: any word, perhaps a path, certainly a path, or a path to write to."""

    WORD = 0
    PATH = 1
    PLACE = 2
    OUTPUT = 3


@dataclass
class Literals:
    """Strings, without slashes at their ends; each of `places` is in `paths`, and each of `paths` in `words`."""

    words: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    #: directories of Hydra's configuration, relative to the module
    config_directories: set[str] = field(default_factory=set)

    def add(self, text: str, role: Role) -> None:
        text = text.removeprefix("./").rstrip("/")
        if not text or len(text) > _LENGTH_MAX or "\n" in text or text.startswith("-"):
            return
        if role is Role.OUTPUT:
            self.outputs.add(text)
            return
        self.words.add(text)
        if role >= Role.PATH or "/" in text or "." in text[1:]:
            self.paths.add(text)
        if role is Role.PLACE or "/" in text:
            self.places.add(text)

    def update(self, other: Literals) -> None:
        for name in Literals.__dataclass_fields__:
            getattr(self, name).update(getattr(other, name))


def of_name(name: str) -> Role:
    """The role of a value by the name of its variable, option or key."""
    if name == "-o" or _OUTPUT_NAME.search(name):
        return Role.OUTPUT
    return Role.PLACE if _PATH_NAME.search(name) else Role.PATH


def of_command(words: Sequence[str]) -> Iterator[tuple[str, Role]]:
    """A command's words, and values of its options, with their roles."""
    option = ""
    for word in words:
        name, equals, setting = word.partition("=")
        is_option = word.startswith("-")
        if equals or not is_option:
            yield (setting, of_name(name)) if equals else (word, of_name(option))
        option = word if is_option and not equals else ""


def add_text(text: str, literals: Literals) -> None:
    """Add the words of a configuration file, or of a shell script."""
    for line in text.splitlines():
        before, *pairs = _KEY.split(line.partition(" #")[0])
        for key, after in zip(["", *pairs[::2]], [before, *pairs[1::2]], strict=True):
            for word in _WORD.findall(after):
                literals.add(word, of_name(key))


def add_python(node: ast.AST, literals: Literals, role: Role = Role.WORD, *, lines: Sequence[int]) -> None:
    """Add the strings of a module on these lines, or those below a node of it that stands in a place of this role."""
    if not _has_line(node, lines):
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            literals.add(node.value, role)
    elif isinstance(node, ast.JoinedStr):
        for text in _whole_components(node):
            literals.add(text, max(role, Role.PATH))
    elif isinstance(node, ast.Call):
        _add_call(node, literals, role, lines)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
        for side in (node.left, node.right):
            if isinstance(side, ast.Constant) and isinstance(side.value, str):
                literals.add(side.value.strip("/"), max(role, Role.PATH))
            else:
                add_python(side, literals, role, lines=lines)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # not a docstring
        for name, child in _children(node):
            add_python(child, literals, _inner_role(node, name, role), lines=lines)


def _has_line(node: ast.AST, lines: Sequence[int]) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None:
        return True
    if decorators := getattr(node, "decorator_list", None):
        first = min(first, decorators[0].lineno)
    place = bisect_left(lines, first)
    return place < len(lines) and lines[place] <= last


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST):
                yield name, child


def _inner_role(node: ast.AST, name: str, role: Role) -> Role:
    """The role of what stands in this field of a node."""
    inner = Role.WORD
    if isinstance(node, ast.Assign | ast.AnnAssign) and name == "value":
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        inner = max(of_name(_name_of(target)) for target in targets)
    elif isinstance(node, ast.keyword):
        inner = of_name(node.arg or "")
    elif isinstance(node, ast.arguments | ast.Return) or (isinstance(node, ast.Dict) and name == "values"):
        inner = Role.PATH
    elif isinstance(node, ast.List | ast.Tuple | ast.IfExp | ast.BoolOp | ast.Starred | ast.NamedExpr):
        inner = role
    return role if role is Role.OUTPUT else inner


def _add_call(node: ast.Call, literals: Literals, role: Role, lines: Sequence[int]) -> None:
    name = _name_of(node.func)
    words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    if name == "add_argument":
        inner = max((role, *map(of_name, words)))
        for keyword in node.keywords:
            if keyword.arg != "help":
                add_python(keyword.value, literals, inner, lines=lines)
        return
    if role is not Role.OUTPUT:
        role = Role.OUTPUT if _WRITING.match(name) or _opens_to_write(node, name, words) else Role.WORD
    # The receiver too: Path("model.pt").write_bytes(…)
    add_python(node.func, literals, role, lines=lines)
    # Not the join of a string: ", ".join(…)
    is_of_paths = _OF_PATHS.match(name) or (name == "join" and not isinstance(_receiver(node.func), ast.Constant))
    for place, argument in enumerate(node.args):
        inner = Role.PLACE if is_of_paths and place == 0 else Role.PATH
        if _OF_TEXT.match(name) and not is_of_paths:
            inner = Role.WORD
        add_python(argument, literals, max(role, inner), lines=lines)
    for keyword in node.keywords:
        if keyword.arg == "config_path" and isinstance(keyword.value, ast.Constant):
            literals.config_directories.add(str(keyword.value.value))
        add_python(keyword, literals, role, lines=lines)


def _opens_to_write(node: ast.Call, name: str, words: Sequence[str]) -> bool:
    modes = [word.value for word in node.keywords if word.arg == "mode" and isinstance(word.value, ast.Constant)]
    mode = str(modes[0].value) if modes else words[-1] if name == "open" and words else ""
    return len(mode) <= 3 and any(char in mode for char in "wax+")


def _receiver(node: ast.AST) -> ast.AST | None:
    return node.value if isinstance(node, ast.Attribute) else None


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _whole_components(node: ast.JoinedStr) -> Iterator[str]:
    """The parts of a path in an f-string that have no value in them: data and train.bin of f"data/{name}/train.bin"."""
    last = len(node.values) - 1
    for place, part in enumerate(node.values):
        if isinstance(part, ast.Constant) and "/" in str(part.value):
            components = str(part.value).split(os.sep)
            yield from components[place > 0 : len(components) - (place < last)]
