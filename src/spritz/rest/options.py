"""`slurmrestd`'s command line. Source: slurmrestd(8).

Differs: there is no inetd mode, so an address is required. -t has no effect: a single loop serves all connections.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from spritz.model.errors import SpritzError
from spritz.presentation.json.documents import VERSIONS
from spritz.rest.callers import TYPES
from spritz.runtime.daemon.daemon_options import Common, Grammar

USAGE = """\
Usage: slurmrestd [OPTIONS] [host]:port|unix:/path/to/socket ...
  -a plugins        rest_auth/local, rest_auth/jwt (default: both); "list" prints them
  -d versions       v0.0.42,v0.0.43,v0.0.44,v0.0.45 (default: all); "list" prints them
  -f file           Use this slurm.conf
  -g group          Become this group
  -h, --help        Print this help
  --max-con count   Maximum number of connections (default: 4096)
  -s plugins        slurmctld, slurmdbd, util (default: all); "list" prints them
  -t count          Accepted without effect: a single loop serves all connections
  -u user           Become this user
  -v                Log more; may be repeated
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
    """The options of the command line and environment."""

    addresses: tuple[str, ...] = ()
    authentication: tuple[str, ...] = TYPES
    versions: tuple[str, ...] = VERSIONS
    plugins: tuple[str, ...] = _PLUGINS
    user: str = ""
    group: str = ""
    connections: int = _CONNECTIONS
    tls_cert: str = ""
    tls_key: str = ""
    #: the list that -a, -d or -s with `list` asks for
    listed: tuple[str, ...] = ()


def parse(argv: list[str]) -> Options:
    """Parse the command line. Raises SpritzError for unknown options and values."""
    values: dict[str, str] = {}
    addresses: list[str] = []
    verbose = 0
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _LONG:
            values[name] = value if equals else _next(name, words)
        elif word in ("--help", "--version"):
            values["h" if word == "--help" else "V"] = ""
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 1):
                if letter in _GRAMMAR.with_value:
                    values[letter] = word[place + 1 :] or _next(f"-{letter}", words)
                    break
                if letter not in _GRAMMAR.flags:
                    raise SpritzError(
                        f"unrecognized option '{word}': slurmrestd of Spritz does not have it", hint=USAGE
                    )
                verbose += letter == "v"
                values[letter] = ""
        else:
            addresses.append(word)
    environ = os.environ
    listen = [address for address in environ.get("SLURMRESTD_LISTEN", "").split(",") if address]
    listed: tuple[str, ...] = ()
    chosen = {}
    for letter, variable, known, prefix in (
        ("a", "SLURMRESTD_AUTH_TYPES", TYPES, "rest_auth/"),
        ("d", "SLURMRESTD_DATA_PARSER_PLUGINS", VERSIONS, ""),
        ("s", "SLURMRESTD_OPENAPI_PLUGINS", _PLUGINS, ""),
    ):
        text = values.get(letter, environ.get(variable, ""))
        if text == "list":
            listed = known
        chosen[letter] = known if text in ("", "list") else _chosen(letter, text, known, prefix)
    debug = environ.get("SLURMRESTD_DEBUG", "")
    return Options(
        foreground=True,
        config_file=values.get("f", ""),
        help="h" in values,
        version="V" in values,
        verbose=verbose or (max(0, int(debug) - 3) if debug.isdecimal() else 0),
        addresses=(*addresses, *listen) if addresses or listen else (),
        authentication=chosen["a"],
        versions=chosen["d"],
        plugins=chosen["s"],
        user=values.get("u", ""),
        group=values.get("g", ""),
        connections=_count(values.get("--max-con", str(_CONNECTIONS))),
        tls_cert=values.get("--tls-cert", ""),
        tls_key=values.get("--tls-key", ""),
        listed=listed,
    )


def _next(option: str, words: object) -> str:
    value = next(words, "")  # type: ignore[call-overload]  # an iterator of texts
    if not value:
        raise SpritzError(f"option requires an argument -- '{option}'", hint=USAGE)
    return str(value)


def _chosen(letter: str, text: str, known: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    names = []
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
        names.append(name)
    return tuple(dict.fromkeys(names))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise SpritzError(f"--max-con {text}: a number from 1 to 1000000")
    return int(text)
