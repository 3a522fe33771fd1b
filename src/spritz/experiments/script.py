"""The batch script of a run: checks out the code, sets the rendezvous, runs the command, records how it ended.

Plain bash and git, so that nothing of ours must be installed where the job runs. Templates say how the command becomes
processes:

    plain       the command once on each node (one node: once)
    tasks       the command as `--tasks-per-node` tasks a node (Lightning and MPI-less SPMD programs)
    torchrun    torchrun on each node, a process for each GPU
    accelerate  accelerate launch on each node, a process for each GPU
    deepspeed   deepspeed's launcher on each node, a process for each GPU
    lightning   a task for each GPU: Lightning reads Slurm's variables
    ray         a Ray head and workers, then the command on the first node
    mpi         a task for each CPU or GPU, with Slurm's PMI
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.settings import RunOptions, per_node_gpus, sbatch_options
from spritz.notation.names import nearest

TEMPLATES = ("plain", "tasks", "torchrun", "accelerate", "deepspeed", "lightning", "ray", "mpi")

#: variables that carry arguments which must not be written down
SECRET_VARIABLE = "SPRITZ_ARGUMENT_{}"

#: Weights & Biases reads these itself, Aim's are for `Run(run_hash=os.environ["AIM_RUN_HASH"])`.
_IDENTITIES = """\
export WANDB_RUN_ID=${{WANDB_RUN_ID:-$SPRITZ_RUN-{mark:.8}}} WANDB_RESUME=${{WANDB_RESUME:-allow}}
export WANDB_NAME=${{WANDB_NAME:-$SPRITZ_RUN}}
printf -v AIM_RUN_HASH '%s%08x' {mark:.16} "${{SLURM_ARRAY_TASK_ID:-0}}"; export AIM_RUN_HASH
"""

#: A second late, so as to be in nobody's way, and on one node without Slurm's help, which costs less. The sampler ends
#: with the script that started it.
_SAMPLING = """\
if [ "${{SPRITZ_SAMPLE_SECONDS:-1}}" != 0 ]; then
    [ "$SLURM_NNODES" = 1 ] || across="srun --overlap --ntasks-per-node=1 --ntasks=$SLURM_NNODES --output=/dev/null"
    ( sleep 1; export SPRITZ_SAMPLER=1; exec $across {inside} sample ) < /dev/null > /dev/null 2>&1 &
fi
"""


#: What keeps a notification from being sent is kept beside the logs; its addresses come in $SPRITZ_NOTIFY.
_NOTIFYING = """\
export SPRITZ_PYTHON={python}
notify() {{
    timeout 60 "$SPRITZ_PYTHON" -I -m spritz.experiments.notify "$@" \\
        < /dev/null >> "$SPRITZ_RUN_DIR/log/notify.log" 2>&1
}}"""

#: It ends with the script that started it.
_GUARDING = """\
( export SPRITZ_SAMPLER=1; exec python3 "$SPRITZ_RUN_DIR/watch.py" guard ) < /dev/null &
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the script is made of."""

    name: str
    directory: Path
    options: RunOptions
    command: Sequence[str]
    #: places of `command` whose value comes in a variable
    hidden: Mapping[int, str]
    #: git tree, and the repository that has it; "" runs in `work_directory`
    tree: str
    repository: Path
    #: below the code, or absolute without a snapshot
    work_directory: str
    #: whether somebody is to be told of what happens, by which interpreter, and whether idle GPUs are watched
    notifier: str = ""
    guarded: bool = False
    #: the program that runs beside the command (`inside`), and whether the run is tracked
    inside: Path
    tracked: bool
    #: hexadecimal, and no other run's: other trackers go on with what is made of it in each life of the run
    mark: str


def text(job: Job) -> str:
    """The script. Raises ExperimentError for a template that does not exist or does not fit."""
    options = job.options
    template = options.template or ("tasks" if options.tasks_per_node else "plain")
    if template not in TEMPLATES:
        near = nearest(template, TEMPLATES)
        raise ExperimentError(
            f"{template}: no such template" + (f" (did you mean {near}?)" if near else ""),
            hint=f"templates are {', '.join(TEMPLATES)}",
        )
    words = [
        f"--job-name={job.name}",
        f"--output={job.directory}/log/job.log",
        "--open-mode=append",
        f"--ntasks-per-node={_tasks_per_node(template, options)}",
        *sbatch_options(options),
    ]
    directives = "\n".join(f"#SBATCH {_directive(word)}" for word in words)
    quoted = " ".join(
        '"$' + SECRET_VARIABLE.format(place) + '"' if place in job.hidden else shlex.quote(word)
        for place, word in enumerate(job.command)
    )
    code = f"{shlex.quote(str(job.directory))}/code"
    exports = _IDENTITIES.format(mark=job.mark) + "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in options.env.items()
    )
    inside = f"python3 {shlex.quote(str(job.inside))}"
    place = f"{code}/{shlex.quote(job.work_directory)}" if job.tree else shlex.quote(job.work_directory)
    notifying = _NOTIFYING.format(python=shlex.quote(job.notifier)) if job.notifier else "notify() { :; }"
    tracking = f'eval "$({inside} track)"\n' if job.tracked else ""
    closing = f'{inside} close "$1"; ' if job.tracked else ""
    return f"""#!/bin/bash
{directives}
# Run {job.name}. Made by `spritz run`; `spritz rerun {job.name}` runs it again.
export SPRITZ_RUN={job.name} SPRITZ_RUN_DIR={shlex.quote(str(job.directory))} PYTHONUNBUFFERED=1
restart=${{SLURM_RESTART_COUNT:-0}}
{notifying}
say() {{
    printf '{{"event": "%s", "at": %s, "restart": %s%s}}\\n' "$1" "$(date +%s.%N)" "$restart" "$2" \\
        >> "$SPRITZ_RUN_DIR/events.jsonl"
    case $1 in ended | paused) notify "$1" ;; esac
}}
child=
forward() {{ say signalled ", \\"signal\\": \\"$1\\""; [ -n "$child" ] && kill -s "$1" "$child" 2>/dev/null; }}
for signal in TERM INT USR1 USR2; do trap "forward $signal" "$signal"; done
say started ", \\"nodes\\": \\"$SLURM_JOB_NODELIST\\", \\"job\\": \\"$SLURM_JOB_ID\\""
finish() {{ say ended ", \\"status\\": $1"; {closing}exit "$1"; }}
{snapshot.checkout_lines(job.repository, job.tree, code) if job.tree else ""}cd {place} || finish 66
{exports}export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
{"".join(f"{line}{chr(10)}" for line in options.setup)}{tracking}log=$SPRITZ_RUN_DIR/log/$restart-%t.log
errors=$SPRITZ_RUN_DIR/log/$restart-srun.log
{_launch(template, options, quoted)} 2>> "$errors" &
child=$!
{_GUARDING if job.guarded else ""}{_SAMPLING.format(inside=inside)}while :; do
    wait "$child"; status=$?
    # A trapped signal ends `wait`; the command may still be saving its state.
    kill -0 "$child" 2>/dev/null || break
done
# srun ends with the highest status, that of tasks which it killed because another had failed: the first one counts.
first=$(grep -m 1 -oE 'Exited with exit code [0-9]+' "$errors" 2>/dev/null)
[ "$status" -gt 128 ] && [ -n "$first" ] && status=${{first##* }}
finish "$status"
"""


def _directive(word: str) -> str:
    """sbatch reads directives with quotes as a shell does."""
    name, equals, value = word.partition("=")
    return f'{name}="{value}"' if equals and any(char in value for char in " #'") else word


def _tasks_per_node(template: str, options: RunOptions) -> str:
    if options.tasks_per_node:
        return options.tasks_per_node
    if template in ("lightning", "mpi"):
        return per_node_gpus(options) or "1"
    return "1"


def _launch(template: str, options: RunOptions, command: str) -> str:
    """The lines that start the command; the last is put into the background."""
    srun = 'srun --kill-on-bad-exit=1 --output="$log" --error="$log" --open-mode=append'
    processes = per_node_gpus(options) or options.tasks_per_node or "1"
    if template in ("plain", "tasks", "lightning"):
        return f"{srun} {command}"
    if template == "mpi":
        return f"{srun} --mpi=${{SPRITZ_MPI:-pmix}} {command}"
    if template == "torchrun":
        program = command.removeprefix("python3 ").removeprefix("python ")
        return (
            f'{srun} --ntasks-per-node=1 torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={processes} '
            '--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" '
            f"{program}"
        )
    if template == "accelerate":
        program = command.removeprefix("python3 ").removeprefix("python ")
        return (
            f'{srun} --ntasks-per-node=1 bash -c \'exec accelerate launch --num_machines="$SLURM_NNODES" '
            f'--num_processes=$((SLURM_NNODES * {processes})) --machine_rank="$SLURM_NODEID" '
            f'--main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT" "$@"\' accelerate {program}'
        )
    if template == "deepspeed":
        program = command.removeprefix("python3 ").removeprefix("python ")
        return (
            f'{srun} --ntasks-per-node=1 bash -c \'exec python -m torch.distributed.run --nnodes="$SLURM_NNODES" '
            f'--nproc-per-node={processes} --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" '
            f'--master-port="$MASTER_PORT" "$@"\' deepspeed {program}'
        )
    return f"""srun --overlap --ntasks-per-node=1 --output="$SPRITZ_RUN_DIR/log/$restart-ray-%t.log" bash -c '
if [ "$SLURM_NODEID" = 0 ]; then exec ray start --head --block --port="$MASTER_PORT"
else exec ray start --block --address="$MASTER_ADDR:$MASTER_PORT"; fi' &
cluster=$!
export RAY_ADDRESS=$MASTER_ADDR:$MASTER_PORT
until ray status >/dev/null 2>&1; do kill -0 "$cluster" || finish 69; sleep 0.2; done
trap 'kill "$cluster" 2>/dev/null' EXIT
srun --overlap -N1 -n1 -w "$MASTER_ADDR" --output="$log" --open-mode=append {command}"""
