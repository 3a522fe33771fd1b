"""Containers of written pods, started as the kubelet would: as their user, with their capabilities and volumes.

Each has a mount namespace, with /etc and /var/lib in place of this machine's; all share a network. Needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from spritz_testing.kubernetes.rights import capabilities, identity, own_directory, own_files

Json = dict[str, Any]

#: The image's user, as the Containerfile has it.
IMAGE_USER = 65532

BIN = Path(sys.executable).parent

#: Of this machine's /etc, which the image would have too.
_ETC = ("group", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")


class Machine:
    """Where containers run. `names`: host names, all of this machine. `files`: volumes by ConfigMap or Secret."""

    def __init__(self, root: Path, files: dict[str, dict[str, bytes]], names: list[str]) -> None:
        self.root = root
        self.root.chmod(0o755)
        self._files = files
        self._names = names
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Machine:
        self._network = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
            stdout=subprocess.PIPE,
        )
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == b"up\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._network.kill()
        self._network.communicate()

    def volumes(self, name: str, template: Json) -> dict[str, Path]:
        """The directories of a pod's volumes, filled and with the owners that the kubelet gives them."""
        pod, places = template["spec"], {}
        for volume in [*pod["volumes"], *({"name": each} for each in ("state",))]:
            place = places[volume["name"]] = self.root / name / volume["name"]
            is_new = not place.exists()
            place.mkdir(parents=True, exist_ok=True)
            if {"projected", "secret", "configMap"} & set(volume):
                for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
                    given = source.get("configMap") or source["secret"]
                    for key, data in self._files[given.get("name") or given["secretName"]].items():
                        (place / key).write_bytes(data)
                own_files(pod, volume, place)
            elif "emptyDir" in volume or is_new or volume["name"] not in [each["name"] for each in pod["volumes"]]:
                own_directory(pod, volume, place)
        return places

    def words(self, name: str, template: Json, number: int = 0) -> list[str]:
        """A command line that enters a container, to which a command is appended."""
        pod = template["spec"]
        container = pod["containers"][number]
        places = self.volumes(name, template)
        etc, lib = self.root / name / "root-etc", self.root / name / "root-lib"
        mounts = [f"{etc} /etc", f"{lib} /var/lib"]
        for directory in (etc, lib):
            directory.mkdir(exist_ok=True)
        for file in _ETC:
            if os.path.exists(f"/etc/{file}"):
                shutil.copy(f"/etc/{file}", etc)
        (etc / "hosts").write_text("".join(f"127.0.0.1 {each}\n" for each in ("localhost", *self._names)))
        for mount in container["volumeMounts"]:
            path = mount["mountPath"]
            inside = {"etc": etc, "var": lib}.get(path.split("/")[1])
            if inside is None:
                continue  # a path that the daemons of these tests do not use
            target = inside / path.removeprefix("/etc/").removeprefix("/var/lib/")
            target.mkdir(parents=True, exist_ok=True)
            mounts.append(f"{places[mount['name']]} {path}")
        uid, gid, groups = identity(pod, container, IMAGE_USER)
        allowed = "".join(f",+{each.lower()}" for each in capabilities(container))
        become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--no-new-privs"]
        become += [f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
        become += ["--inh-caps=-all", f"--bounding-set=-all{allowed}"]
        lines = [*_opened(self.root / name), *(f"mount --bind {each}" for each in mounts)]
        script = "set -e\n" + "\n".join(lines) + f'\nexec {shlex.join(become)} "$@"'
        net = f"--net=/proc/{self._network.pid}/ns/net"
        return ["nsenter", net, "unshare", "--mount", "--uts", "sh", "-c", script, "container"]

    def environment(self, name: str, template: Json, number: int = 0) -> dict[str, str]:
        own = {"POD_NAME": name, "NODE_NAME": name}
        for variable in template["spec"]["containers"][number].get("env") or ():
            own[variable["name"]] = variable.get("value", name)
        path = f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"
        kept = {key: os.environ[key] for key in ("PYTHONPATH", "LANG") if key in os.environ}
        return {"PATH": path, "HOME": "/", "SPRITZ_NO_SERVER": "1", **kept, **own}

    def run(self, name: str, template: Json, *command: str, number: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a container, as `kubectl exec` and exec probes do."""
        env = self.environment(name, template, number)
        words = [*self.words(name, template, number), *command]
        return subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=60, check=False)

    def start(self, name: str, template: Json, number: int = 0) -> None:
        """Start a container; what it writes is in `log`."""
        env = self.environment(name, template, number)
        command = [
            re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], word)
            for word in template["spec"]["containers"][number]["command"]
        ]
        with open(self.log(name), "ab") as file:
            words = [*self.words(name, template, number), *command]
            process = subprocess.Popen(words, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self._processes.append(process)

    def stop(self) -> None:
        """End the container that was started last."""
        process = self._processes.pop()
        process.terminate()
        assert process.wait(60) == 0

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"


def _opened(keep: Path) -> list[str]:
    """Mounts by which other users reach this Python where it lies in a closed directory, as a home is."""
    lines = []
    for number, path in enumerate(dict.fromkeys((os.path.realpath(sys.base_prefix), os.path.realpath(sys.prefix)))):
        closed = next((each for each in [*Path(path).parents][::-1] if not each.stat().st_mode & 0o001), None)
        if closed is not None:
            kept = keep / f"python-{number}"
            kept.mkdir(exist_ok=True)
            lines += [f"mount --bind {path} {kept}", f"mount -t tmpfs -o mode=755 tmpfs {closed}"]
            lines += [f"mkdir -p {path}", f"mount --bind {kept} {path}"]
    return lines
