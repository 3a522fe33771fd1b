"""Faults of commands: repeated submissions, and srun's requests for allocations and steps."""

from __future__ import annotations

from tests.simulation.planted.entry import Edit, Planted

_RETRY = "client/command/submission_retry.py"
_ALLOCATION = "cli/jobs/launch/allocation.py"

FAULTS = (
    Planted(
        name="repeated_submission_has_a_new_key",
        rule=1,
        kinds=("command's answer lost", "kill", "stop"),
        needs=("commands",),
        file=_RETRY,
        old="                return again.call(request, JobSubmitted)\n",
        new="""\
                if hasattr(request, "submit_key"):
                    request = replace(request, submit_key=submit_key())
                return again.call(request, JobSubmitted)
""",
        also=(
            Edit(
                _RETRY,
                "from spritz.client.command.sync import TAKE_OVER_SECONDS, connect_controller\n",
                "from spritz.client.command.sync import TAKE_OVER_SECONDS, connect_controller, submit_key\n",
            ),
            Edit(
                _RETRY,
                "from spritz.client.errors import ClientError, RemoteError\n",
                "from msgspec.structs import replace\n\nfrom spritz.client.errors import ClientError, RemoteError\n",
            ),
        ),
        why="sbatch repeats a submission whose answer was lost under another key: if the controller died after the"
        " commit, the job exists twice.",
    ),
    Planted(
        name="step_asked_for_anew",
        rule=3,
        kinds=("command's answer lost", "kill", "stop"),
        needs=("commands", "srun"),
        file="cli/jobs/launch/create.py",
        old="                self._request = replace(self._request, again=True)\n",
        new="",
        why="srun does not say that it repeats a request: if the answer was lost with the connection, its step is made"
        " and launched twice.",
    ),
    Planted(
        name="allocation_not_asked_for_again",
        rule=6,
        kinds=("command's answer lost", "kill", "stop"),
        needs=("commands", "srun"),
        file=_ALLOCATION,
        old="""\
            controller.connect_patiently(PATIENCE_SECONDS)
            controller.send(request)
            continue
""",
        new="""\
            controller.connect_patiently(PATIENCE_SECONDS)
            continue
""",
        why="srun that waits for its allocation over a restart of the controller reconnects and asks for nothing: it"
        " waits for ever.",
    ),
    Planted(
        name="end_of_allocation_told_once",
        rule=3,
        kinds=("command's answer lost", "kill", "stop"),
        needs=("commands", "srun"),
        file=_ALLOCATION,
        old="controller.call(finished, Done, patience=PATIENCE_SECONDS)",
        new="controller.call(finished, Done)",
        why="srun that ends while the controller is away gives up: its job is cancelled later, with an exit code that"
        " is not that of its command.",
    ),
)
