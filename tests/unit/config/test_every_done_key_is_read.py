"""No key is decoration: what `status` calls done is named where something is done with it.

Crude and honest: a key counts as read if a string of the program, documentation aside, names it outside the tables of
keys and outside what only shows or writes configurations. Fields that `config.build` fills must be used elsewhere.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec
import pytest
from msgspec import inspect

from spritz.config.schema import (
    cgroup_keys,
    container_keys,
    gres_keys,
    helpers_keys,
    oci_keys,
    record_keys,
    slurm_keys,
    slurmdbd_keys,
    status,
    topology_keys,
)
from spritz.config.schema.options import INTEGERS, OPTIONS
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from tests.unit.config.sources import names

#: One process reads the sources, once.
pytestmark = pytest.mark.xdist_group("sources")

#: Know all keys and do nothing with them.
_TELLING = (
    "config/schema/",
    "config/show.py",
    "config/render.py",
    "presentation/",
    "cli/local/",
    # What fields declare is no use of a key of the same name.
    "model/job/record.py",
)

#: Fields that only show what was configured, with the reason.
_SHOWN = {
    "Partition.nodes_text": "scontrol show partition",
    "Partition.billing_weights_text": "scontrol show partition; what counts is billing_weights",
    "NodeConfig.gres_text": "scontrol show node",
    "NodeCapacity.boards": "scontrol show node; CPUs follow from it in config.geometry",
}


@cache
def _words() -> frozenset[str]:
    """Every word of every string that may be a key to read, in lower case."""
    texts = (text for name, found in names().items() if not name.startswith(_TELLING) for text in found.strings)
    return frozenset(word.lower() for text in texts for word in re.findall(r"\w+", text))


@cache
def _attributes() -> frozenset[str]:
    """Attributes read outside the package that reads configurations and the commands that show them."""
    showing = ("config/", "presentation/")
    return frozenset(
        attribute for name, found in names().items() if not name.startswith(showing) for attribute in found.attributes
    )


@pytest.mark.parametrize("name", sorted(status.DONE))
def test_a_key_that_is_done_is_read(name: str) -> None:
    key = name.rpartition(".")[2]
    assert key.lower() in _words(), f"{name} is marked done in config/schema/status.py, and nothing reads it"


def _records(*kinds: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """These and the records in them: policies of preemption, priorities, power …"""
    found: list[type[msgspec.Struct]] = []
    infos: list[inspect.Type] = [*inspect.multi_type_info(kinds)]
    while infos:
        info = infos.pop(0)
        if isinstance(info, inspect.StructType):
            if info.cls not in found:
                found.append(info.cls)
                infos += [field.type for field in info.fields]
            continue
        for name in ("types", "item_types"):
            infos += getattr(info, name, ())
        infos += [getattr(info, name) for name in ("item_type", "key_type", "value_type") if hasattr(info, name)]
    return found


@pytest.mark.parametrize("record", _records(ClusterSettings, Partition, NodeConfig))
def test_what_the_configuration_fills_is_used(record: type[msgspec.Struct]) -> None:
    unused = {f"{record.__name__}.{name}" for name in record.__struct_fields__ if name not in _attributes()}
    assert unused - set(_SHOWN) == set(), "unused fields"


def test_the_table_names_only_keys_and_options_that_there_are() -> None:
    known = {key.name for key in slurm_keys().values()}
    scopes = {"nodename": "NodeName", "partitionname": "PartitionName", "downnodes": "DownNodes", "nodeset": "NodeSet"}
    for kind, table in record_keys().items():
        known |= {f"{scopes[kind]}.{key.name}" for key in table.values()}
    known |= {f"gres.conf.{key.name}" for key in gres_keys().values()}
    known |= {f"topology.conf.{key.name}" for key in topology_keys().values()}
    known |= {f"helpers.conf.{key.name}" for key in helpers_keys().values()}
    known |= {f"job_container.conf.{key.name}" for key in container_keys().values()}
    known |= {f"oci.conf.{key.name}" for key in oci_keys().values()}
    known |= {f"cgroup.conf.{key.name}" for key in cgroup_keys().values()}
    known |= {f"slurmdbd.conf.{key.name}" for key in slurmdbd_keys().values()}
    known |= {f"{key}.{option}" for key, options in OPTIONS.items() for option in options}
    known |= {f"{key.name}.{word}" for key in slurm_keys().values() for word in key.kind.words}
    named = status.DONE | set(status.HONOURED) | set(status.MOOT)
    assert named - known == set()


def test_a_list_of_options_is_called_done_only_if_some_option_of_it_is() -> None:
    lists = {name for name in status.DONE if name in OPTIONS} - {"JobAcctGatherFrequency"}
    for name in lists:
        assert any(f"{name}.{option}" in status.DONE for option in OPTIONS[name]), name


def test_options_that_take_a_number_are_known() -> None:
    options = {option for names in OPTIONS.values() for option in names}
    assert set(INTEGERS) <= options
