"""Faults of the outbox and of slurmdbd's ledger and store."""

from __future__ import annotations

from tests.simulation.planted.entry import Edit, Planted

_OUTBOX = "controller/outbox.py"
_STORE = "accounting/store.py"
_LEDGER = "accounting/ledger/ledger.py"
_NEEDS = ("accounting",)

FAULTS = (
    Planted(
        name="outbox_acknowledges_before_stored",
        rule=6,
        needs=_NEEDS,
        file=_OUTBOX,
        old="            message = await self._next_message()\n",
        new="            message = await self._next_message()\n"
        "            self.acknowledged = message.groups[-1].last\n",
        also=(
            Edit(
                _OUTBOX,
                "        self.acknowledged, self.set_aside = reply.sequence, reply.set_aside\n",
                "        self.acknowledged = max(self.acknowledged, reply.sequence)\n"
                "        self.set_aside = reply.set_aside\n",
            ),
        ),
        why="A batch counts as stored when it is sent: one that is lost with its connection is not sent again, and"
        " slurmdbd takes no later one.",
    ),
    Planted(
        name="outbox_skips_an_event",
        rule=6,
        needs=_NEEDS,
        file=_OUTBOX,
        old="        self.acknowledged, self.set_aside = reply.sequence, reply.set_aside\n",
        new="        self.acknowledged = reply.sequence + bool(reply.sequence)\n"
        "        self.set_aside = reply.set_aside\n",
        why="At each reconnection the outbox begins one event too late: where that event is a group by itself, slurmdbd"
        " lacks it and refuses what follows.",
    ),
    Planted(
        name="refused_batch_sent_at_once",
        rule=5,
        needs=_NEEDS,
        file=_OUTBOX,
        old="                        await self._pause(channel)\n",
        new="",
        why="While slurmdbd's database is full, the controller registers and sends the same batch fifty times a"
        " second.",
    ),
    Planted(
        name="repeated_batch_counts_again",
        rule=6,
        needs=_NEEDS,
        file=_STORE,
        old="""\
            if group.last <= at:
                continue
            if group.first > at + 1:
                raise DatabaseError(f"events {at + 1} to {group.first - 1} of cluster {name} are missing")
            for number, event in enumerate(codec.decode(group), group.first):
                if number > at:
                    events.append((cluster.base + number, event))
            at = group.last
""",
        new="""\
            if group.first > at + 1:
                raise DatabaseError(f"events {at + 1} to {group.first - 1} of cluster {name} are missing")
            for number, event in enumerate(codec.decode(group), group.first):
                events.append((cluster.base + number, event))
            at = max(at, group.last)
""",
        also=(
            Edit(
                _OUTBOX,
                "        self.acknowledged, self.set_aside = reply.sequence, reply.set_aside\n",
                "        self.acknowledged = self.acknowledged or reply.sequence\n"
                "        self.set_aside = reply.set_aside\n",
            ),
        ),
        why="A batch whose answer was lost is sent again with newer events, and all of it is applied again: suspended"
        " times, and what steps used, count twice.",
    ),
    Planted(
        name="ledger_kept_after_a_failed_commit",
        rule=6,
        needs=_NEEDS,
        file=_STORE,
        old="        except BaseException:\n            self.forget()\n            raise\n",
        new="        except BaseException:\n            raise\n",
        also=(Edit(_STORE, "        self._clusters.pop(request.cluster, None)\n", ""),),
        why="After a commit that failed, the records in memory hold the batch already, and its repetition applies it a"
        " second time.",
    ),
    Planted(
        name="suspension_open_at_the_end",
        rule=6,
        needs=("accounting", "suspend"),
        file=_LEDGER,
        old='    _end_suspension(ledger, record, event.at)\n    if record.state == "PENDING":\n',
        new='    if record.state == "PENDING":\n',
        why="The last suspension of a job that is cancelled while it is suspended counts as run time.",
    ),
    Planted(
        name="suspended_time_of_the_former_life",
        rule=6,
        needs=("accounting", "suspend", "requeue"),
        file=_LEDGER,
        old="new.started_at = new.ended_at = new.suspended_at = new.suspended_seconds = 0.0",
        new="new.started_at = new.ended_at = new.suspended_at = 0.0",
        why="A requeued job begins its next life with the suspended time of the one before.",
    ),
    Planted(
        name="late_events_not_rolled_up",
        rule=6,
        needs=_NEEDS,
        file=_STORE,
        old=".values(sequence=sequence, rolled_until=set_back(since))",
        new=".values(sequence=sequence)",
        why="Events that arrive after their hour was rolled up, as after a cut between slurmctld and slurmdbd, are in"
        " no usage.",
    ),
    Planted(
        name="cancelled_tasks_taken_for_the_array",
        rule=6,
        needs=("accounting", "arrays"),
        file=_STORE,
        old=", jobs.c.aside.is_(False))",
        new=")",
        why="After slurmdbd restarts, the row of an array's cancelled tasks is taken for the array: later tasks are"
        " recorded as cancelled.",
    ),
)
