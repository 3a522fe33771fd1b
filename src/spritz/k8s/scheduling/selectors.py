"""CEL selectors of devices, as DeviceClasses and ResourceClaims have them.

An expression sees `device`: its driver, its attributes and capacities by domain, and whether it may be allocated to
several claims. Quantities are numbers here, and versions lists, so that both can be compared. A domain that the device
has nothing of is empty; an attribute that it lacks is an error, and the device does not match then.

Source: Kubernetes, "Dynamic Resource Allocation"; resource.k8s.io/v1 CELDeviceSelector; "Common Expression Language in
Kubernetes", quantity and semver library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from spritz.k8s.pods import Unfit, amount

Json = dict[str, Any]

#: MAJOR.MINOR.PATCH[-PRE][+BUILD]
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class BadSelector(ValueError):
    """An expression that is no CEL expression; the text says why."""


def matches(expressions: Iterable[str], device: Json) -> bool:
    """Whether all expressions hold for the device, which is as `variables` makes it. Raises BadSelector."""
    return all(_holds(expression, device) for expression in expressions)


def variables(driver: str, attributes: Json, capacity: Json, *, shared: bool) -> Json:
    """What expressions call `device`. A name without a domain is of the driver's domain."""
    sorted_attributes: Json = {}
    for name, value in attributes.items():
        domain, _slash, own = name.rpartition("/")
        sorted_attributes.setdefault(domain or driver, {})[own] = _attribute(value)
    sorted_capacity: Json = {}
    for name, value in capacity.items():
        domain, _slash, own = name.rpartition("/")
        sorted_capacity.setdefault(domain or driver, {})[own] = amount(value)
    return {
        "driver": driver,
        "attributes": sorted_attributes,
        "capacity": sorted_capacity,
        "allowMultipleAllocations": shared,
    }


def _attribute(value: Json) -> Any:
    """The value of a DeviceAttribute, of which one member is set."""
    if "version" in value:
        return semver(value["version"])
    return next(iter(value.values()), None)


def semver(text: str) -> list[Any]:
    """A version as a list. Raises ValueError."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is no version")
    return [*map(int, found.groups()[:3]), found.group(4) or ""]


def _order(one: list[Any], other: list[Any]) -> int:
    """-1, 0 or 1. A version before its release is less than it."""
    first, second = ([*version[:3], not version[3], version[3]] for version in (one, other))
    return (first > second) - (first < second)


def _number(text: str) -> float:
    try:
        return amount(text)
    except Unfit as unfit:
        raise ValueError(str(unfit)) from unfit


def _is_number(text: str) -> bool:
    try:
        amount(text)
    except Unfit:
        return False
    return True


def _holds(expression: str, device: Json) -> bool:
    from cel_expr_python import cel

    domains = _mentioned(expression)
    # A domain that a device has nothing of is an empty map, and no error.
    for part in ("attributes", "capacity"):
        for domain in domains - device[part].keys():
            device[part][domain] = {}
    result = _compiled(expression).eval(data={"device": device})
    return bool(result.type() == cel.Type.BOOL and result.value())


@lru_cache(maxsize=1000)
def _mentioned(expression: str) -> frozenset[str]:
    """Domains that the expression names."""
    return frozenset(re.findall(r"""\[\s*['"]([^'"]+)['"]\s*\]""", expression))


@lru_cache(maxsize=1000)
def _compiled(expression: str) -> Any:
    try:
        return _environment().compile(expression)
    except Exception as error:  # the library has no class of its own for these
        lines = str(error).removeprefix("INVALID_ARGUMENT: ").splitlines() or [""]
        raise BadSelector(f"{expression[:100]!r} is no CEL expression: {lines[0]}") from error


@cache
def _environment() -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext.ext_bindings import ExtBindings
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings

    kinds = cel.Type
    number, version = kinds.DOUBLE, kinds.List(kinds.DYN)

    def overload(id: str, result: Any, impl: Any, *parameters: Any, member: bool = True) -> Any:
        return cel.Overload(id=id, return_type=result, parameters=list(parameters), is_member=member, impl=impl)

    def comparison(name: str, numbers: Any, versions: Any, result: Any) -> Any:
        overloads = [
            overload(f"{name}_quantity", result, numbers, number, number),
            overload(f"{name}_semver", result, versions, version, version),
        ]
        return cel.FunctionDecl(name, overloads)

    functions = [
        cel.FunctionDecl("quantity", [overload("quantity", number, _number, kinds.STRING, member=False)]),
        cel.FunctionDecl("isQuantity", [overload("is_quantity", kinds.BOOL, _is_number, kinds.STRING, member=False)]),
        cel.FunctionDecl("semver", [overload("semver", version, semver, kinds.STRING, member=False)]),
        comparison("compareTo", lambda a, b: (a > b) - (a < b), _order, kinds.INT),
        comparison("isGreaterThan", lambda a, b: a > b, lambda a, b: _order(a, b) > 0, kinds.BOOL),
        comparison("isLessThan", lambda a, b: a < b, lambda a, b: _order(a, b) < 0, kinds.BOOL),
    ]
    extensions = [ExtBindings(), ExtOptional(), ExtStrings()]
    return cel.NewEnv(variables={"device": kinds.DYN}, functions=functions, extensions=extensions)
