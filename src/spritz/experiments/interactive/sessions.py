"""Dev sessions: a run that holds a job for a user, and connections to it from the login host.

VS Code connects through an sshd that each connection starts as a step of the session's job, with the session's own host
key and configuration. No process listens on a port, and no route to the node is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.interactive import attach, channel
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry

_INCLUDE = "Include ~/.ssh/config.d/spritz.conf"
_MARK = "# spritz dev: hosts of dev sessions; `spritz dev` adds and removes this line"

#: Standard input and output are the connection. sshd is not replaced by exec: its place is known while it lives.
_SERVE = r"""#!/bin/bash
directory=@DIRECTORY@
PATH=$PATH:/usr/sbin:/sbin
command -v sshd > /dev/null || { echo "spritz: there is no sshd on $SLURMD_NODENAME (openssh-server)" >&2; exit 127; }
for place in /usr/lib/openssh /usr/libexec/openssh /usr/libexec /usr/lib/ssh; do
    [ -x "$place/sftp-server" ] && files=$place/sftp-server
done
[ "$(id -u)" = 0 ] && mkdir -p /run/sshd
touch "$directory/ssh/open/$$"
trap 'rm -f "$directory/ssh/open/$$"' EXIT
"$(command -v sshd)" -i -f "$directory/ssh/sshd_config" -E "$directory/log/sshd.log" \
    ${files:+-o "Subsystem sftp $files"}
status=$?
# With this status sshd ends when its client disconnects; srun would report an error after each connection.
[ "$status" = 255 ] || exit "$status"
"""

_ENTER = r"""#!/bin/bash
shell=${SHELL:-/bin/bash}
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then set -- "$shell" -c "$SSH_ORIGINAL_COMMAND"; else set -- "$shell" -l; fi
export @JOB@
set -- @WORDS@ "$@"
"""


def options(kind: str, idle_seconds: float, environment: dict[str, str]) -> str:
    """The text of session.json. Raises ExperimentError if a program that the session needs is missing here."""
    program = ""
    if kind == "jupyter":
        beside = str(Path(sys.executable).with_name("jupyter-lab"))
        program = shutil.which("jupyter-lab", path=environment.get("PATH")) or shutil.which(beside) or ""
        if not program:
            raise ExperimentError(
                "jupyter-lab: command not found", hint="pip install jupyterlab in your environment, or spritz[jupyter]"
            )
    values = {
        "kind": kind,
        "idle_seconds": idle_seconds,
        "warn_seconds": min(300.0, idle_seconds / 3),
        "jupyter": program,
    }
    return json.dumps(values, indent=1) + "\n"


def files(kind: str, idle_seconds: float) -> dict[str, str]:
    """Files for a session's job, by name."""
    here = Path(__file__)
    return {
        "session.json": options(kind, idle_seconds, dict(os.environ)),
        "watch.py": (here.parents[1] / "watch.py").read_text(encoding="utf-8"),
        "channel.py": here.with_name("channel.py").read_text(encoding="utf-8"),
    }


COMMAND = ("bash", "-c", 'exec python3 "$SPRITZ_RUN_DIR/watch.py" session')


def is_session(entry: Entry) -> bool:
    """Whether the run is a dev session."""
    return (Path(entry.directory) / "session.json").exists()


def kind_of(directory: Path) -> str:
    """The session's kind: shell, jupyter or vscode."""
    return str(json.loads((directory / "session.json").read_text(encoding="utf-8"))["kind"])


def wait_ready(entry: Entry, tell: Callable[[str], None]) -> None:
    """Wait until the session is ready. Raises ExperimentError if it ends before."""
    directory, reported_reason, asked_at = Path(entry.directory), "", 0.0
    while not any(event["event"] == "ready" for event in record.events(directory)):
        if time.monotonic() - asked_at > 1.0:
            asked_at = time.monotonic()
            job = slurm.queued([entry.job_id]).get(entry.job_id)
            if job is None or job.state in slurm.FINAL:
                raise ExperimentError(f"{entry.name} has ended", hint=f"`spritz logs {entry.name}` says why")
            if job.state == "PENDING" and job.reason not in ("None", reported_reason):
                reported_reason = job.reason
                tell(f"spritz: job {entry.job_id} waits: {reported_reason}\n")
        time.sleep(0.1)


def stop(entry: Entry) -> bool:
    """End the session: it ends itself if it runs, else its job is cancelled. False if it has ended already."""
    job = slurm.queued([entry.job_id]).get(entry.job_id)
    if job is None or job.state in slurm.FINAL:
        return False
    if job.state == "RUNNING":
        (Path(entry.directory) / "stop").touch()
    else:
        slurm.cancel(entry.job_id)
    return True


def jupyter_url(directory: Path) -> tuple[int, str, str]:
    """Port on the node, path with its slashes, token. Raises ExperimentError if there is no server."""
    for path in sorted((directory / "jupyter").glob("jpserver-*.json")):
        known = json.loads(path.read_text(encoding="utf-8"))
        return int(known["port"]), str(known.get("base_url", "/")), str(known["token"])
    raise ExperimentError(f"{directory.name}: no JupyterLab server", hint=f"`spritz logs {directory.name}` says why")


# --- ports ------------------------------------------------------------------------------------------------------------


async def forward(entry: Entry, port: int, local: int, ready: Callable[[int], None]) -> None:
    """Forward a local port to a port of the session's node, until the step ends."""
    directory = Path(entry.directory)
    node = attach.nodes_of(entry.job_id)[0]
    words = [*attach.step(entry.job_id, node, directory, "--unbuffered"), "python3", str(directory / "channel.py")]
    process = await asyncio.create_subprocess_exec(
        *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=attach.environment(), start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    far = channel.Channel(process.stdout, process.stdin)
    try:
        server = await asyncio.start_server(lambda reader, writer: far.carry(reader, writer, port), "127.0.0.1", local)
    except OSError as error:
        process.terminate()
        await process.wait()
        raise ExperimentError(f"port {local}: {error.strerror}", hint="--port chooses another") from error
    try:
        ready(server.sockets[0].getsockname()[1])
        await far.run()
    finally:
        server.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


# --- ssh --------------------------------------------------------------------------------------------------------------


def host(name: str) -> str:
    """The session's Host in the user's ssh configuration."""
    return f"spritz-{name}"


def write_ssh(entry: Entry, directory: Path, job_id: str) -> None:
    """Keys, sshd's configuration and scripts of a session. Raises ExperimentError without ssh-keygen."""
    folder = directory / "ssh"
    (folder / "open").mkdir(parents=True, mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for key in ("host_key", "key"):
        if (folder / key).exists():
            continue
        try:
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host(entry.name), "-f", str(folder / key)],
                check=True, stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise ExperimentError("ssh-keygen: not found", hint="VS Code needs openssh-client here") from error
    public = (folder / "host_key.pub").read_text(encoding="utf-8").split()
    (folder / "known_hosts").write_text(f"{host(entry.name)} {public[0]} {public[1]}\n", encoding="utf-8")
    shutil.copyfile(folder / "key.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(
        "\n".join(
            (
                f'HostKey "{folder}/host_key"',
                f'AuthorizedKeysFile "{folder}/authorized_keys" .ssh/authorized_keys',
                "PasswordAuthentication no", "KbdInteractiveAuthentication no", "UsePAM no", "StrictModes no",
                "PidFile none", "PermitRootLogin prohibit-password", f"AllowUsers {entry.owner}",
                f'ForceCommand bash "{folder}/enter.sh"', "",
            )
        ),
        encoding="utf-8",
    )  # fmt: skip
    (folder / "serve.sh").write_text(_SERVE.replace("@DIRECTORY@", shlex.quote(str(directory))), encoding="utf-8")
    words = shlex.join(["spritz", entry.name, "", str(directory)])
    text = _ENTER.replace("@WORDS@", words.removeprefix("spritz ")).replace(
        "@JOB@", f"SLURM_JOB_ID={shlex.quote(job_id)} SLURMD_NODENAME=$(cat {shlex.quote(str(folder / 'node'))})"
    )
    (folder / "enter.sh").write_text(text + attach.ENTER, encoding="utf-8")


def serving(entry: Entry) -> list[str]:
    """The words that carry one ssh connection on standard input and output."""
    directory = Path(entry.directory)
    node = attach.nodes_of(entry.job_id)[0]
    (directory / "ssh" / "node").write_text(f"{node}\n", encoding="utf-8")
    words = attach.step(entry.job_id, node, directory, "--unbuffered", "--quiet")
    return [*words, "bash", str(directory / "ssh" / "serve.sh")]


def host_entry(entry: Entry, *, proxy: str) -> str:
    """The lines of ~/.ssh/config for a session."""
    folder = Path(entry.directory) / "ssh"
    return (
        f"Host {host(entry.name)}\n    User {entry.owner}\n    ProxyCommand {proxy}\n"
        f'    HostKeyAlias {host(entry.name)}\n    IdentityFile "{folder}/key"\n    IdentitiesOnly yes\n'
        f'    UserKnownHostsFile "{folder}/known_hosts"\n    StrictHostKeyChecking yes\n'
    )


def proxy_command(name: str) -> str:
    """How ssh reaches the session from here, with no more than a bare login's environment."""
    kept = {key: os.environ[key] for key in ("SLURM_CONF", "SPRITZ_HOME", "SPRITZ_RUN_STORE") if key in os.environ}
    srun = shutil.which("srun")
    if srun is not None:
        kept["PATH"] = f"{Path(srun).parent}:/usr/bin:/bin"
    words = ["env", *(f"{key}={value}" for key, value in kept.items())]
    # ssh reads % itself.
    program = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()"]
    return shlex.join([*words, *program, "dev", "--proxy", name]).replace("%", "%%")


def add_host(name: str, lines: str, home: Path | None = None) -> list[str]:
    """Write the session's entry, and the line that includes it. Returns the changes as text."""
    folder = (home or Path.home()) / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "config.d").mkdir(mode=0o700, exist_ok=True)
    done = []
    ours = folder / "config.d" / "spritz.conf"
    others = [block for block in _blocks(ours) if not block.startswith(f"Host {host(name)}\n")]
    _replace(ours, "\n".join([*others, lines]))
    done.append(f"wrote {host(name)} to {ours}")
    config = folder / "config"
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    if _INCLUDE not in text.splitlines():
        # At the top: below a Host line it would apply only to that host.
        _replace(config, f"{_MARK}\n{_INCLUDE}\n\n{text}")
        done.append(f"added `{_INCLUDE}` to {config} (`spritz dev stop` of the last session removes it)")
    return done


def remove_host(name: str, home: Path | None = None) -> list[str]:
    """Remove the entry, and with the last one the line that includes it. Returns the changes as text."""
    folder = (home or Path.home()) / ".ssh"
    ours = folder / "config.d" / "spritz.conf"
    blocks = _blocks(ours)
    kept_blocks = [block for block in blocks if not block.startswith(f"Host {host(name)}\n")]
    if len(kept_blocks) == len(blocks):
        return []
    done = [f"removed {host(name)} from {ours}"]
    if kept_blocks:
        _replace(ours, "\n".join(kept_blocks))
        return done
    ours.unlink()
    config = folder / "config"
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    without = text.replace(f"{_MARK}\n{_INCLUDE}\n\n", "", 1)
    if without != text:
        if without:
            _replace(config, without)
        else:
            config.resolve().unlink()
        done.append(f"removed the Include line from {config}")
    return done


def _blocks(path: Path) -> list[str]:
    """The file's Host entries."""
    if not path.exists():
        return []
    blocks: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("Host "):
            blocks.append("")
        if blocks and line.strip():
            blocks[-1] += line
    return blocks


def _replace(path: Path, text: str) -> None:
    """Replace the file (the target of a link) atomically, with mode 600."""
    path = path.resolve()
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(scratch, path)


def extend(entry: Entry, minutes: int) -> str:
    """Record activity, and request more time. Returns the result as text. Raises ExperimentError."""
    (Path(entry.directory) / "extended").touch()
    if not minutes:
        return f"{entry.name}: the idle time starts again"
    known = slurm.shown(entry.job_id)
    if known.get("TimeLimit") == "UNLIMITED":
        return f"{entry.name} has no time limit; the idle time starts again"
    job = known.get("JobId", entry.job_id)
    done = slurm.call(["scontrol", "update", f"JobId={job}", f"TimeLimit=+{minutes}"])
    if done.returncode:
        end = slurm.shown(entry.job_id).get("EndTime", "its time limit")
        raise ExperimentError(
            f"{entry.name} was not given more time: {slurm.said(done)}",
            hint=f"On most clusters only administrators may raise a time limit. The session ends at {end}; "
            "its idle time starts again.",
        )
    return f"{entry.name} ends at {slurm.shown(entry.job_id).get('EndTime', '?')}"


def owner() -> str:
    return submission.user()
