"""Runs that stop and start again from a checkpoint: at a pause, a preemption, a time limit, a failed node.

The contract with the command is in docs/how-to/pause-and-resume.md. The job's side is `resume.sh` in the run's
directory, which job.sh reads. It uses only bash and Slurm's commands, so Spritz need not be installed there.

A *life* is one start of the job; Slurm counts them in SLURM_RESTART_COUNT. `records.lives` orders those that overlap.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import copied_by_content
from spritz.experiments.job.settings import RunOptions
from spritz.notation import duration

#: Options of a run that concern restarts.
OPTIONS = ("resumable", "max_time", "grace", "stop_signal", "max_stalls", "checkpoint", "checkpoint_dir")
#: Exit status that asks for a restart from the checkpoint (EX_TEMPFAIL).
SAVED = 75
#: Exit statuses of job.sh if restarts made no progress, and if --max-time is used up.
STALLED, TIME_UP = 76, 124

#: Link in a checkpoint directory outside of the run's: the first run to make it has the directory.
_CLAIM_NAME = ".run"
_CLAIM = """\
mkdir -p "$SPRITZ_CHECKPOINT_DIR"
ln -sT "$SPRITZ_RUN_DIR@{mark}" "$SPRITZ_CHECKPOINT_DIR/{claim}" 2>/dev/null
owner=$(readlink "$SPRITZ_CHECKPOINT_DIR/{claim}")
if [ "$owner" != "$SPRITZ_RUN_DIR@{mark}" ]; then
    if [ -n "$owner" ]; then
        echo "spritz: $SPRITZ_CHECKPOINT_DIR has the checkpoints of another run, ${{owner%@*}}:" \
            "remove them, or name this run otherwise (--name)" >&2
    else
        echo "spritz: $SPRITZ_CHECKPOINT_DIR cannot be written" >&2
    fi
    unfence() {{ :; }}
    finish 66
fi
"""

#: File in the run's directory that requests a pause.
PAUSE = "pause"
GRACE_SECONDS = 60
_STALLS_MAX = 3
_SIGNALS = ("USR1", "USR2")
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
_SHEBANG = re.compile(r"#!.*\b(?:ba|da|k|z)?sh\b")
#: Most characters of a script that are searched for traps.
_SCRIPT_CHARACTERS = 1 << 20


def is_resumable(options: RunOptions) -> bool:
    """Whether the run can restart; --max-time implies it."""
    return options.resumable or bool(options.max_time)


def check(options: RunOptions) -> None:
    """Raises ExperimentError for options of checkpoints and requeueing that are invalid or contradict each other."""
    if options.checkpoint == "criu":
        raise ExperimentError(
            "--checkpoint=criu is not supported: CRIU restores a job's processes only with privileges that a user's"
            " job does not have (CAP_CHECKPOINT_RESTORE, and the same process ids on the next node)",
            hint="the command can save its own state: docs/how-to/pause-and-resume.md",
            exit_code=2,
        )
    if options.checkpoint not in ("", "program"):
        raise ExperimentError(f"--checkpoint={options.checkpoint}: program is the only way", exit_code=2)
    if options.stop_signal and options.stop_signal not in _SIGNALS:
        raise ExperimentError(f"--stop-signal={options.stop_signal}: one of {', '.join(_SIGNALS)}", exit_code=2)
    for name in ("grace", "max_stalls"):
        value = getattr(options, name)
        if value and not value.isdecimal():
            raise ExperimentError(f"--{name.replace('_', '-')}={value}: a whole number is expected", exit_code=2)
    if grace_seconds(options) > 65535:
        raise ExperimentError(f"--grace={options.grace}: at most 65535 seconds, as in sbatch --signal", exit_code=2)
    if options.max_time:
        total_seconds(options.max_time)


def placed(options: RunOptions) -> RunOptions:
    """The options with the checkpoint directory as an absolute path: commands look for it from elsewhere."""
    if not options.checkpoint_dir:
        return options
    return replace(options, checkpoint_dir=str(Path(options.checkpoint_dir).expanduser().absolute()))


def grace_seconds(options: RunOptions) -> int:
    """Seconds between the signal and the end."""
    return int(options.grace or GRACE_SECONDS)


def stop_signal(options: RunOptions) -> str:
    """The signal that asks the command to save its state and exit."""
    return options.stop_signal or _SIGNALS[0]


def total_seconds(text: str) -> int:
    """Parse `7d`, `36h`, `90m` or Slurm's forms into seconds. Raises ExperimentError."""
    try:
        seconds = duration.parse_span(text)
    except duration.DurationError:
        seconds = duration.INFINITE
    if seconds == duration.INFINITE:
        raise ExperimentError(f"--max-time={text}: a time as 7d, 36h or 1-12:00:00 is expected", exit_code=2)
    return seconds


def sbatch_words(options: RunOptions) -> list[str]:
    """Directives of a resumable run: the signal goes to job.sh, which passes it on."""
    if not is_resumable(options):
        return []
    return ["--requeue", f"--signal=B:{stop_signal(options)}@{grace_seconds(options)}"]


def script_lines(options: RunOptions, directory: str) -> str:
    """The lines of job.sh before a resumable run's command; "" for other runs.

    `directory` has resume.sh; it is a word of the shell.
    """
    if not is_resumable(options):
        return ""
    return (
        f"stop_signal={stop_signal(options)} grace_seconds={grace_seconds(options)}"
        f" stalls_max={int(options.max_stalls or _STALLS_MAX)}"
        f" total_seconds={total_seconds(options.max_time) if options.max_time else 0}\n"
        f". {directory}/resume.sh || finish 66\n"
    )


def handles_signal(command: Sequence[str], directory: Path, options: RunOptions) -> bool:
    """Whether the command is a shell script that traps the signal itself. Such a script must not start with the signal
    ignored, because a shell cannot trap a signal that was ignored at its start. Source: POSIX, `trap`.
    """
    if not is_resumable(options):
        return False
    words = list(command)
    if Path(words[0]).name in _SHELLS:
        words = [word for word in words[1:] if word == "-c" or not word.startswith("-")]
    if words[:1] == ["-c"]:
        text = " ".join(words[1:2])
    else:
        try:
            with open(directory / words[0], encoding="utf-8", errors="replace") as file:
                text = file.read(_SCRIPT_CHARACTERS)
        except (IndexError, OSError):
            return False
        if not (words[0] != command[0] or words[0].endswith(".sh") or _SHEBANG.match(text)):
            return False
    return re.search(rf"(?m)^[^#\n]*\btrap\b.*\b(SIG)?{stop_signal(options)}\b", text) is not None


def guard(options: RunOptions, *, handled: bool = False) -> str:
    """The prefix of a command that ignores the signal until the program handles it.

    The signal reaches all processes of a step: without the prefix it would kill launchers (torchrun, shells), and
    programs that have not installed their handler yet. A program's own handler replaces this. `handled`: the prefix is
    empty (`handles_signal`).
    """
    if not is_resumable(options) or handled:
        return ""
    return f'bash -c \'trap "" {stop_signal(options)}; exec "$@"\' run '


def checkpoint_directory(directory: Path, options: RunOptions) -> Path:
    """The checkpoint directory, which all starts of the run share. `directory`: the run's, whose name it keeps when it
    is renamed.
    """
    if options.checkpoint_dir:
        return Path(placed(options).checkpoint_dir) / directory.name
    return directory / "checkpoints"


def kept_elsewhere(directory: Path, options: Mapping[str, Any]) -> Path | None:
    """The checkpoint directory of a recorded run that is outside of its directory; None if there is none, or if its
    record does not say where it is. `options` are those of the record.
    """
    place = options.get("checkpoint_dir")
    if not place or not Path(place).expanduser().is_absolute():
        return None
    return checkpoint_directory(directory, RunOptions(checkpoint_dir=place))


def environment_lines(options: RunOptions, mark: str) -> str:
    """Lines of the shell with the variables of the contract; SPRITZ_RUN and SPRITZ_RUN_DIR must be set before.

    `mark` distinguishes the run from others of its name: those of other users and homes, and removed ones.
    """
    place = '"$SPRITZ_RUN_DIR"/checkpoints'
    if options.checkpoint_dir:
        place = f'{shlex.quote(placed(options).checkpoint_dir)}/"$SPRITZ_RUN"'
    lines = f"export SPRITZ_CHECKPOINT_DIR={place} SPRITZ_RESTART=$restart\n"
    return lines + _CLAIM.format(claim=_CLAIM_NAME, mark=mark) if options.checkpoint_dir else lines


def need_own_directory(directory: Path, options: RunOptions, mark: str) -> None:
    """Raises ExperimentError if the run's checkpoint directory is seen to have checkpoints of another run."""
    if not options.checkpoint_dir:
        return
    place = checkpoint_directory(directory, options)
    with suppress(OSError):  # not there yet, or only nodes have it
        owner = os.readlink(place / _CLAIM_NAME)
        if owner != f"{directory}@{mark}":
            raise ExperimentError(
                f"{place} has the checkpoints of another run, {owner.rpartition('@')[0]}",
                hint="remove them, or name this run otherwise: --name",
            )


def install_module(home: Path) -> Path:
    """The directory for PYTHONPATH with `spritz_checkpointing`, which needs no other module of Spritz.

    Its name depends on the content, so that a queued run keeps the module with which it was submitted.
    """
    source = Path(__file__).parents[1] / "checkpointing.py"
    return copied_by_content(source, home / "modules", "{digest}/spritz_checkpointing.py").parent


def latest_checkpoint(directory: Path) -> Path | None:
    """The checkpoint that job.sh chooses for SPRITZ_RESUME_FROM."""
    latest = directory / "latest"
    if latest.exists():
        return latest.resolve()
    try:
        candidates = [path for path in directory.iterdir() if not path.name.startswith(".") and path.suffix != ".tmp"]
    except OSError:
        return None
    return max(candidates, key=lambda path: path.stat().st_mtime_ns, default=None)


def ask_to_stop(directory: Path, job_id: str, signal: str) -> None:
    """Write the request to pause, and signal the batch script. Raises ExperimentError."""
    (directory / PAUSE).touch()
    done = slurm.call(["scancel", "--batch", f"--signal={signal}", job_id])
    if done.returncode:
        withdraw(directory)
        raise ExperimentError(f"scancel: {slurm.said(done)}")


def withdraw(directory: Path) -> bool:
    """Withdraw the request to pause; False if there is none."""
    try:
        (directory / PAUSE).unlink()
    except FileNotFoundError:
        return False
    return True


#: resume.sh; job.sh has said `restart`, `say`, `finish`, `stop_signal`, `grace_seconds`, `stalls_max`, `total_seconds`
SCRIPT = r"""# Read by job.sh: how this run stops and starts again. docs/how-to/pause-and-resume.md has the contract.
# Each life has a file of its own: one that was lost, but is not dead, must not start the next one again.
export SPRITZ_SAVED_FILE=$SPRITZ_RUN_DIR/saved${SPRITZ_LIFE:+-$SPRITZ_LIFE} SPRITZ_STOP_SIGNAL=$stop_signal
life=$SPRITZ_RUN_DIR/life          # what the next life must know of this one
began=$SPRITZ_RUN_DIR/began        # as old as this life: newer checkpoints are progress
used=0 stalls=0 left= nodes= since=0
asked= timer=
# The last task of an array has the array's number: the number alone would mean all tasks.
this=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
this=${this:-$SLURM_JOB_ID}

keep_life() {                      # $1: how this life was left; "running" stands if it ends without a word
    is_over && return
    printf 'used=%s stalls=%s left=%s nodes=%s since=%s\n' "$((used + SECONDS))" "$stalls" "$1" \
        "'$SLURM_JOB_NODELIST'" "$born" > "$life.new" && mv "$life.new" "$life"
}

requeue() {                        # $1: requeue or requeuehold; what follows runs until Slurm kills this script
    local tries
    give_way 75
    for tries in 1 2 3 4 5; do
        scontrol "$1" "$this" && return 0
        # Slurm itself may have requeued the job, for a preemption.
        case $(squeue -h -r -j "$this" -o %T) in PENDING | COMPLETING | REQUEUE*) break ;; esac
        sleep 2
    done
    [ "$tries" -lt 5 ] && { [ "$1" = requeue ] || scontrol hold "$this"; }
}

failed_nodes() {                   # those of the last life that are down, or whose slurmd has started since (seconds)
    local node shown at
    for node in $(scontrol show hostnames "$nodes"); do
        shown=$(scontrol -o show node "$node" 2>/dev/null) || continue
        at=$(grep -oE 'SlurmdStartTime=[^ ]+' <<< "$shown"); at=$(date -d "${at#*=}" +%s 2>/dev/null)
        if grep -qE 'State=[^ ]*(DOWN|NOT_RESPONDING|FAIL|\*)' <<< "$shown" || [ "${at:-0}" -ge "$since" ]; then
            echo "$node"
        fi
    done
}

leave_failed_nodes() {             # requeue without nodes that failed under this run, if enough others are up
    local mine others excluded
    [ -s "$SPRITZ_RUN_DIR/failed-nodes" ] || return 0
    mine=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -Fxf "$SPRITZ_RUN_DIR/failed-nodes") || return 0
    others=$(sinfo -h -N -p "$SLURM_JOB_PARTITION" -t idle,alloc,mix,comp -o %N | sort -u |
        grep -cvFxf "$SPRITZ_RUN_DIR/failed-nodes")
    [ "$others" -ge "$SLURM_JOB_NUM_NODES" ] || return 0
    say excluded ", \"nodes\": \"$(paste -sd, <<< "$mine")\""
    excluded=$(scontrol -o show job "$this" | grep -oE 'ExcNodeList=[^ ]+')
    excluded=${excluded#*=}; [ "$excluded" = "(null)" ] && excluded=
    excluded=$excluded${excluded:+,}$(sort -u "$SPRITZ_RUN_DIR/failed-nodes" | paste -sd,)
    trap '' TERM
    keep_life moved
    requeue requeue || return 0
    scontrol update JobId="$this" ExcNodeList="$excluded"
    exit 75
}

begin_life() {
    local before last
    mkdir -p "$SPRITZ_CHECKPOINT_DIR" || finish 66
    rm -f "$SPRITZ_SAVED_FILE"
    [ -e "$life" ] && . "$life"
    last=$left
    if [ "$last" = running ]; then # it ended without a word: a node failed, or Slurm killed it
        before=$(failed_nodes)
        [ -n "$before" ] && echo "$before" >> "$SPRITZ_RUN_DIR/failed-nodes"
        say lost ", \"nodes\": \"$(paste -sd, <<< "$before")\""
    fi
    # The directory itself changes too where a life begins or ends (`fence`).
    if [ -e "$began" ] &&
        [ -n "$(find "$SPRITZ_CHECKPOINT_DIR" -mindepth 1 ! -path '*/.*life-*@*' -newer "$began" -print -quit)" ]
    then
        stalls=0
    elif [ "$last" = running ] || [ "$last" = requeued ]; then
        stalls=$((stalls + 1))
    fi
    [ "$last" = moved ] || : > "$began"
    born=$(date +%s)
    SECONDS=0
    keep_life running
    if [ "$stalls" -gt "$stalls_max" ]; then
        say stalled ", \"restarts\": $stalls"
        finish 76
    fi
    leave_failed_nodes
    if [ -e "$SPRITZ_CHECKPOINT_DIR/latest" ]; then
        last=$(readlink -f "$SPRITZ_CHECKPOINT_DIR/latest")
    else
        last=$(find "$SPRITZ_CHECKPOINT_DIR" -mindepth 1 -maxdepth 1 ! -name '.*' ! -name '*.tmp' -printf '%T@ %p\n' |
            sort -n | tail -n 1 | cut -d' ' -f2-)
    fi
    if [ -n "$last" ]; then export SPRITZ_RESUME_FROM=$last; else unset SPRITZ_RESUME_FROM; fi
}

time_up() {                        # the signal before --max-time is used up, as Slurm sends it before the time limit
    local before=$((total_seconds - used - SECONDS - grace_seconds))
    trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
    sleep $((before > 0 ? before : 0)) & wait $!
    kill -s "$stop_signal" $$
    sleep "$grace_seconds" & wait $!
    kill -s TERM "$child"
}

stop() {                           # $1: the signal that this script got
    caught=$1
    say signalled ", \"signal\": \"$1\""
    [ "$1" = TERM ] && keep_life signalled
    [ -n "$asked" ] && [ "$asked" = "$1" ] && return
    asked=$1
    [ -n "$child" ] && pass_on
}

launched() {                       # srun would die of a signal that it is not ready for, so it starts with it ignored
    trap "stop $stop_signal" "$stop_signal"
    [ -n "$asked" ] || [ ! -e "$SPRITZ_RUN_DIR/pause" ] || asked=$stop_signal
    pass_on
    [ "$total_seconds" -gt 0 ] || return 0
    time_up &
    timer=$!
}

pass_on() {                        # until the command ends: it may not have been ready for the first signal
    [ -n "$asked" ] || return 0
    local paused=
    [ -e "$SPRITZ_RUN_DIR/pause" ] && paused=yes
    while kill -0 $$ 2>/dev/null && kill -s "$stop_signal" "$child" 2>/dev/null; do
        sleep 2
        [ -z "$paused" ] || [ -e "$SPRITZ_RUN_DIR/pause" ] || break
    done &
}

end_life() {                       # $1: the command's status. Returns if the run is over.
    local over=
    [ -n "$timer" ] && kill "$timer" 2>/dev/null
    give_way "$1"
    [ "$total_seconds" -gt 0 ] && [ $((used + SECONDS + grace_seconds)) -ge "$total_seconds" ] && over=yes
    if [ "$1" != 75 ] && [ ! -e "$SPRITZ_SAVED_FILE" ]; then
        if [ "$asked" = TERM ]; then   # whether it is over or requeued is for Slurm to say
            say stopped ", \"status\": $1"
            exit "$1"
        fi
        [ "$1" -gt 128 ] && [ -n "$over" ] && finish 124
        return 0
    fi
    trap '' TERM
    if [ -e "$SPRITZ_RUN_DIR/pause" ]; then
        keep_life paused
        say paused
        rm -f "$SPRITZ_RUN_DIR/pause"
        requeue requeuehold && exit 75
    elif [ -n "$over" ]; then
        keep_life over
        finish 124
    else
        keep_life "$([ "$asked" = TERM ] && echo signalled || echo requeued)"
        say requeued
        requeue requeue && exit 75
    fi
    finish 75
}

trap "stop $stop_signal" "$stop_signal"
trap "stop TERM" TERM
begin_life
"""
