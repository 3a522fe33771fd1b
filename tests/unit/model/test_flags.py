"""Every flag of jobs and QOS declares how it is shown; every flag of a QOS is asked for by some rule."""

from __future__ import annotations

import pytest

from spritz.model.limits import flags
from spritz.model.states import JOB_FLAGS, JOB_STATES, JobFlag, JobState
from tests.unit.config.sources import names

#: One process reads the sources, once.
pytestmark = pytest.mark.xdist_group("sources")


def test_every_flag_and_state_of_a_job_declares_how_it_is_shown() -> None:
    assert set(JOB_FLAGS) == set(JobFlag), "give it a line in JOB_FLAGS of model/states.py"
    assert set(JOB_STATES) == set(JobState), "give it a line in JOB_STATES of model/states.py"
    for table in (JOB_FLAGS.values(), JOB_STATES.values()):
        codes, metrics = ([shown[place] for shown in table if shown[place]] for place in (0, 1))
        assert len(set(codes)) == len(codes)
        assert len(set(metrics)) == len(metrics)


def test_every_flag_of_a_qos_is_declared_and_asked_for() -> None:
    constants = {name: value for name, value in vars(flags).items() if name.isupper() and isinstance(value, str)}
    assert set(constants.values()) == set(flags.FLAGS), "give it a line in FLAGS of model/limits/flags.py"
    others = [found for name, found in names().items() if name != "model/limits/flags.py"]
    read = {word for found in others for word in found.attributes | found.plain}
    unread = {value for name, value in constants.items() if name not in read}
    assert unread == set(), "flags that no rule asks for"
    words = [flag.json for flag in flags.FLAGS.values()]
    assert len(set(words)) == len(words)
