"""Fills the volumes of a pod, by the rules of the kubelet.

Files of ConfigMaps, Secrets and projected volumes are links into a directory that is replaced at once when they change
(`..data`), so that all files of a volume change together; `rights` says whose they are.

Source: Kubernetes, pkg/volume/util/atomic_writer.go, pkg/volume/projected.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.rights import own_directory, own_files

#: Finds an object of the pod's namespace: (`secrets` or `configmaps` or `persistentvolumeclaims`, name).
Find = Callable[[str, str], Awaitable[Object | None]]

#: Makes a token: (audience, seconds).
Token = Callable[[str, int], Awaitable[str]]

#: Contents and mode by path.
Files = dict[str, tuple[bytes, int]]

_FILES: Final = ("configMap", "secret", "downwardAPI", "projected")


class NotYet(Exception):
    """A volume cannot be mounted as long as something is missing."""


class Volumes:
    """The volumes of a pod, each a directory of its name below `directory`. `claims`: where those of claims are."""

    def __init__(self, directory: Path, claims: Path, find: Find, token: Token) -> None:
        self._directory = directory
        self._claims = claims
        self._find = find
        self._token = token
        self._tokens: dict[str, str] = {}
        self.places: dict[str, Path] = {}

    async def lay_out(self, pod: Object) -> None:
        """Raises NotYet."""
        for volume in pod["spec"].get("volumes") or ():
            name = volume["name"]
            place = self._directory / name
            if any(kind in volume for kind in _FILES):
                place.mkdir(parents=True, exist_ok=True)
                await self._write(pod, volume, place)
            elif "emptyDir" in volume:
                place.mkdir(parents=True, exist_ok=True)
                own_directory(pod["spec"], volume, place)
            elif "persistentVolumeClaim" in volume:
                place = await self._claimed(volume["persistentVolumeClaim"]["claimName"])
                own_directory(pod["spec"], volume, place)
            else:
                raise NotYet(f'volume "{name}" is of a kind that the kubelet for tests does not know')
            self.places[name] = place

    async def refresh(self, pod: Object) -> None:
        """Write the files again whose objects have changed."""
        for volume in pod["spec"].get("volumes") or ():
            if any(kind in volume for kind in _FILES) and volume["name"] in self.places:
                await self._write(pod, volume, self.places[volume["name"]])

    async def _claimed(self, name: str) -> Path:
        claim = await self._find("persistentvolumeclaims", name)
        volume = (claim or {}).get("spec", {}).get("volumeName")
        if claim is None or claim.get("status", {}).get("phase") != "Bound" or not volume:
            raise NotYet(f'persistentvolumeclaim "{name}" is not bound')
        place = self._claims / str(volume)
        if not place.is_dir():
            raise NotYet(f'volume "{volume}" has no directory')
        return place

    async def _write(self, pod: Object, volume: Object, place: Path) -> None:
        kind = next(kind for kind in _FILES if kind in volume)
        mode = volume[kind].get("defaultMode", 0o644)
        sources: list[Object] = [{kind: volume[kind]}]
        if kind == "projected":
            sources = volume[kind].get("sources") or []
        files: Files = {}
        for source in sources:
            files |= await self._files(pod, source, mode)
        _replace(place, files, pod, volume)

    async def _files(self, pod: Object, source: Object, mode: int) -> Files:
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            key = f"{wanted.get('audience', '')}/{wanted['path']}"
            if key not in self._tokens:
                seconds = wanted.get("expirationSeconds", 3600)
                self._tokens[key] = await self._token(wanted.get("audience", ""), seconds)
            return {wanted["path"]: (self._tokens[key].encode(), mode)}
        if "downwardAPI" in source:
            items = source["downwardAPI"].get("items") or ()
            return {
                item["path"]: (field_of(pod, item["fieldRef"]["fieldPath"]).encode(), item.get("mode", mode))
                for item in items
            }
        kind = "configMap" if "configMap" in source else "secret"
        wanted = source[kind]
        name = wanted.get("secretName") or wanted["name"]
        found = await self._find(f"{kind.lower()}s", name)
        if found is None:
            if wanted.get("optional"):
                return {}
            raise NotYet(f'{kind.lower()} "{name}" not found')
        data = {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}
        for key, text in (found.get("data") or {}).items():
            data[key] = base64.b64decode(text) if kind == "secret" else text.encode()
        if not wanted.get("items"):
            return {key: (content, mode) for key, content in data.items()}
        files: Files = {}
        for item in wanted["items"]:
            if item["key"] in data:
                files[item["path"]] = (data[item["key"]], item.get("mode", mode))
            elif not wanted.get("optional"):
                raise NotYet(f"references non-existent {kind.lower()} key: {item['key']}")
        return files


def field_of(pod: Object, path: str) -> str:
    """What `fieldPath` names, as text."""
    found: object = pod
    stem, _bracket, key = path.partition("['")
    for word in stem.split("."):
        found = found.get(word, {}) if isinstance(found, dict) else {}
    if key:
        found = found.get(key.removesuffix("']"), "") if isinstance(found, dict) else ""
    elif isinstance(found, dict):
        return "".join(f'{name}="{value}"\n' for name, value in sorted(found.items()))
    return str(found)


def _replace(place: Path, files: Files, pod: Object, volume: Object) -> None:
    """Make the volume have these files and no others, all at once; as it was if nothing has changed."""
    data = place / "..data"
    before = data.resolve() if data.is_symlink() else None
    if (
        before is not None
        and before.is_dir()
        and _contents(before) == {name: text for name, (text, _) in files.items()}
    ):
        return
    made = Path(tempfile.mkdtemp(prefix="..", dir=place))
    made.chmod(0o755)
    modes: dict[str, int] = {}
    for name, (text, mode) in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        path.chmod(mode)
        modes[name] = mode
    own_files(pod["spec"], volume, made, modes)
    link = place / "..data_tmp"
    link.symlink_to(made.name)
    link.rename(data)
    tops = {name.split("/")[0] for name in files}
    for name in tops:
        if not (place / name).is_symlink():
            (place / name).symlink_to(f"..data/{name}")
    for path in place.iterdir():
        if not path.name.startswith("..") and path.name not in tops:
            path.unlink()
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    os.chown(place, 0, 0 if group is None else group)
    place.chmod(0o755 if group is None else 0o2775)


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
