"""The option rows of sbatch (`b`), salloc (`a`) and srun (`s`): all options of Slurm, implemented or refused.

Source: sbatch(1), salloc(1), srun(1) of 22.05; newer options from 25.05.
"""

from __future__ import annotations

from spritz.cli.call.options import Row

#: Reasons that several refused options share.
_BURST = "there are no burst buffers"
_FREQUENCY = "processor and GPU clocks are not set"
_SPECIAL = "jobs cannot use specialized cores, nor change how many a node has (AllowSpecResourcesUsage has no effect)"
_SWITCH = "there is no network plugin"

#: (commands, row)
_TABLE: tuple[tuple[str, Row], ...] = (
    # -- identity
    ("bas", Row("job-name", "J", "name", "name of the job")),
    ("bas", Row("account", "A", "name", "charge the job to this account")),
    ("bas", Row("partition", "p", "partition", "partition, or a list of alternatives")),
    ("bas", Row("qos", "q", "qos", "quality of service")),
    ("bas", Row("wckey", "", "wckey", "workload characterization key")),
    ("bas", Row("reservation", "", "name", "run in this reservation, or one of a list")),
    ("bas", Row("comment", "", "text", "arbitrary comment")),
    ("bas", Row("extra", "", "text", "arbitrary text; with extra_constraints: conditions on nodes' Extra")),
    ("bas", Row("clusters", "M", "names", "submit to the cluster among these that starts the job first")),
    # -- size
    ("bas", Row("nodes", "N", "min[-max]", "number of nodes, or a list: 1,2,4 or 2-16:2")),
    ("bas", Row("ntasks", "n", "count", "number of tasks")),
    ("bas", Row("cpus-per-task", "c", "count", "CPUs for each task")),
    ("bas", Row("ntasks-per-node", "", "count", "tasks on each node")),
    ("bas", Row("tasks-per-node", "", "count", alias="ntasks-per-node")),
    ("bas", Row("ntasks-per-socket", "", "count", "tasks on each socket")),
    ("bas", Row("ntasks-per-core", "", "count", "tasks on each core")),
    ("bas", Row("ntasks-per-gpu", "", "count", "tasks for each GPU")),
    ("bas", Row("mincpus", "", "count", "minimum number of CPUs on each node")),
    ("bas", Row("nodelist", "w", "hosts", "nodes required in the allocation")),
    ("bas", Row("exclude", "x", "hosts", "nodes to exclude")),
    ("bas", Row("nodefile", "F", "file", "like --nodelist, from a file")),
    ("bas", Row("use-min-nodes", "", "", "use as few nodes of the range as possible")),
    ("bas", Row("spread-job", "", "", "spread the job over as many nodes as possible")),
    ("bas", Row("contiguous", "", "", "require contiguous nodes")),
    ("bas", Row("extra-node-info", "B", "S[:C[:T]]", "minimum sockets, cores, threads of each node")),
    ("bas", Row("sockets-per-node", "", "count", "minimum sockets on each node")),
    ("bas", Row("cores-per-socket", "", "count", "minimum cores on each socket")),
    ("bas", Row("threads-per-core", "", "count", "threads of each core to use")),
    ("bas", Row("hint", "", "type", "compute_bound, memory_bound, [no]multithread")),
    # -- memory
    ("bas", Row("mem", "", "size", "memory on each node (0: all of it)")),
    ("bas", Row("mem-per-cpu", "", "size", "memory for each CPU")),
    ("bas", Row("mem-per-gpu", "", "size", "memory for each GPU")),
    ("bas", Row("mem-bind", "", "type", "none, quiet or verbose")),
    ("bas", Row("mem-update", "", "spec", refused="memory of running jobs is not changed")),
    ("bas", Row("oom-kill-step", "", "[={0|1}]", refused="a step is always ended as a whole when memory runs out")),
    ("bas", Row("tmp", "", "size", "temporary disk space on each node")),
    # -- generic resources
    ("bas", Row("gres", "", "list", "generic resources of each node: name[:type]:count")),
    ("bas", Row("gpus", "G", "[type:]count", "GPUs of the whole job")),
    ("bas", Row("gpus-per-node", "", "[type:]count", "GPUs of each node")),
    ("bas", Row("gpus-per-task", "", "[type:]count", "GPUs of each task")),
    ("bas", Row("gpus-per-socket", "", "[type:]count", "GPUs of each socket")),
    ("bas", Row("cpus-per-gpu", "", "count", "CPUs for each GPU")),
    ("bas", Row("gpu-bind", "", "type", "which GPUs each task may use")),
    ("bas", Row("gpu-freq", "", "spec", refused=_FREQUENCY)),
    ("bas", Row("gres-flags", "", "type", "disable-binding, enforce-binding, allow-task-sharing")),
    ("bas", Row("tres-bind", "", "spec", "gres/gpu:type, as --gpu-bind")),
    ("bas", Row("tres-per-task", "", "list", "cpu=count and gres/gpu[:type]=count of each task")),
    ("bas", Row("licenses", "L", "list", "licenses: name[:count]")),
    ("bas", Row("resources", "", "list", refused="hierarchical resources are not built yet")),
    # -- time
    ("bas", Row("time", "t", "minutes", "time limit")),
    ("bas", Row("time-min", "", "minutes", "minimum time limit")),
    ("bas", Row("deadline", "", "time", "remove the job if it cannot end by then")),
    ("bas", Row("begin", "b", "time", "do not start before this time")),
    ("bas", Row("delay-boot", "", "minutes", "minutes to wait for nodes that need no reboot for the job's features")),
    # -- order
    ("bas", Row("dependency", "d", "type:id[:id…]", "start after other jobs")),
    ("bas", Row("hold", "H", "", "submit in held state")),
    ("bas", Row("nice", "", "[=value]", "lower the priority by this much (100)")),
    ("bas", Row("priority", "", "value", "set the priority (administrators)")),
    ("bs", Row("kill-on-invalid-dep", "", "yes|no", "end the job if its dependency can never be satisfied")),
    ("b", Row("array", "a", "indexes", "submit an array: 0-9, 1,3,5, 0-20:4%2")),
    ("b", Row("batch", "", "features", refused="the script always runs on the first node of the allocation")),
    ("b", Row("requeue", "", "[=mode]", "requeue the job after a node failure")),
    ("b", Row("no-requeue", "", "", "never requeue the job")),
    ("b", Row("wait", "W", "", "wait until the job ends; exit with its exit code")),
    ("b", Row("wait-all-nodes", "", "value", "1: start the script once all nodes are ready")),
    ("a", Row("wait-all-nodes", "", "value", "1: return once all nodes are ready")),
    ("b", Row("parsable", "", "", "print only the job id")),
    ("bs", Row("test-only", "", "", "print when the job would start, without submitting it")),
    ("b", Row("wrap", "", "command", "run this shell command as the script")),
    ("bas", Row("quiet", "Q", "", "print less")),
    ("bas", Row("verbose", "v", "", "print more")),
    # -- sharing
    ("bas", Row("exclusive", "", "[=user]", "do not share nodes with other jobs")),
    ("bas", Row("oversubscribe", "s", "", "share resources with other jobs")),
    ("bas", Row("share", "", "", alias="oversubscribe")),
    ("bas", Row("overcommit", "O", "", "more than one task on a CPU")),
    ("bas", Row("core-spec", "S", "count", refused=_SPECIAL)),
    ("bas", Row("thread-spec", "", "count", refused=_SPECIAL)),
    ("bas", Row("mcs-label", "", "label", "share nodes only with jobs of this label (MCSPlugin)")),
    # -- placement
    ("bas", Row("constraint", "C", "features", "required node features")),
    ("bas", Row("prefer", "", "features", "preferred node features")),
    (
        "bas",
        Row(
            "cluster-constraint", "", "features", "clusters of the federation with one of these features (!: with none)"
        ),
    ),
    ("bas", Row("switches", "", "count[@time]", "maximum number of leaf switches, and how long to wait for them")),
    ("bas", Row("segment", "", "nodes", "number of nodes to place together in one block")),
    ("bas", Row("consolidate-segments", "", "", "place segments on as few blocks as possible (always done)")),
    ("bas", Row("spread-segments", "", "", "place each segment in a block of its own")),
    ("bas", Row("distribution", "m", "type", "order of tasks on nodes: block, cyclic, plane=size, arbitrary")),
    ("bas", Row("network", "", "type", refused=_SWITCH)),
    ("s", Row("cpu-bind", "", "type", "bind tasks to CPUs")),
    ("bas", Row("cpu-freq", "", "spec", refused=_FREQUENCY)),
    # -- input, output, environment
    ("bs", Row("output", "o", "pattern", "file for standard output")),
    ("bs", Row("error", "e", "pattern", "file for standard error")),
    ("bs", Row("input", "i", "pattern", "file for standard input")),
    ("bs", Row("open-mode", "", "append|truncate", "append to or truncate output files")),
    ("bas", Row("chdir", "D", "directory", "working directory")),
    ("bs", Row("export", "", "ALL|NONE|NIL|names", "environment variables for the job")),
    ("b", Row("export-file", "", "file|fd", "variables from a file, NUL separated")),
    ("ba", Row("get-user-env", "", "[=timeout][mode]", "add what the user's login shell sets")),
    ("bs", Row("propagate", "", "[=limits]", "resource limits to pass on to tasks")),
    ("bas", Row("mail-type", "", "events", "mail on BEGIN, END, FAIL, REQUEUE, ALL …")),
    ("bas", Row("mail-user", "", "user", "recipient of the mail")),
    ("bas", Row("signal", "", "[B:]sig[@secs]", "send a signal before the time limit")),
    ("bas", Row("no-kill", "k", "[=off]", "do not end the job when a node fails")),
    ("bas", Row("profile", "", "types", refused="profiles are not collected")),
    ("bas", Row("acctg-freq", "", "[task=]seconds", "seconds between two samples of tasks' usage")),
    ("bas", Row("bb", "", "spec", refused=_BURST)),
    ("bas", Row("bbf", "", "file", refused=_BURST)),
    ("bas", Row("container", "", "bundle", "run in a container of this OCI bundle, by the runtime of oci.conf")),
    ("bas", Row("container-id", "", "id", refused="only scrun sets container ids, and Spritz has no scrun")),
    ("bas", Row("container-image", "", "image", "run in this image: a directory, an archive, or a name")),
    ("bas", Row("container-mounts", "", "SRC:DST[:FLAGS],…", "additional mounts; flags: ro, rw")),
    ("bas", Row("container-workdir", "", "path", "working directory inside")),
    ("bas", Row("container-writable", "", "", "make the image writable")),
    ("bas", Row("container-readonly", "", "", "make the image read-only (default)")),
    ("bas", Row("container-mount-home", "", "", "mount the home directory")),
    ("bas", Row("no-container-mount-home", "", "", "do not mount the home directory (default)")),
    ("bas", Row("container-remap-root", "", "", "appear as root in the container")),
    ("bas", Row("no-container-remap-root", "", "", "keep the user in the container (default)")),
    (
        "bas",
        Row("container-name", "", "name[:flag]", "keep the container under this name; flags: auto, create, no_exec"),
    ),
    ("bas", Row("container-save", "", "path", "save the container to this file after the step")),
    ("bas", Row("container-env", "", "names", "variables that override the image's")),
    ("bas", Row("container-entrypoint", "", "", "run the command through the image's entry point")),
    ("bas", Row("container-entrypoint-log", "", "", "show the output of the entry point (always done)")),
    ("bas", Row("no-container-entrypoint", "", "", "do not run the image's entry point (default)")),
    ("as", Row("x11", "", "[=nodes]", refused="X11 is not forwarded")),
    ("bas", Row("uid", "", "user", "submit as this user (root)")),
    ("bas", Row("gid", "", "group", "submit with this group (root)")),
    ("b", Row("ignore-pbs", "", "", "ignore #PBS and #BSUB lines")),
    ("bas", Row("power", "", "flags", refused="power management is not built")),
    ("bas", Row("reboot", "", "", "reboot the nodes before the job (administrators)")),
    ("as", Row("immediate", "I", "[=seconds]", "fail unless the job starts at once, or within this time")),
    # -- srun: the step
    ("s", Row("jobid", "", "id", "run the step inside this job")),
    ("s", Row("overlap", "", "", "share CPUs, memory and GPUs with other steps")),
    ("s", Row("exact", "", "", "use only the requested CPUs, so that steps can run in parallel")),
    ("s", Row("relative", "r", "n", "start at this node of the allocation")),
    ("s", Row("multi-prog", "", "", "the argument is a file that assigns programs to tasks")),
    ("s", Row("label", "l", "", "prefix each line of output with the task's number")),
    ("s", Row("unbuffered", "u", "", "do not buffer output by lines")),
    ("s", Row("kill-on-bad-exit", "K", "[=0|1]", "end the step when a task fails")),
    ("s", Row("wait", "W", "seconds", "end the step this long after its first task has ended")),
    ("s", Row("pty", "", "", "run task 0 in a terminal")),
    ("s", Row("mpi", "", "type", "none, pmi2, pmix; list prints the supported types")),
    ("s", Row("disable-status", "X", "", "send the first Ctrl-C to the tasks")),
    ("s", Row("debugger-test", "", "", "print node, process and program of each task")),
    ("s", Row("quit-on-interrupt", "", "", "a single Ctrl-C ends the step")),
    ("s", Row("preserve-env", "E", "", "pass the job's SLURM_NTASKS and SLURM_NNODES to tasks, not the step's")),
    ("s", Row("task-prolog", "", "program", "run before each task")),
    ("s", Row("task-epilog", "", "program", "run after each task")),
    ("s", Row("prolog", "", "program", "program to run here before the step (none: overrides the cluster's)")),
    ("s", Row("epilog", "", "program", "program to run here after the step (none: overrides the cluster's)")),
    ("s", Row("bcast", "", "[=path]", "first copy the program to the nodes, to this path")),
    ("s", Row("interactive", "", "", "run as the job's interactive step (used by salloc)")),
    ("s", Row("bcast-exclude", "", "paths", refused="shared libraries are not copied")),
    ("s", Row("send-libs", "", "[=yes|no]", refused="shared libraries are not copied")),
    ("s", Row("compress", "", "[=type]", "with --bcast: compress the transfer (zlib, none)")),
    ("s", Row("no-allocate", "Z", "", refused="every step belongs to a job")),
    ("s", Row("het-group", "", "expr", "components that the step runs in: 0,2 or 0-2")),
    ("s", Row("accel-bind", "", "options", refused="use --gpu-bind")),
    ("s", Row("external-launcher", "", "", refused="other launchers start their tasks through srun")),
    ("s", Row("async", "", "", refused="put srun into the background instead")),
    ("s", Row("wait-for-children", "", "", refused="a step ends with its tasks")),
    ("s", Row("resv-ports", "", "[=count]", "reserve ports on the nodes of the step (MpiParams=ports)")),
    ("s", Row("msg-timeout", "", "seconds", refused="MessageTimeout of slurm.conf applies")),
    ("s", Row("threads", "T", "count", "ignored: the controller launches the step")),
    ("s", Row("treewidth", "", "width", "nodes connected to srun directly; others go through them")),
    ("s", Row("slurmd-debug", "", "level", refused="use scontrol setdebug")),
    # -- salloc
    ("a", Row("no-shell", "", "", "only create the allocation, run no command")),
    ("a", Row("kill-command", "K", "[=signal]", "end the command when the allocation ends")),
    ("a", Row("bell", "", "", "ring the terminal's bell when the allocation is granted")),
    ("a", Row("no-bell", "", "", "do not ring the bell")),
)

_ABOUT = (
    Row("help", "h", "", "print this help"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)


def rows_of(letter: str) -> tuple[Row, ...]:
    """The rows of a command, by its letter: `b`, `a` or `s`."""
    rows = [row for letters, row in _TABLE if letter in letters]
    # The order of Slurm's table, in which the message about an ambiguous abbreviation lists its meanings.
    return (*sorted(rows, key=lambda row: row.name), *_ABOUT)
