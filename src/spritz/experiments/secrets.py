"""Find and mask secrets: values of variables and arguments that look like secrets by name or by shape."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from spritz.experiments.errors import ExperimentError

MASK = "********"

_NAME = re.compile(
    r"(?:token|secret|passw(?:or)?d|passwd|passphrase|api[_-]?key|"
    r"(?:^|[_\-.])(?:pwd|credentials?|access[_-]?key|private[_-]?key|auth[_-]?key|cookie|session[_-]?key|dsn))"
    r"(?:$|[_\-.0-9])",
    re.IGNORECASE,
)
#: `pwd` alone is the working directory.
_NOT = frozenset({"PWD", "OLDPWD"})
#: Addresses of notifications have tokens in their paths.
_ALSO = frozenset({"SPRITZ_NOTIFY"})

#: Tokens by their shape: GitHub, GitLab, Hugging Face, OpenAI and Anthropic, AWS, Slack, Google, JWT, PEM.
_SHAPE = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
#: https://user:password@host
_ADDRESS = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a secret."""
    return name in _ALSO or (name not in _NOT and _NAME.search(name.lstrip("-")) is not None)


def masked_text(text: str) -> str:
    """The text with masked tokens of known shape, and masked passwords in URLs."""
    return _ADDRESS.sub(rf"\1:{MASK}@", _SHAPE.sub(MASK, text))


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in order of name; values that look secret, by name or by shape, are masked."""
    return {
        name: MASK if is_secret_name(name) and value else masked_text(value)
        for name, value in sorted(environment.items())
    }


def is_kept(text: str) -> bool:
    """Whether a record has the whole text of a variable: a part of it may be masked, as the password in a URL."""
    return MASK not in text


def required(wanted: Iterable[str], given: Mapping[str, str], owner: str) -> dict[str, str]:
    """The values of secret variables, which no record has, from those that are given. Raises ExperimentError if one is
    not: what `owner` runs would run without it.
    """
    wanted = list(wanted)
    if missing := [name for name in wanted if name not in given]:
        raise ExperimentError(
            f"{', '.join(missing)} of {owner} was secret and is not kept",
            hint="set it here, or under env: of spritz.yaml",
        )
    return {name: given[name] for name in wanted}


def names(environment: Mapping[str, str]) -> list[str]:
    """Names of variables that hold secrets, by name or by the shape of their values, if a shell can use the name."""
    return sorted(name for name, value in environment.items() if value and _is_secret(name, value))


@functools.lru_cache(maxsize=1000)  # many runs are launched with one environment
def _is_secret(name: str, value: str) -> bool:
    return name.isidentifier() and (is_secret_name(name) or masked_text(value) != value)


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Values of secret variables, longest first, since arguments may contain them. Short values are not secrets."""
    values = {value for name, value in environment.items() if is_secret_name(name) and len(value) >= 8}
    return sorted(values, key=len, reverse=True)


def split_arguments(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[list[str], dict[int, str]]:
    """(arguments with masked secrets, original arguments that contain secrets by position)."""
    known = secret_values(environment or {})
    written: list[str] = []
    hidden: dict[int, str] = {}
    follows = False
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if follows and not argument.startswith("-"):
            safe = MASK
        elif equals and value and is_secret_name(name):
            safe = f"{name}={MASK}"
        else:
            safe = masked_text(argument)
            for secret in known:
                safe = safe.replace(secret, MASK)
        follows = not equals and argument.startswith("-") and is_secret_name(argument)
        written.append(safe)
        if safe != argument:
            hidden[place] = argument
    return written, hidden


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with each of these values masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
