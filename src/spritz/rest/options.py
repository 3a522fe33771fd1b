"""`slurmrestd`'s command line. Source: slurmrestd(8).

Differs: there is no inetd mode, so an address is needed; -t chooses nothing, since one loop serves every connection.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from spritz.model.errors import SpritzError
from spritz.presentation.json.documents import VERSIONS
from spritz.rest.callers import TYPES
from spritz.runtime.daemon_options import Common, Grammar

USAGE = """\
Usage: slurmrestd [OPTIONS] [host]:port|unix:/path/to/socket ...
  -a plugins        rest_auth/local, rest_auth/jwt (both); "list" lists them
  -d versions       v0.0.42,v0.0.43,v0.0.44,v0.0.45 (all); "list" lists them
  -f file           Use this slurm.conf
  -g group          Become this group
  -h, --help        Print this help
  --max-con count   Connections at once (4096)
  -s plugins        slurmctld, slurmdbd, util (all); "list" lists them
  -t count          Accepted, and of no effect: one loop serves all connections
  -u user           Become this user
  -v                Say more; may be repeated
  -V                Print version information and exit
  --tls-cert file   Serve TLS with this certificate and its chain (PEM)
  --tls-key file    The key of the certificate (PEM)

Environment: SLURM_CONF, SLURMRESTD_AUTH_TYPES (-a), SLURMRESTD_DATA_PARSER_PLUGINS (-d),
SLURMRESTD_OPENAPI_PLUGINS (-s), SLURMRESTD_LISTEN (addresses, with commas), SLURMRESTD_DEBUG,
SLURMRESTD_SECURITY=disable_user_check
"""

_PLUGINS = ("slurmctld", "slurmdbd", "util")
_CONNECTIONS = 4096
_GRAMMAR = Grammar(program="slurmrestd", usage=USAGE, flags="hvV", with_value="adfgstu")
_LONG = ("--max-con", "--tls-cert", "--tls-key")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """What was asked for."""

    addresses: tuple[str, ...] = ()
    authentication: tuple[str, ...] = TYPES
    versions: tuple[str, ...] = VERSIONS
    plugins: tuple[str, ...] = _PLUGINS
    user: str = ""
    group: str = ""
    connections: int = _CONNECTIONS
    tls_cert: str = ""
    tls_key: str = ""
    #: what -a, -d or -s with `list` asks for
    listed: tuple[str, ...] = ()


def parse(argv: list[str]) -> Options:
    """Raises SpritzError for what slurmrestd does not have."""
    given: dict[str, str] = {}
    addresses: list[str] = []
    verbose = 0
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _LONG:
            given[name] = value if equals else _next(name, words)
        elif word in ("--help", "--version"):
            given["h" if word == "--help" else "V"] = ""
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 1):
                if letter in _GRAMMAR.with_value:
                    given[letter] = word[place + 1 :] or _next(f"-{letter}", words)
                    break
                if letter not in _GRAMMAR.flags:
                    raise SpritzError(
                        f"unrecognized option '{word}': slurmrestd of Spritz does not have it", hint=USAGE
                    )
                verbose += letter == "v"
                given[letter] = ""
        else:
            addresses.append(word)
    environ = os.environ
    listen = [one for one in environ.get("SLURMRESTD_LISTEN", "").split(",") if one]
    listed: tuple[str, ...] = ()
    chosen = {}
    for letter, variable, known, prefix in (
        ("a", "SLURMRESTD_AUTH_TYPES", TYPES, "rest_auth/"),
        ("d", "SLURMRESTD_DATA_PARSER_PLUGINS", VERSIONS, ""),
        ("s", "SLURMRESTD_OPENAPI_PLUGINS", _PLUGINS, ""),
    ):
        text = given.get(letter, environ.get(variable, ""))
        if text == "list":
            listed = known
        chosen[letter] = known if text in ("", "list") else _chosen(letter, text, known, prefix)
    debug = environ.get("SLURMRESTD_DEBUG", "")
    return Options(
        foreground=True,
        config_file=given.get("f", ""),
        help="h" in given,
        version="V" in given,
        verbose=verbose or (max(0, int(debug) - 3) if debug.isdigit() else 0),
        addresses=(*addresses, *listen) if addresses or listen else (),
        authentication=chosen["a"],
        versions=chosen["d"],
        plugins=chosen["s"],
        user=given.get("u", ""),
        group=given.get("g", ""),
        connections=_count(given.get("--max-con", str(_CONNECTIONS))),
        tls_cert=given.get("--tls-cert", ""),
        tls_key=given.get("--tls-key", ""),
        listed=listed,
    )


def _next(option: str, words: object) -> str:
    value = next(words, "")  # type: ignore[call-overload]  # an iterator of texts
    if not value:
        raise SpritzError(f"option requires an argument -- '{option}'", hint=USAGE)
    return str(value)


def _chosen(letter: str, text: str, known: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    found = []
    for word in text.split(","):
        name = word.strip().removeprefix("openapi/").removeprefix("data_parser/").partition("+")[0]
        if letter == "s" and name.startswith("db"):
            name = "slurmdbd"
        if prefix and not name.startswith(prefix):
            name = prefix + name
        if name not in known:
            raise SpritzError(
                f"-{letter} {word}: there is no such plugin", hint=f"there are {', '.join(known)}", exit_code=1
            )
        found.append(name)
    return tuple(dict.fromkeys(found))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise SpritzError(f"--max-con {text}: a number from 1 to 1000000")
    return int(text)
