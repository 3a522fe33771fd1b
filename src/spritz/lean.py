"""Loads msgspec in a fraction of its time, for commands, whose start-up is most of what they cost.

Importing msgspec brings in `typing` (with `re`, `contextlib`, `collections`), `typing_extensions` (`inspect`, `ast`),
`uuid` (`platform`), `decimal`, `datetime`, and msgspec's own modules for schemas, YAML and TOML: measured 34 ms of a
45 ms start, of which 6 are left here. None of it is used to encode and decode our records. So msgspec's C module is
loaded alone, while empty modules stand in for those; they are taken away again at once, and whoever imports the real
ones later gets them. msgspec's `_utils`, which reads annotations, is replaced by the few lines that our records need;
whatever else is asked of it is passed on to the real one.

What is lost: in a process that did this, msgspec does not know UUID, Decimal, datetime and the types of `typing`
(`Optional`, `Any`, `Literal` …). Our records have none of them: builtin generics and `|` are what they are made of.
Daemons do not use this. If anything is not as expected (another release of msgspec), msgspec is imported as usual.

Imports nothing of ours, and must be called before anything imports msgspec: `spritz.cli` does so first.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_STAND_INS = ("typing", "typing_extensions", "uuid", "decimal", "datetime", "re", "functools", "operator")
#: what msgspec's C module takes from `typing`, to compare annotations with
_TYPING = ("Any", "ClassVar", "Final", "Generic", "Literal", "TypeVar", "Union", "_GenericAlias")


def load_msgspec() -> bool:
    """Load msgspec's core alone. False if it was loaded already, or had to be loaded in full."""
    if "msgspec" in sys.modules:
        return False
    added = [name for name in _STAND_INS if name not in sys.modules]
    try:
        _load_core(added)
    except Exception:
        for name in [name for name in sys.modules if name == "msgspec" or name.startswith("msgspec.")]:
            del sys.modules[name]
        return False
    finally:
        for name in added:
            sys.modules.pop(name, None)
    return True


def _load_core(stand_ins: list[str]) -> None:
    from _frozen_importlib_external import PathFinder  # importlib.machinery has it too, and costs more

    spec = PathFinder.find_spec("msgspec")
    if spec is None:
        raise ImportError("msgspec is not installed")
    package = type(sys)("msgspec")  # the package without running its __init__
    package.__spec__, package.__file__ = spec, spec.origin
    package.__path__ = list(spec.submodule_search_locations or ())
    for name in stand_ins:
        sys.modules[name] = _stand_in(name)
    import enum  # noqa: F401 - with stand-ins for functools and operator, of which it wants one function each

    sys.modules["msgspec"] = package
    sys.modules["msgspec._utils"] = _utils(package)
    from msgspec import _core

    for name in ("DecodeError", "EncodeError", "Meta", "MsgspecError", "NODEFAULT", "Raw", "Struct", "StructMeta"):
        setattr(package, name, getattr(_core, name))
    for name in ("UNSET", "UnsetType", "ValidationError", "convert", "defstruct", "to_builtins"):
        setattr(package, name, getattr(_core, name))
    package.field = _field  # type: ignore[attr-defined]
    sys.modules["msgspec.structs"] = package.structs = _structs(package)  # type: ignore[attr-defined]


def _field(*, default: object = ..., default_factory: object = ..., name: str | None = None) -> object:
    """As msgspec.field, which is Python in the `__init__` that was not run."""
    from msgspec import _core

    nothing = _core.NODEFAULT
    return _core.Field(
        default=nothing if default is ... else default,
        default_factory=nothing if default_factory is ... else default_factory,
        name=name,
    )


def _stand_in(name: str) -> ModuleType:
    # What these three are made of, and all that is asked for.
    if name == "datetime":
        module: ModuleType = __import__("_datetime")
    elif name == "functools":
        module = __import__("_functools")
    elif name == "operator":
        module = __import__("_operator")
    else:
        module = type(sys)(name)
    if name == "re":
        module.compile = _compile  # type: ignore[attr-defined]
    elif name == "typing":
        for taken in _TYPING:
            setattr(module, taken, type(taken, (), {}))
    elif name == "uuid":
        module.UUID = type("UUID", (), {})  # type: ignore[attr-defined]
        module.SafeUUID = type("SafeUUID", (), {"unknown": None})  # type: ignore[attr-defined]
    elif name == "decimal":
        module.Decimal = type("Decimal", (), {})  # type: ignore[attr-defined]
    return module


def _compile(pattern: str) -> object:
    """For constraints of msgspec.Meta, which our records do not have."""
    import re

    return re.compile(pattern)


def _utils(package: ModuleType) -> ModuleType:
    """msgspec._utils with its own way to read annotations, and the real one behind everything else."""
    module = type(sys)("msgspec._utils")
    module._CONCRETE_TYPES = {kind: kind for kind in (list, tuple, set, frozenset, dict)}  # type: ignore[attr-defined]
    module._AnnotatedAlias = type("_AnnotatedAlias", (), {})  # type: ignore[attr-defined]
    module.get_class_annotations = _annotations  # type: ignore[attr-defined]
    module.get_type_hints = _annotations  # type: ignore[attr-defined]
    module.call_annotate_forwardref = lambda annotate: annotate(1)  # type: ignore[attr-defined]
    for name in ("convert_generic_alias", "get_dataclass_info", "get_typeddict_info", "rebuild"):
        setattr(module, name, _later(name, package))
    return module


def _annotations(kind: type) -> dict[str, object]:
    """Name and type of each field of a class, those of its bases behind its own."""
    found: dict[str, object] = {}
    for base in kind.__mro__:
        own: dict[str, object] = base.__dict__.get("__annotations__", {})  # noqa: RUF063 - inspect is not to be loaded
        for name, value in own.items():
            if name not in found:
                if isinstance(value, str):
                    value = eval(value, vars(sys.modules[base.__module__]))  # as typing.get_type_hints does
                found[name] = type(None) if value is None else value
    return found


def _structs(package: ModuleType) -> ModuleType:
    """msgspec.structs with what the C module has of it, and the real one behind everything else."""
    from msgspec import _core

    module = type(sys)("msgspec.structs")
    for name in ("StructConfig", "asdict", "astuple", "force_setattr", "replace"):
        setattr(module, name, getattr(_core, name))

    def load(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        real = _real("structs", package)
        for public in real.__all__:
            setattr(module, public, getattr(real, public))
        found: object = getattr(real, name)
        return found

    module.__getattr__ = load  # type: ignore[method-assign]  # PEP 562
    return module


def _later(name: str, package: ModuleType) -> Callable[..., object]:
    """A function of the real `msgspec._utils`, which is loaded when it is called."""

    def call(*arguments: object) -> object:
        result: object = getattr(_real("_utils", package), name)(*arguments)
        return result

    return call


def _real(name: str, package: ModuleType) -> ModuleType:
    """A module of msgspec from its file."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"msgspec.{name}", f"{package.__path__[0]}/{name}.py")
    assert spec is not None, "msgspec has it"
    assert spec.loader is not None, "it is a file"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
