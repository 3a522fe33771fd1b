"""Copy a file to all nodes of a job: a step with a task on each node, which writes its standard input to the file.

The copy appears under its name only once it is complete. Source: sbcast(1), srun(1) --bcast.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from spritz.cli.jobs.launch.controller import running_on
from spritz.cli.jobs.launch.create import create_step
from spritz.cli.jobs.launch.interrupts import StepSignals
from spritz.cli.jobs.launch.listener import Link, Listener
from spritz.cli.jobs.launch.run import StepRun
from spritz.cli.jobs.launch.settings import Settings
from spritz.cli.jobs.submit import request_context
from spritz.model.commands.job import Done
from spritz.model.commands.step import SignalStep
from spritz.model.errors import SpritzError
from spritz.model.job.step import StepSpec
from spritz.stepd import protocol

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.controller import Controller
    from spritz.cli.jobs.launch.create import Wording
    from spritz.cli.jobs.launch.interrupts import Interrupts
    from spritz.stepd.reactor import Reactor

#: Arguments: destination, name of the source, force (0, 1), mode, size, access and modification time ("": now), and
#: the program that decompresses it (`cat`: not compressed).
#: The script checks the destination and prints "ready" before it reads: virtual nodes share a disk, so the first copy
#: would make the check of the second fail.
_SCRIPT = """
dest=$1
[ -d "$dest" ] && dest=$dest/$2
if [ "$3" = 0 ] && [ -e "$dest" ]; then echo "$dest: File exists" >&2; exit 17; fi
[ -d "$(dirname "$dest")" ] || { echo "$dest: No such file or directory" >&2; exit 2; }
part=$dest.$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_PROCID
trap 'rm -f "$part"' EXIT
trap 'exit 143' HUP INT TERM
: > "$part" || exit 13
echo ready
$8 > "$part" || exit 28
[ "$(wc -c < "$part")" -eq "$5" ] || { echo "$dest: incomplete" >&2; exit 5; }
chmod "$4" "$part" || exit 1
if [ -n "$6" ]; then touch -a -d "@$6" "$part" && touch -m -d "@$7" "$part" || exit 1; fi
mv -f "$part" "$dest" || exit 1
"""
_READ_BYTES_MAX = 192 * 1024


class Copy:
    """A file to copy, and the options. Raises SpritzError if the file cannot be read."""

    def __init__(
        self, source: str, destination: str, *, force: bool, preserve: bool, block_bytes: int = 0, packed: bool = False
    ) -> None:
        self.source = source
        self.packed = packed
        self.destination = destination
        self.force = force
        try:
            self.descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(self.descriptor)
            if not os.path.isfile(source):
                raise IsADirectoryError(21, os.strerror(21))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise SpritzError(f"Can't open `{source}`: {why}", exit_code=255) from error
        self.size = status.st_size
        self.mode = status.st_mode & 0o777
        self.times = (repr(status.st_atime), repr(status.st_mtime)) if preserve else ("", "")
        if packed:
            self._packer = _packer(self.descriptor)
            assert self._packer.stdout is not None
            os.close(self.descriptor)
            self.descriptor = os.dup(self._packer.stdout.fileno())
            self._packer.stdout.close()
        self.block_bytes = min(block_bytes or 32 * 1024, _READ_BYTES_MAX)

    def argv(self) -> tuple[str, ...]:
        """The command of each task: /bin/sh with the script and its arguments."""
        name = os.path.basename(self.source)
        force = "1" if self.force else "0"
        unpack = "gzip -dc" if self.packed else "cat"
        words = (self.destination, name, force, f"{self.mode:o}", str(self.size), *self.times, unpack)
        return ("/bin/sh", "-c", _SCRIPT, "sbcast", *words)


def packs(library: str | None) -> bool:
    """Whether --compress (None: not given) asks for compression. Raises SpritzError for an unsupported library."""
    if library not in (None, "", "none", "zlib"):
        raise SpritzError(f"option --compress={library} is not supported by Spritz: zlib (the default) and none are")
    return library not in (None, "none")


def _packer(descriptor: int) -> subprocess.Popen[bytes]:
    """Start gzip on the file. Raises SpritzError if it is not installed."""
    try:
        return subprocess.Popen(["gzip", "-1", "-c"], stdin=descriptor, stdout=subprocess.PIPE)
    except OSError as error:
        raise SpritzError(f"--compress: gzip cannot be run: {error.strerror}") from error


class CopyRun(StepRun):
    """The copying step. Starts standard input once all nodes are ready; reports errors by node."""

    copy: Copy
    on_progress: Callable[[int], None]
    failed = False

    def prepare(self, copy: Copy, on_progress: Callable[[int], None]) -> None:
        """Set the file and the progress callback (bytes sent so far); call before `run`."""
        self.copy = copy
        self.on_progress = on_progress
        self._ready: set[str] = set()
        self._complaints: dict[str, str] = {}
        self.use_input(copy.descriptor, None, read_bytes=copy.block_bytes, wait=True)

    def _output(self, link: Link, kind: int, task: int, payload: bytes) -> None:
        if kind == protocol.STDERR:
            if not payload:
                return
            self._complaints[link.node] = self._complaints.get(link.node, "") + os.fsdecode(payload)
        elif payload.startswith(b"ready"):
            self._ready.add(link.node)
            if len(self._ready) == len(self.step.nodes) and self.input is not None:
                self.input.start()

    def _credited(self) -> None:
        if self.input is not None:
            self.on_progress(self.input.read_bytes)

    def report(self, status: int) -> int:
        """sbcast's exit status, after the errors of each node."""
        for node, text in sorted(self._complaints.items()):
            reason = text.strip().splitlines()[-1].rpartition(": ")[2] if text.strip() else "failed"
            self.context.error(f"REQUEST_FILE_BCAST({node}): {reason}")
        return 1 if status or self._complaints else 0


def broadcast(
    controller: Controller,
    reactor: Reactor,
    interrupts: Interrupts,
    context: Context,
    job_id: int,
    copy: Copy,
    *,
    nodes: int | None = None,
    tree_width: int = 0,
    progress: bool = False,
    wording: Wording | None = None,
) -> int:
    """Copy to all nodes of the job (or its first `nodes`); return 0 if all copies succeed. Raises SpritzError."""
    listener = Listener()
    settings = Settings({"quiet": "1"}, {}, {})
    spec = StepSpec(
        name="sbcast",
        nodes_min=nodes,
        nodes_max=nodes,
        tasks_per_node=1,
        tasks=nodes,
        overlap=True,
        gres_none=True,
        argv=copy.argv(),
        environment=(b"PATH=/usr/bin:/bin",),
        work_dir=context.cwd,
        umask=request_context.umask(),
        io_address=listener.address,
        io_key=listener.key,
        tree_width=tree_width,
        submit_host=os.uname().nodename,
        client_pid=context.pid,
    )
    step = create_step(controller, job_id, spec, settings, context, immediate=False, wording=wording)

    def end_step(number: int) -> None:
        controller.call(SignalStep(job_id=job_id, step_id=step.step_id, signal=number, terminate=True), Done)

    errors: dict[tuple[int, str], str] = {}
    run = CopyRun(
        reactor,
        listener,
        step,
        settings,
        context,
        end_step=end_step,
        alive=lambda: running_on(controller, (step,), errors),
        launch_error=lambda job_id, node: errors.get((job_id, node), ""),
    )
    run.endings.silent = True
    run.use_output(1, 2, labelled=False)
    run.prepare(copy, _progress(copy, context) if progress else lambda count: None)
    interrupts.handler = StepSignals(run)
    status = run.run()
    if progress and copy.size:
        context.stderr.write("\r\033[K")
        context.stderr.flush()
    return run.report(status)


def _progress(copy: Copy, context: Context) -> Callable[[int], None]:
    shown = [-1]

    def show(count: int) -> None:
        percent = 100 * count // copy.size if copy.size else 100
        if percent != shown[0]:
            shown[0] = percent
            context.stderr.write("\r")
            context.err(f"{os.path.basename(copy.source)}: {percent} %")

    return show
