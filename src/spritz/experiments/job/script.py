"""The batch script of a run: checks out the code, sets the rendezvous, runs the command, records how it ended.

Plain bash and git, so that Spritz need not be installed where the job runs. Templates determine the processes of the
command:

    plain       the command once on each node
    tasks       the command as `--tasks-per-node` tasks on each node (Lightning and SPMD programs without MPI)
    torchrun    torchrun on each node, a process for each GPU
    accelerate  accelerate launch on each node, a process for each GPU
    deepspeed   deepspeed's launcher on each node, a process for each GPU
    lightning   a task for each GPU: Lightning reads Slurm's variables
    ray         a Ray head and workers, then the command on the first node
    mpi         a task for each CPU or GPU, with Slurm's PMI
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments.code import outputs, outward, snapshot, sources, trimming
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import containers, resuming
from spritz.experiments.job.settings import RunOptions, per_node_gpus, sbatch_options
from spritz.experiments.records import lives
from spritz.notation.names import nearest

#: Templates with a launcher that starts the command's processes on each node.
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
TEMPLATES = ("plain", "tasks", "torchrun", "accelerate", "deepspeed", "lightning", "ray", "mpi")

#: Modules for a template; the command's Python must have one of them.
MODULES = {
    "torchrun": ("torch",),
    "accelerate": ("accelerate",),
    "deepspeed": ("deepspeed",),
    "lightning": ("lightning", "pytorch_lightning"),
    "ray": ("ray",),
}

#: Prefix of variables that carry secret arguments.
SECRET_VARIABLE = "SPRITZ_ARGUMENT_{}"

#: Weights & Biases reads these itself.
_IDENTITIES = """\
export WANDB_RUN_ID=${{WANDB_RUN_ID:-$SPRITZ_RUN-{mark:.8}}} WANDB_RESUME=${{WANDB_RESUME:-allow}}
export WANDB_NAME=${{WANDB_NAME:-$SPRITZ_RUN}}
"""

#: Starts a second late, in order not to delay the command, and on a single node without srun, which costs less. The
#: sampler ends with the script that started it.
_SAMPLING = """\
if [ "${{SPRITZ_SAMPLE_SECONDS:-1}}" != 0 ]; then
    [ "$SLURM_NNODES" = 1 ] || across="srun --overlap --ntasks-per-node=1 --ntasks=$SLURM_NNODES --output=/dev/null"
    ( sleep 1; export SPRITZ_SAMPLER=$$; exec $across {inside} sample {event_files} ) < /dev/null > /dev/null 2>&1 &
fi
"""


#: Errors of notifications are stored next to the logs; $SPRITZ_NOTIFY has the addresses.
_NOTIFYING = """\
export SPRITZ_PYTHON={python}
notify() {{{once}
    timeout 60 "$SPRITZ_PYTHON" -I -m {program} \\
        < /dev/null >> "$SPRITZ_RUN_DIR/log/notify.log" 2>&1
}}"""
#: The last trial of a sweep reports, once, that the sweep has ended.
_ENDING = """
    if [ "$1" = ended ]; then
        : > {sweep}/ended/$SLURM_ARRAY_TASK_ID
        [ "$(ls {sweep}/ended | wc -l)" = {size} ] && ln -s "$array" {sweep}/told 2>/dev/null || return 0
    fi"""

#: A trial that gets new code keeps the earlier checkout with what the program wrote there, and its note of `trimming`.
_SETTING_ASIDE = """\
before=$(cat "$SPRITZ_RUN_DIR/code-version" 2>/dev/null || echo 1)
if [ "$before" != {version} ]; then
    for name in code-removed.gone code-removed.part code-removed.txt code; do
        [ ! -e "$SPRITZ_RUN_DIR/$name" ] ||
            mv -T "$SPRITZ_RUN_DIR/$name" "$SPRITZ_RUN_DIR/code-$before${{name#code}}" || finish 66
    done
    echo {version} > "$SPRITZ_RUN_DIR/code-version" || finish 66
fi
"""

#: It ends with the script that started it.
_GUARDING = """\
( export SPRITZ_SAMPLER=1; exec python3 {program} guard ) < /dev/null &
"""
#: {NAME} in a command of a sweep.
_PLACE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The values from which the batch script of a run is made."""

    name: str
    directory: Path
    options: RunOptions
    command: Sequence[str]
    #: indexes in `command` of arguments whose value is in a variable
    hidden: Mapping[int, str]
    #: git tree, and the repository that has it; "" runs in `work_directory`
    tree: str
    repository: Path
    #: below the code, or absolute without a snapshot
    work_directory: str
    #: whether to send notifications, by which interpreter, and whether to watch for idle GPUs
    notifier: str = ""
    guarded: bool = False
    #: the program in parallel to the command (`inside`), and whether the run is tracked
    inside: Path
    #: the program that copies what the command logs for TensorBoard or W&B (`event_files`)
    event_files: Path
    #: the program that says what of the data has changed since the submission (`data_states`)
    data_states: Path
    tracked: bool
    #: hexadecimal and unique: other trackers continue the record of this id at each start of the run
    mark: str
    #: variables whose values are masked in the logs
    secret_names: Sequence[str] = ()
    #: for the command's PYTHONPATH: our module for programs, and what makes imports come from the snapshot
    modules: Path | None = None
    imports: Path | None = None
    #: links into the working tree, as lines for the shell (`linked`); `{code}` is the quoted place of the checkout
    links: str = ""
    #: lines for the shell, after `setup`, that lead programs to the environment of the project or of an earlier run
    environment: str = ""
    #: absolute targets of the links, for containers
    linked: Sequence[str] = ()
    #: absolute paths of data, which containers may only read
    data: Sequence[str] = ()
    #: what persists between runs
    outputs: Sequence[outputs.Output] = ()
    #: of the run's code beyond the project
    sources: Sequence[snapshot.Source] = ()
    #: links that lead out of the project: path -> target (`outward`)
    outward: Sequence[tuple[str, str]] = ()
    #: the command is a shell script with a trap for the signal (`resuming.handles_signal`)
    handles_signal: bool = False
    #: the trials of a sweep: the script serves all tasks of an array
    trials: Trials | None = None
    #: the file by which one of the jobs that may have been queued for a step claims it (`pipelines.state`)
    claim: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Additional inputs for a sweep's script: each task of the array is a run `NAME.INDEX`."""

    #: the sweep's directory
    sweep: Path
    #: the directory of what trials with this version of the code share
    shared: Path
    version: int
    #: parameter -> variable that carries its value; `{parameter}` in the command is its place
    variables: Mapping[str, str]
    #: the interpreter that draws parameters and stops trials early
    python: str
    #: whether the trial draws its parameters when it starts
    asks: bool
    watched: bool
    retries: int
    #: number of trials
    size: int


def text(job: Job) -> str:
    """The script. Raises ExperimentError for a template that does not exist or does not fit."""
    template = _template(job.options)
    return "".join((
        "#!/bin/bash\n",
        *(f"#SBATCH {_directive(word)}\n" for word in _sbatch_words(template, job)),
        _identity(job),
        _functions(job),
        _preparation(job),
        _RENDEZVOUS,
        _setup(job),
        _command(template, job),
        _end(job),
    ))  # fmt: skip


def _template(options: RunOptions) -> str:
    """The template that the options name or imply. Raises ExperimentError."""
    template = options.template or ("tasks" if options.tasks_per_node else "plain")
    if template not in TEMPLATES:
        near = nearest(template, TEMPLATES)
        raise ExperimentError(
            f"{template}: no such template" + (f" (did you mean {near}?)" if near else ""),
            hint=f"templates are {', '.join(TEMPLATES)}",
        )
    return template


def _sbatch_words(template: str, job: Job) -> list[str]:
    return [
        f"--job-name={job.name}",
        f"--output={job.directory}{'.%a' if job.trials else ''}/log/job.log",
        "--open-mode=append",
        f"--ntasks-per-node={_tasks_per_node(template, job.options)}",
        *resuming.sbatch_words(job.options),
        *sbatch_options(job.options),
    ]


def _identity(job: Job) -> str:
    """The run's name and directory, and the number of this start of it."""
    index = ".$SLURM_ARRAY_TASK_ID" if job.trials else ""
    return f"""\
# Run {job.name}. Made by `spritz run`; `spritz rerun {job.name}` runs it again.
export SPRITZ_RUN={job.name}{index} SPRITZ_RUN_DIR={shlex.quote(str(job.directory))}{index} PYTHONUNBUFFERED=1
# Two machines that append to a file on NFS write over each other's lines.
events=$SPRITZ_RUN_DIR/events.${{SLURMD_NODENAME:-$(uname -n)}}.jsonl
{_claim(job.claim)}{_life(job.trials)}
{lives.BEGIN}"""


#: As `pipelines.state.Pipeline.claim`, and before anything else: a job that leaves must not take a life of the run, for
#: then the one that stays would be an earlier life, whose result does not count.
_CLAIM = """\
job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}
mkdir -p {folder}
printf %s "$job" > {folder}/".$SLURM_JOB_ID" && ln {folder}/".$SLURM_JOB_ID" {claim} 2>/dev/null
rm -f {folder}/".$SLURM_JOB_ID"
claimed=$(cat {claim} 2>/dev/null)
if [ -n "$claimed" ] && [ "$claimed" != "$job" ]; then
    echo "spritz: job $claimed runs this step; job $job was queued twice and leaves" >&2
    exit 0
fi
"""


def _claim(claim: Path | None) -> str:
    if claim is None:
        return ""
    return _CLAIM.format(folder=shlex.quote(str(claim.parent)), claim=shlex.quote(str(claim)))


def _functions(job: Job) -> str:
    """The shell functions that record what happens, pass signals on and end the run; the run starts with them."""
    inside = _inside(job)
    names = [*job.secret_names, *(SECRET_VARIABLE.format(place) for place in job.hidden)]
    masking = f"{inside} mask {' '.join(names)}; " if names else ""
    closing = f'{inside} close "$1"; ' if job.tracked else ""
    keeping = "keep_outputs; " if job.outputs else ""
    looking = _LOOKING.format(program=shlex.quote(str(job.data_states))) if job.data else ""
    trims = "".join(f"trim {place} {tree}; " for place, tree in _checkouts(job))
    return f"""\
{outputs.functions(job.outputs, _checkout(job))}\
{_notifying(job.notifier, job.trials)}
say() {{
    printf '{{"event": "%s", "at": %s, "restart": %s%s%s}}\\n' "$1" "$(date +%s.%N)" "$restart" \\
        "${{SPRITZ_LIFE:+, \\"life\\": $SPRITZ_LIFE}}" "$2" >> "$events"
    case $1 in ended | paused) notify "$1" ;; esac
}}{lives.FUNCTIONS}\
child=
forward() {{
    caught=$1; say signalled ", \\"signal\\": \\"$1\\""
    [ -n "$child" ] && kill -s "$1" "$child" 2>/dev/null
}}
for signal in TERM INT USR1 USR2; do trap "forward $signal" "$signal"; done
say started ", \\"nodes\\": \\"$SLURM_JOB_NODELIST\\", \\"job\\": \\"$SLURM_JOB_ID\\""
{trimming.function(job.repository) if trims else ""}\
finish() {{
    give_way "$1"
    unfence
    [ -z "$(find "$SPRITZ_RUN_DIR/" \\( -name 'events.out.tfevents.*' -o -name '*.wandb' \\) -print -quit)" ] ||
        python3 {shlex.quote(str(job.event_files))}
    {looking}{masking}{keeping}{trims}say ended ", \\"status\\": $1"; {closing}exit "$1"
}}
"""


#: Data may change while the run waits and while it runs.
_LOOKING = """data=$(python3 {program} "$SPRITZ_RUN_DIR" 2>/dev/null)
    [ -z "$data" ] || say data ", \\"changed\\": $data"
    """


def _checkouts(job: Job) -> list[tuple[str, str]]:
    """The run's checkouts, quoted for the shell, with their trees; without those that trials share."""
    if not job.tree:
        return []
    shared = [] if job.trials else [(_source_place(job, source), source.tree) for source in job.sources]
    return [(_checkout(job), job.tree), *shared]


def _source_place(job: Job, source: snapshot.Source) -> str:
    return f"{_shared_directory(job)}/sources/{source.name}"


def _preparation(job: Job) -> str:
    """Lines that set the parameters, check out the code, go to its directory and export variables."""
    code = _checkout(job)
    place = f"{code}/{shlex.quote(job.work_directory)}" if job.tree else shlex.quote(job.work_directory)
    return "".join((
        f"{resuming.environment_lines(job.options, job.mark)}fence\n",
        _parameters(job.trials),
        resuming.script_lines(job.options, _shared_directory(job)),
        _SETTING_ASIDE.format(version=job.trials.version) if job.tree and job.trials and job.trials.version > 1 else "",
        snapshot.checkout_lines(job.repository, job.tree, code, [output.path for output in job.outputs])
        if job.tree
        else "",
        job.links.replace("{code}", code),
        *(
            snapshot.checkout_lines(job.repository, source.tree, _source_place(job, source))
            for source in job.sources
        ),
        outward.lines(job.outward, {source.root: _source_place(job, source) for source in job.sources}, code),
        outputs.lines(job.outputs, code),
        # A directory without any file of the snapshot is not in the checkout.
        f"mkdir -p {place}\n" if job.tree else "",
        f"cd {place} || finish 66\n",
        _IDENTITIES.format(mark=job.mark),
        *(f"export {name}={shlex.quote(value)}\n" for name, value in job.options.env.items()),
    ))  # fmt: skip


def _checkout(job: Job) -> str:
    """The place of the run's code, quoted for the shell."""
    return '"$SPRITZ_RUN_DIR/code"' if job.trials else f"{shlex.quote(str(job.directory))}/code"


def _setup(job: Job) -> str:
    """Lines of the user, then what must follow them."""
    shared = f"{_shared_directory(job)}/{sources.FILE}"
    return "".join((
        *(f"{line}\n" for line in job.options.setup),
        job.environment,
        f"export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{shlex.quote(str(job.modules))}\n" if job.modules else "",
        f"export PYTHONPATH={shlex.quote(str(job.imports))}:$PYTHONPATH SPRITZ_RUN_SOURCES={shared}\n"
        if job.imports
        else "",
        f'eval "$({_inside(job)} track)"\n' if job.tracked else "",
    ))  # fmt: skip


def _command(template: str, job: Job) -> str:
    """Lines that start the command, and what runs at the same time, and wait for the command's status."""
    quoted = [
        '"$' + SECRET_VARIABLE.format(place) + '"' if place in job.hidden else _word(word, job.trials)
        for place, word in enumerate(job.command)
    ]
    ignoring = "trap '' $stop_signal\n" if resuming.is_resumable(job.options) else ""
    return f"""\
{_OPEN_LOOP if job.trials else ""}\
log=$SPRITZ_RUN_DIR/log/$restart-%t.log
errors=$SPRITZ_RUN_DIR/log/$restart-srun.log
{ignoring}{_launch(template, job, quoted)} 2>> "$errors" &
child=$!
{_companions(job)}status=
while :; do
    # A trapped signal ends `wait`; the command may still be saving its state.
    caught=; wait "$child"; code=$?
    [ "$code" = 127 ] && [ -n "$status" ] && break
    status=$code
    [ -n "$caught" ] || break
done
kill "$yielding" 2>/dev/null
give_way "$status"
# srun ends with the highest status, that of tasks which it killed because another had failed: the first one counts.
first=$(grep -m 1 -oE 'Exited with exit code [0-9]+' "$errors" 2>/dev/null)
[ "$status" -gt 128 ] && [ -n "$first" ] && status=${{first##* }}
"""


def _companions(job: Job) -> str:
    """Lines that start what runs in parallel to the command: sampler, guard, the watcher of a trial, timer."""
    shared = _shared_directory(job)
    return "".join((
        f'ln -sf {shared}/guard.json "$SPRITZ_RUN_DIR/guard.json"\n' if job.trials and job.guarded else "",
        _SAMPLING.format(inside=_inside(job), event_files=shlex.quote(str(job.event_files))),
        _GUARDING.format(program=f"{shared}/watch.py") if job.guarded else "",
        _watcher(job.trials),
        "yield_to_newer < /dev/null > /dev/null 2>&1 & yielding=$!\n",
        "launched\n" if resuming.is_resumable(job.options) else "",
    ))  # fmt: skip


def _end(job: Job) -> str:
    resumable = resuming.is_resumable(job.options)
    ending = 'end_life "$status"\n' if resumable else ""
    return f"""{_close_loop(job.trials, resumable)}{ending}finish "$status"\n"""


def _inside(job: Job) -> str:
    return f"python3 {shlex.quote(str(job.inside))}"


def _shared_directory(job: Job) -> str:
    """The directory with the files that the script reads, quoted for the shell: the run's, or the sweep's."""
    return '"$SPRITZ_RUN_DIR"' if job.trials is None else shlex.quote(str(job.trials.shared))


#: Sets MASTER_ADDR and MASTER_PORT.
_RENDEZVOUS = """\
head_node=$SLURM_JOB_NODELIST
[ "$SLURM_NNODES" = 1 ] || head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR=$head_node
# A node's name need not be one of the network.
if [ "$SLURM_NNODES" != 1 ] && ! getent ahosts "$head_node" > /dev/null; then
    address=$(scontrol -o show node "$head_node" | grep -oE ' NodeAddr=[^ ]+'); MASTER_ADDR=${address#*=}
    [ -n "$MASTER_ADDR" ] || MASTER_ADDR=$head_node
fi
# Below the ports that Linux gives to clients; another one in each life, as processes of the last may still hold theirs.
export MASTER_PORT=$((20000 + (SLURM_JOB_ID + 1009 * restart) % 12000))
"""


def _word(word: str, trials: Trials | None) -> str:
    """The word quoted for the shell, with variables in place of parameters."""
    if trials is None:
        return shlex.quote(word)
    parts = _PLACE.split(word)
    quoted = [
        shlex.quote(part) if place % 2 == 0
        else f'"${trials.variables[part]}"' if part in trials.variables
        else shlex.quote("{" + part + "}")
        for place, part in enumerate(parts) if part
    ]  # fmt: skip
    return "".join(quoted) or "''"


#: Nothing runs over a result, which is that of the newest life: Slurm requeues a job whose end its node did not report.
_RESULT = r"""# Nothing runs over a result, which is that of the newest life.
newest=$(ls "$SPRITZ_RUN_DIR/lives" 2>/dev/null | sort -n | tail -n 1)
if cat "$SPRITZ_RUN_DIR"/events*.jsonl 2>/dev/null | grep -E '"event": "(started|ended)"' |
    grep "${newest:+\"life\": $newest,}" | tail -n 1 | grep -q '"event": "ended".*"status": 0[,}]'
then
    echo "spritz: $SPRITZ_RUN has its result already, and does not run again over it: \`spritz rerun\` repeats it" >&2
    exit 0
fi"""


def _life(trials: Trials | None) -> str:
    """Lines that count the run's starts: Slurm counts restarts of a job, but a trial may continue in another job."""
    if trials is None:
        return f"restart=${{SLURM_RESTART_COUNT:-0}}\n{_RESULT}"
    return f"""\
# A trial belongs to a single array: a task that finds another array's claim has nothing to do.
array=$SLURM_ARRAY_JOB_ID
ln -s "$array" "$SPRITZ_RUN_DIR/claim" 2>/dev/null
[ "$(readlink "$SPRITZ_RUN_DIR/claim")" = "$array" ] || {{ echo "spritz: another job has this trial" >&2; exit 0; }}
{_RESULT}
restart=$(cat "$SPRITZ_RUN_DIR"/events*.jsonl 2>/dev/null | grep -c '"event": "started"')"""


def _ours(trials: Trials, verb: str) -> str:
    """A call of `spritz.experiments.sweeps.trial`; the user's directory and PYTHONPATH hide none of its modules."""
    module = "-P -E -m spritz.experiments.sweeps.trial"
    return f'{shlex.quote(trials.python)} {module} {verb} {shlex.quote(str(trials.sweep))} "$SLURM_ARRAY_TASK_ID"'


def _parameters(trials: Trials | None) -> str:
    if trials is None:
        return ""
    ask = ""
    if trials.asks:
        ask = f"""[ -e "$SPRITZ_RUN_DIR/params.sh" ] || {_ours(trials, "ask")} || finish 69\n"""
    return f"""{ask}. "$SPRITZ_RUN_DIR/params.sh" || finish 66\n"""


def _watcher(trials: Trials | None) -> str:
    return f"""{_ours(trials, "watch")} "$restart" "$child" & watcher=$!\n""" if trials and trials.watched else ""


def _notifying(python: str, trials: Trials | None) -> str:
    """The shell function that sends notifications; a trial sends those of its sweep's end and of its own pauses."""
    if not python:
        return "notify() { :; }"
    program, once = 'spritz.experiments.notify "$@"', ""
    if trials is not None:
        sweep = shlex.quote(str(trials.sweep))
        once = _ENDING.format(sweep=sweep, size=trials.size)
        program = f'spritz.experiments.sweeps.trial notify {sweep} "$SLURM_ARRAY_TASK_ID" "$@"'
    return _NOTIFYING.format(python=shlex.quote(python), program=program, once=once)


_OPEN_LOOP = "tries=0\nwhile :; do\n"


def _close_loop(trials: Trials | None, resumable: bool) -> str:
    """Starts the command of a trial again after it failed, while retries are left and nothing has stopped it."""
    if trials is None:
        return ""
    lines = []
    over = ""
    if resumable:
        lines = ["""[ -n "$timer" ] && kill "$timer" 2>/dev/null"""]
        over = """ || [ "$status" = 75 ] || [ -e "$SPRITZ_SAVED_FILE" ]"""  # it wants to be started in another life
    if trials.watched:
        lines += [
            """kill "$watcher" 2>/dev/null; wait "$watcher" 2>/dev/null""",
            """grep -q "\\"pruned\\".*\\"restart\\": $restart[,}]" "$events" && finish 0""",
        ]
    stopped = """grep -q "\\"signalled\\".*\\"restart\\": $restart," "$events\""""
    return "\n".join([
        *lines,
        f"""[ "$status" = 0 ] || [ "$tries" -ge {trials.retries} ]{over} || {stopped} && break""",
        """say retried ", \\"status\\": $status\"""",
        "tries=$((tries + 1)); restart=$((restart + 1)); child=",
        """say started ", \\"nodes\\": \\"$SLURM_JOB_NODELIST\\", \\"job\\": \\"$SLURM_JOB_ID\\"\"""",
        "done\n",
    ])  # fmt: skip


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


def per_node(options: RunOptions) -> dict[str, int]:
    """How many tasks, processes of a launcher and GPUs each node has, as far as they are known before the start."""
    template = _template(options)
    try:
        gpus = per_node_gpus(options)
    except ExperimentError:  # not the same on all nodes
        gpus = ""
    tasks = "1" if template in LAUNCHERS else _tasks_per_node(template, options)
    processes = gpus or options.tasks_per_node or "1" if template in LAUNCHERS else tasks
    counts = {"tasks": tasks, "processes": processes, "gpus": gpus}
    return {name: int(count) for name, count in counts.items() if count.isdecimal()}


def launcher_words(template: str, command: Sequence[str], processes: str, variables: Mapping[str, str]) -> list[str]:
    """The command by the launcher of a template, on one node of a job; for a process that runs once on each node."""
    launcher, place = _launcher(template, command)
    total = str(int(variables["SLURM_NNODES"]) * int(processes))
    several = total != "1"
    return [*launcher, *_rendezvous(template, processes, total, variables, several=several), *command[place:]]


def _launcher(template: str, command: Sequence[str]) -> tuple[list[str], int]:
    """The launcher's first words, and the words of the command that follow its options.

    A Python program is launched by its own interpreter, so that no launcher of another environment on PATH is taken.
    """
    accelerate = template == "accelerate"
    if PYTHON.fullmatch(command[0]):
        place = 1
        while place < len(command) and _PYTHON_FLAGS.fullmatch(command[place]):
            place += 1
        if place < len(command) and (command[place] == "-m" or not command[place].startswith("-")):
            module = "accelerate.commands.launch" if accelerate else "torch.distributed.run"
            return [*command[:place], "-m", module], place
    launcher = ["accelerate", "launch"] if accelerate else ["torchrun"]
    if not command[0].endswith(".py"):
        launcher.append("--no_python" if accelerate else "--no-python")
    return launcher, 0


def _rendezvous(template: str, processes: str, total: str, variables: Mapping[str, str], *, several: bool) -> list[str]:
    """Options with the node's number, and the first node as the rendezvous.

    A rendezvous by host names (c10d) takes a node for the first one if its host name is MASTER_ADDR, which depends on
    how names are resolved; the number of the node does not.
    """
    nodes, node = variables["SLURM_NNODES"], variables["SLURM_NODEID"]
    address, port = variables["MASTER_ADDR"], variables["MASTER_PORT"]
    if template == "accelerate":
        return [
            *(f"--num_machines={nodes}", f"--num_processes={total}", f"--machine_rank={node}"),
            *(f"--main_process_ip={address}", f"--main_process_port={port}"),
            *_accelerate_defaults(several),
        ]
    return [
        *(f"--nnodes={nodes}", f"--nproc-per-node={processes}", f"--node-rank={node}"),
        *(f"--master-addr={address}", f"--master-port={port}"),
    ]


def _accelerate_defaults(several: bool) -> list[str]:
    """Options that `accelerate config` would have written: without them, nodes with a GPU each would train separately.

    They are left out if the user has a configuration file, which may set more (FSDP, DeepSpeed) and which they would
    override.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    folder = Path(os.environ.get("HF_HOME") or cache) / "accelerate"
    if any((folder / f"default_config.{suffix}").exists() for suffix in ("yaml", "yml", "json")):
        return []
    return [*(["--multi_gpu"] if several else []), "--mixed_precision=no", "--dynamo_backend=no"]


def _mounted(job: Job) -> list[str]:
    """The mounts of the command's container, quoted for the shell."""
    mounts = ['"$SPRITZ_RUN_DIR"', _shared_directory(job)]
    if not job.tree:
        mounts.append(shlex.quote(job.work_directory))
    if job.options.checkpoint_dir:
        mounts.append('"$SPRITZ_CHECKPOINT_DIR"')
    if job.modules:
        mounts.append(shlex.quote(str(job.modules)))
    if job.imports:
        mounts.append(shlex.quote(str(job.imports)))
    mounts += [shlex.quote(path) for path in (*job.linked, *(output.mounted for output in job.outputs))]
    return mounts


def _launch(template: str, job: Job, quoted: Sequence[str]) -> str:
    """The lines that start the command, the last in the background. `quoted`: its words, quoted for the shell."""
    options, command = job.options, job.command
    srun = 'srun --kill-on-bad-exit=1 --output="$log" --error="$log" --open-mode=append'
    srun += containers.words(options, _mounted(job), [shlex.quote(path) for path in job.data])
    program = f"{resuming.guard(options, handled=job.handles_signal)}{' '.join(quoted)}"
    if template in ("plain", "tasks", "lightning"):
        return f"{srun} {program}"
    if template == "mpi":
        return f"{_MPI}{srun} ${{mpi:+--mpi=$mpi}} {program}"
    if template in LAUNCHERS:
        processes = per_node_gpus(options) or options.tasks_per_node or "1"
        launcher, place = _launcher(template, command)
        words = _rendezvous(
            template, processes, f"$((SLURM_NNODES * {processes}))", _IN_SHELL,
            several=(options.nodes or "1", processes) != ("1", "1"),
        )  # fmt: skip
        quoted_words = " ".join(f'"{word}"' for word in words)
        line = f'exec {shlex.join(launcher)} {quoted_words} "$@"'
        start = f"bash -c {shlex.quote(line)} {template} {' '.join(quoted[place:])}"
        return f'{srun} --ntasks="$SLURM_NNODES" --ntasks-per-node=1 {resuming.guard(options)}{start}'
    ray = _RAY.format(ray=shlex.quote(str(Path(command[0]).with_name("ray"))) if "/" in command[0] else "ray")
    return f"""{ray}srun --overlap -N1 -n1 --ntasks-per-node=1 -w "$head_node" --kill-on-bad-exit=1 \\
    --output="$log" --error="$log" --open-mode=append {program}"""


PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
#: Flags of the interpreter without value.
_PYTHON_FLAGS = re.compile(r"-[bBEIOPqsuv]+")
_IN_SHELL = {name: f"${name}" for name in ("SLURM_NNODES", "SLURM_NODEID", "MASTER_ADDR", "MASTER_PORT")}

#: Open MPI uses PMIx with Slurm, MPICH and its derivatives PMI-2; without an mpirun, the site's MpiDefault applies.
_MPI = """\
mpi=$SPRITZ_MPI
[ -n "$mpi" ] || case $(mpirun --version 2>/dev/null) in
    *"Open MPI"* | *OpenRTE*) mpi=pmix ;;
    ?*) mpi=pmi2 ;;
esac
"""
#: Each start of a job has its own directory and ports, so that jobs on the same node do not collide. Ray's server for
#: clients outside the job runs if its package is installed, and then needs its own port.
_RAY = """\
ray={ray}; [ -x "$ray" ] || ray=ray
export SPRITZ_RAY_COMMAND=$ray RAY_ADDRESS=$MASTER_ADDR:$MASTER_PORT RAY_USAGE_STATS_ENABLED=0
export SPRITZ_RAY=/tmp/ray-$SLURM_JOB_ID-$restart
srun --overlap --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 --open-mode=append \\
    --output="$SPRITZ_RUN_DIR/log/ray-$restart-%t.log" bash -c '
rest="--block --disable-usage-stats --num-cpus=$SLURM_CPUS_ON_NODE --min-worker-port=0 --max-worker-port=0"
rest="$rest --dashboard-agent-listen-port=0"
trap "rm -rf \"$SPRITZ_RAY\"" EXIT; trap "stopped=yes; kill %1" TERM
if [ "$SLURM_NODEID" = 0 ]; then
    python=$(dirname "$(command -v "$SPRITZ_RAY_COMMAND")")/python
    "$python" -c "import grpc" 2> /dev/null && rest="$rest --ray-client-server-port=$((MASTER_PORT - 12000))"
    "$SPRITZ_RAY_COMMAND" start --head --port="$MASTER_PORT" --include-dashboard=false --temp-dir="$SPRITZ_RAY" $rest &
else
    "$SPRITZ_RAY_COMMAND" start --address="$RAY_ADDRESS" $rest &
fi
wait $!; status=$?; wait; [ -n "$stopped" ] || exit $status' 2>> "$SPRITZ_RUN_DIR/log/ray-$restart-srun.log" &
cluster=$!
trap 'kill "$cluster" 2>/dev/null; wait "$cluster"' EXIT
until [ "$("$ray" status 2>/dev/null | grep -c '^ *[0-9]* node_')" -ge "$SLURM_NNODES" ]; do
    kill -0 "$cluster" 2>/dev/null || {{ cat "$SPRITZ_RUN_DIR/log/ray-$restart-"*.log >&2; finish 69; }}
    sleep 0.2
done
"""
