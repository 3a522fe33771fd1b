"""Faults of the writer, the blobs, the images, the recovery, and the journals with their lease."""

from __future__ import annotations

from tests.simulation.planted.entry import Edit, Planted

_LOOP = "controller/writer/loop.py"
_BLOBS = "controller/journal/blobs.py"
_IMAGES = "controller/journal/images.py"
_COPY = "controller/journal/copy.py"
_POSTGRESQL = "controller/journal/postgresql.py"
_IMAGE = "core/image.py"

FAULTS = (
    Planted(
        name="reply_before_commit",
        rule=1,
        file=_LOOP,
        old="group.on_release.append(lambda: then(reply))",
        new="self._loop.call_soon(then, reply)",
        why="A reply leaves while its group is on its way to the disk: a controller killed in between has acknowledged"
        " a job that does not exist.",
    ),
    Planted(
        name="effects_before_commit",
        rule=3,
        file=_LOOP,
        old="group.effects.extend(outcome.effects)",
        new="self._loop.call_soon(self._on_effects, list(outcome.effects))",
        why="A launch leaves before the start is durable: after a kill the job is pending again, and the same life is"
        " started a second time, perhaps on another node.",
    ),
    Planted(
        name="read_before_durable",
        rule=2,
        file=_LOOP,
        old="""\
        elif self._syncing:
            self._unreleased[-1].on_release.append(callback)
""",
        new="",
        why="A read does not wait for the group that is being written: a user sees a change that a crash then undoes.",
    ),
    Planted(
        name="refusals_overtake_groups",
        rule=1,
        kinds=("kill", "kill inside a write", "power inside a write", "disk slow", "kill at a callback"),
        file=_LOOP,
        old="""\
            group.durable = True
            self._release_durable()
            return
""",
        new="""\
            self._release(self._unreleased.pop())
            return
""",
        also=(
            Edit(
                _LOOP,
                "        if not self._syncing and not self._stopped:\n            self._commit()\n",
                "        if (not self._syncing or not self._gathering.events) and not self._stopped:\n"
                "            self._commit()\n",
            ),
        ),
        why="Replies without events of their own do not wait for earlier groups: a repeated submission is answered with"
        " the id of a job that is not on disk yet, on a slow disk before a kill.",
    ),
    Planted(
        name="scripts_of_refused_jobs_dropped",
        rule=1,
        file=_LOOP,
        old="""\
        if not group.events:
            group.durable = True
""",
        new="""\
        if not group.events:
            self._blobs.take_unsent()
            group.durable = True
""",
        why="The script of a refused submission counts as stored and is not: the next job with this script, which is"
        " accepted, has none after a restart.",
    ),
    Planted(
        name="script_put_back_is_removed",
        rule=1,
        defect="b4",
        file=_BLOBS,
        old="""\
        self._unnamed.pop(key, None)
        self._remember(key, body)
""",
        new="""\
        self._remember(key, body)
""",
        why="A script that is submitted again between its collection and its removal is removed all the same: an"
        " acknowledged job loses its script, on a slow disk.",
    ),
    Planted(
        name="environments_not_named",
        rule=1,
        file=_BLOBS,
        old="                    named.add(job.spec.environment_key)\n",
        new="",
        why="The collector takes environments for unused: they are removed while their jobs wait, and are missing once"
        " the cache has lost them, as after a restart.",
    ),
    Planted(
        name="image_one_event_ahead",
        rule=4,
        file=_IMAGES,
        old="sequence, machine, journal = context.writer.last_sequence, context.machine, context.journal",
        new="sequence, machine, journal = context.writer.last_sequence + 1, context.machine, context.journal",
        why="An image claims one event more than it holds: a restart from it leaves that event out.",
    ),
    Planted(
        name="image_before_durable",
        rule=4,
        file=_IMAGES,
        old="context.writer.when_durable(child.go)",
        new="child.go()",
        why="An image is written although its last events are not on disk: after a kill it holds events that the"
        " journal lacks, and the controller does not start.",
    ),
    Planted(
        name="prune_what_accounting_lacks",
        rule=6,
        needs=("accounting",),
        file=_IMAGES,
        old="return min([sequence - EVENTS_KEPT, *(needed() for needed in self._context.events_needed)])",
        new="return sequence",
        why="Events are pruned that slurmdbd has not stored: jobs that ended while it was away are missing from its"
        " records, or lack their suspensions.",
    ),
    Planted(
        name="replay_repeats_half_a_group",
        rule=4,
        kinds=("kill", "kill inside a write", "power inside a write", "disk slow", "kill at a callback"),
        file="controller/journal/recovery.py",
        old="            if number > at:\n                try:\n",
        new="            if group.last > at:\n                try:\n",
        why="Where an image ends in the middle of a group, a restart applies the group's first events twice.",
    ),
    Planted(
        name="standby_applies_events_twice",
        rule=4,
        defect="b5",
        needs=("standby",),
        file=_COPY,
        old="""\
        try:
            replay_after(_Noting(reading, self), recovered.machine)
        except JournalFailed:
            raise  # between two groups: the state is that of the last event read
""",
        new="""\
        before = recovered.machine.state.version, self._checksum
        try:
            replay_after(_Noting(reading, self), recovered.machine)
        except JournalFailed:
            recovered.machine.state.version, self._checksum = before
            raise
""",
        why="A standby whose database breaks between two pages applies the first page again at its next look.",
    ),
    Planted(
        name="standby_not_compared",
        rule=4,
        needs=("standby",),
        file=_COPY,
        old="(self.position <= last and self._checksum == store.checksum(self.position))",
        new="self.position <= last",
        why="A standby keeps events that the database lost at a failover to a replica that lagged: its copy is not the"
        " leader's state.",
    ),
    Planted(
        name="takeover_without_last_events",
        rule=1,
        needs=("standby",),
        file=_COPY,
        old="""\
        self._advance(journal, journal)
        assert self._recovered is not None, "it has been read"
""",
        new="""\
        if self._recovered is None:
            self._advance(journal, journal)
        assert self._recovered is not None, "it has been read"
""",
        why="A standby leads with the copy of its last look: what the leader acknowledged between that and the lease is"
        " lost.",
    ),
    Planted(
        name="lost_replica_not_noticed",
        rule=1,
        needs=("standby", "database failover"),
        file=_POSTGRESQL,
        old="if checksum is not None and _checksum(database, last) != checksum:",
        new="if checksum is not None and _checksum(database, last) not in (None, checksum):",
        why="A leader goes on with a promoted replica that lacks acknowledged events: the journal has a gap, and no"
        " controller can recover from it.",
    ),
    Planted(
        name="append_in_the_present_term",
        rule=4,
        needs=("standby",),
        file=_POSTGRESQL,
        old="self._writer.run(lambda database: self._insert(database, _APPEND, (self.term, *row), group))",
        new="term = self._writer.lease().term\n"
        "            self._writer.run(lambda database: self._insert(database, _APPEND, (term, *row), group))",
        why="The fence is open for groups without scripts: a leader that was stopped and goes on after a takeover"
        " journals events between those of its successor.",
    ),
    Planted(
        name="standby_ignores_heartbeats",
        rule=4,
        needs=("standby",),
        file="controller/lead/standby.py",
        old="if self._seen != (lease.term, lease.beat):",
        new="if self._seen is None or self._seen[0] != lease.term:",
        why="A standby takes the lease of a leader that renews it: for up to a heartbeat two controllers answer and"
        " send orders.",
    ),
    Planted(
        name="lease_from_the_answer",
        rule=4,
        needs=("standby",),
        file="controller/lead/lease.py",
        old="self._seen, self._silent = self._beats, self._took",
        new="self._seen, self._silent = self._beats, 0.0",
        why="A leader whose heartbeats are answered late goes on for as many seconds after a standby may lead.",
    ),
    Planted(
        name="lost_lease_not_noticed",
        rule=4,
        needs=("standby",),
        file="controller/lead/lease.py",
        old="if monotonic() - told_at >= self._seconds:",
        new="if monotonic() - told_at >= 100 * self._seconds:",
        also=(
            Edit(
                "controller/lead/lease.py",
                "if (self._silent + 1.5) * self._pause > self._seconds:",
                "if (self._silent + 1.5) * self._pause > 100 * self._seconds:",
            ),
        ),
        why="A leader that is cut off from the database goes on after its lease: it answers with old state and repeats"
        " orders while another controller leads.",
    ),
    Planted(
        name="image_forgets_suspensions",
        rule=4,
        needs=("suspend",),
        file=_IMAGE,
        old="""\
        if job.suspended_at:
            use.suspend(job.id)
""",
        new="",
        why="A state read from an image counts the CPUs of suspended jobs as in use: it differs from a replay, and"
        " these jobs can never be resumed.",
    ),
    Planted(
        name="image_forgets_ended_steps",
        rule=3,
        needs=("srun",),
        file=_IMAGE,
        old="            ended_steps=list(state.ended_steps.values()),\n",
        new="",
        why="After a restart from an image the controller does not know a short step that has ended: srun, whose answer"
        " was lost, asks again, and the step runs twice.",
    ),
    Planted(
        name="trial_takes_a_job_id",
        rule=4,
        file="core/decide/arrays.py",
        old="""\
        if free_count == count:
            return job_id - count + 1
""",
        new="""\
        if free_count == count:
            state.next_job_id = number + 1
            return job_id - count + 1
""",
        why="A decision changes the state without an event: after --test-only the leader's next job id is not that of"
        " the journal and of the standby.",
    ),
    Planted(
        name="submit_key_of_arrays_forgotten",
        rule=1,
        needs=("arrays",),
        file="core/state.py",
        old="            if job.submit_key:\n"
        "                undo.put(self.submissions, (job.spec.uid, job.submit_key), job_id)\n",
        new="            if job.submit_key and job.array is None:\n"
        "                undo.put(self.submissions, (job.spec.uid, job.submit_key), job_id)\n",
        why="The repeated submission of an array, whose answer was lost, queues it twice.",
    ),
)
