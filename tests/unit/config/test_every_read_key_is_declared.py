"""No key acts in silence: what the program reads of a configuration is in the tables of keys, and `status` says that it
works.

The other half of `test_every_done_key_is_read`, and as crude: a key is what `config.settings.Settings` is asked for by
a string, an option what `option` and `has_option` are asked for, or `scheduling.view.parameters` looks up.
"""

from __future__ import annotations

import re

import pytest

from spritz.config.schema import record_keys, slurm_keys, slurmdbd_keys, status
from spritz.config.schema.options import OPTIONS
from tests.unit.config.sources import names

#: One process reads the sources, once.
pytestmark = pytest.mark.xdist_group("sources")

#: methods of `Settings`, and short names for them; subscripts
_READING = frozenset({"", "text", "integer", "flag", "words", "given", "option", "has_option"})
_KEY = re.compile(r"[A-Z]\w*")

#: These show configurations, and do nothing with them.
_TELLING = ("config/schema/", "config/show.py", "rest/configuration.py")

#: Keys that are read although they are moot, with the reason.
_MOOT = {"AccountingStorageTRES": "which TRES sshare and sprio list; all are accounted"}

_HOW = "add it to its table in config/schema and to config/schema/status.py (docs/checklists/config-key.md)"


def test_every_key_that_is_read_is_declared_as_working() -> None:
    known = {key.name for table in (slurm_keys(), slurmdbd_keys(), *record_keys().values()) for key in table.values()}
    asked = [found.asked for name, found in names().items() if not name.startswith(_TELLING)]
    read = {call[1] for calls in asked for call in calls if call[0] in _READING and _KEY.fullmatch(call[1])}
    read &= known
    assert len(read) > 100, "the test no longer sees what is read"
    working = {word for name in (*status.DONE, *status.HONOURED) for word in (name, *name.split("."))}
    silent = read - working - _MOOT.keys()
    assert silent == set(), _HOW


def test_every_option_that_is_read_is_declared_as_working() -> None:
    read = {
        (call[1], call[2].lower())
        for found in names().values()
        for call in found.asked
        if call[0] in ("option", "has_option") and len(call) > 2 and _KEY.fullmatch(call[1])
    }
    # `preemption_policy` asks by the option alone, and by the key that had it in older releases.
    build = names()["config/build.py"].asked
    named = [call for call in build if call[0] == "option" and len(call) > 1 and not _KEY.fullmatch(call[1])]
    read |= {("PreemptParameters", call[1]) for call in named} | {(call[2], call[3]) for call in named if len(call) > 3}
    parameters = names()["scheduling/view/parameters.py"]
    read |= {
        ("SchedulerParameters", call[1])
        for call in parameters.asked
        if call[0] in ("get", "number", "limit", "interval", "in") and len(call) > 1
    }
    assert len(read) > 50, "the test no longer sees what is read"
    working = {tuple(name.lower().split(".")) for name in status.DONE if "." in name}
    silent = {(key, option) for key, option in read if (key.lower(), option) not in working}
    # Some keys are lists of words of a kind, and honoured by the word.
    words = {key.name: {word.lower() for word in status.HONOURED.get(key.name, ())} for key in slurm_keys().values()}
    assert {key for key, _option in read} <= words.keys()
    silent = {(key, option) for key, option in silent if option not in words[key]}
    assert silent == set(), f"{_HOW}; an option also to OPTIONS of config/schema/options.py"
    unknown = {(key, option) for key, option in read if key in OPTIONS and option not in map(str.lower, OPTIONS[key])}
    assert unknown == set(), "options that cause a warning although they act"
