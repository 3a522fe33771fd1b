"""rl_enable: a user who asks without end is slowed, and other users and root are not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.command.sync import connect_address
from spritz.model.queries.partitions import ListPartitions
from tests.e2e.controller_process import ControllerProcess
from tests.e2e.rest_site import Site, token
from tests.e2e.users import NOBODY, as_user

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs other users")


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    words = "rl_enable,rl_bucket_size=4,rl_refill_rate=1,rl_refill_period=1,rl_log_freq=0"
    process = ControllerProcess(tmp_path, extra=f"SlurmctldParameters={words}")
    process.start()
    yield process
    process.kill()


@pytest.mark.root
@needs_root
def test_a_user_is_slowed_to_the_refill_and_others_are_not(controller: ControllerProcess) -> None:
    name = controller.socket_name

    def ask(times: int) -> None:
        with connect_address(name, timeout=60.0, owners=frozenset({0})) as connection:
            connection.send_many([ListPartitions()] * times)
            for _ in range(times):
                assert connection.receive().error is None

    assert as_user(NOBODY, lambda: ask(5)) == ""  # four at once, the fifth when its token comes
    assert as_user(NOBODY - 1, lambda: ask(4)) == ""
    assert as_user(0, lambda: ask(20)) == ""
    assert re.findall(r"user\.limited uid=(\d+)", controller.log) == [str(NOBODY)]


def test_slurmrestd_tells_the_client_to_wait() -> None:
    words = "rl_enable,rl_bucket_size=2,rl_refill_rate=1,rl_refill_period=3600"
    with Site.configured(f"SlurmctldParameters={words}") as site, site.client() as http:
        for path in ("/slurm/v0.0.45/partitions", "/spritz/v1/nodes"):
            headers = {"X-SLURM-USER-TOKEN": token("nobody")}
            answers = [http.get(path, headers=headers) for _ in range(3)]  # three need more than the two that are there
            refused = answers[-1]
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            (error,) = refused.json()["errors"]
            assert error["error_number"] == 1804
            assert error["error"] == "Rate limit exceeded, please retry momentarily"
        headers = {"X-SLURM-USER-TOKEN": token()}
        assert [http.get(path, headers=headers).status_code for _ in range(5)] == [200] * 5
