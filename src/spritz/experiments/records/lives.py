"""The order of a run's lives, where two may overlap: a node that was lost but is not dead runs the older one on.

Each start of the run takes the next number by a link in `lives` of the run's directory, which no other start can make
again. So the order does not depend on a clock, nor on the ids of jobs: a trial may continue in another job. A life is
*over* once the next number is taken. The job's script then ends what it started and writes no result
(docs/decisions/0233), and readers ignore what it has written since.

Imports only the standard library, because jobs import it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: Lines of job.sh that take the life's number. job.sh has said SPRITZ_RUN_DIR.
BEGIN = r"""# Each start takes the next number, by a link that is made once. SPRITZ_LIFE is unset if none can be made.
lives=$SPRITZ_RUN_DIR/lives; mkdir -p "$lives"; SPRITZ_LIFE=1
while :; do
    while [ -L "$lives/$SPRITZ_LIFE" ]; do SPRITZ_LIFE=$((SPRITZ_LIFE + 1)); done
    last=; [ "$SPRITZ_LIFE" = 1 ] || last=$(readlink "$lives/$((SPRITZ_LIFE - 1))"); count=${last#*.}
    if [ "${last%%.*}" = "$SLURM_JOB_ID" ] && [ "${count%%@*}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
        echo "spritz: a newer start of this job, $last, has begun: this one leaves" >&2; exit 1
    fi
    last=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}@${SLURMD_NODENAME:-$HOSTNAME}
    ln -sT "$last" "$lives/$SPRITZ_LIFE" 2>/dev/null && break
    [ -L "$lives/$SPRITZ_LIFE" ] || { SPRITZ_LIFE=; break; }
done
if [ -n "$SPRITZ_LIFE" ]; then export SPRITZ_LIFE; else unset SPRITZ_LIFE; fi
"""

#: Functions of job.sh; it has said `say`.
FUNCTIONS = r"""
is_over() { [ -n "$SPRITZ_LIFE" ] && [ -L "$lives/$((SPRITZ_LIFE + 1))" ]; }
give_way() {                       # $1: the command's status. Returns unless a newer start has the run.
    is_over || return 0
    say superseded ", \"status\": $1, \"by\": \"$(readlink "$lives/$((SPRITZ_LIFE + 1))")\""
    echo "spritz: a newer start of this run has begun: this one ends, and its result does not count" >&2
    exit "$1"
}
fence() {                          # older lives publish checkpoints out of these directories: spritz_checkpointing
    local scratch number
    for scratch in "$SPRITZ_CHECKPOINT_DIR"/.life-*@"$SPRITZ_RUN"; do
        number=${scratch##*/.life-}; number=${number%%-*}
        [ -d "$scratch" ] && [ "$number" -lt "${SPRITZ_LIFE:-0}" ] || continue
        mv -T "$scratch" "${scratch%/*}/.over-${scratch##*/}" 2>/dev/null
    done
    rm -rf "$SPRITZ_CHECKPOINT_DIR"/.over-.life-*@"$SPRITZ_RUN"
}
unfence() {                        # at the run's end
    [ -z "$SPRITZ_LIFE" ] || rmdir "$SPRITZ_CHECKPOINT_DIR"/.life-"$SPRITZ_LIFE"-*@"$SPRITZ_RUN" 2>/dev/null
}
yield_to_newer() {                 # ends the command once a newer start has begun; scancel would end that one's job
    local pid signal tries
    trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
    until is_over; do
        sleep 3 & wait $!
        kill -0 $$ 2>/dev/null && kill -0 "$child" 2>/dev/null || return
    done
    # A program may save its state at other signals. Where a task is killed, srun ends those on other nodes.
    for pid in $(grep -lazFx "SPRITZ_LIFE=$SPRITZ_LIFE" /proc/[0-9]*/environ 2>/dev/null); do
        grep -qazFx "SPRITZ_RUN_DIR=$SPRITZ_RUN_DIR" "$pid" && grep -qaz '^SLURM_STEP_ID=' "$pid" || continue
        pid=${pid//[!0-9]/}
        [ "$pid" = "$child" ] || kill -s KILL "$pid"
    done 2>/dev/null
    for signal in TERM KILL; do
        for tries in 1 2 3 4 5 6 7 8 9 10; do
            kill -0 "$child" 2>/dev/null || return
            sleep 1 & wait $!
        done
        kill -s "$signal" "$child" 2>/dev/null
    done
}
"""


def newer(environment: Mapping[str, str] = os.environ) -> str:
    """The start that has taken the run over from the one in which this process runs, as `JOB.RESTART@NODE`; else ""."""
    number = environment.get("SPRITZ_LIFE", "")
    if not number.isdecimal():
        return ""
    try:
        return os.readlink(Path(environment["SPRITZ_RUN_DIR"], "lives", str(int(number) + 1)))
    except OSError:
        return ""


def current(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events, or lines of metrics, without those that a life wrote after a newer one had begun to write.

    Lines without the number of a life stay: those of users' commands and of earlier releases.
    """
    newest = 0
    kept = []
    for line in lines:
        number = line.get("life")
        if isinstance(number, int):
            if number < newest:
                continue
            newest = number
        kept.append(dict(line))
    return kept
