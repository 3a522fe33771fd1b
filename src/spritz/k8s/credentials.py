"""How the operator and an API server know each other: the certificates and the token of a kubeconfig's entry.

lightkube reads kubeconfigs; its own authentication belongs to its HTTP client, which is not ours.

Source: Kubernetes, "Authenticating" and "client-go credential plugins".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from lightkube.config.models import Cluster, User, UserExec
from lightkube.core.exceptions import ConfigError

#: Versions of the answer of a credential plugin.
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1alpha1", "client.authentication.k8s.io/v1beta1")

Place = Callable[[Any], Any]


class _Status(msgspec.Struct):
    token: str


class _Credential(msgspec.Struct):
    status: _Status


class Login:
    """The header Authorization for a user. A token of a file or of a program is read again when it was refused."""

    def __init__(self, user: User) -> None:
        """Raises ConfigError for what is not supported."""
        self._user = user
        #: None: not known yet, or refused
        self._header: str | None = None
        #: whether asking again may bring another header
        self.is_renewable = user.token_file is not None or (user.token is None and user.exec is not None)
        if user.auth_provider and not (self.is_renewable or user.token or (user.username and user.password)):
            raise ConfigError("auth-provider not supported")

    async def header(self, *, refused: bool = False) -> str:
        """Its value; "" for a user without one, as with a certificate. `refused`: the last was. Raises ConfigError."""
        if self._header is None or (refused and self.is_renewable):
            self._header = await self._made()
        return self._header

    async def _made(self) -> str:
        user = self._user
        if user.token_file is not None:
            return f"Bearer {_read(user.token_file)}"
        if user.token is not None:
            return f"Bearer {user.token}"
        if user.exec is not None:
            return f"Bearer {await _token_of(user.exec)}"
        if user.username and user.password:
            return f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
        return ""


def _read(path: str) -> str:
    """Raises ConfigError for a file that is not there."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        raise ConfigError(f"Token file {path} not found") from error


async def _token_of(plugin: UserExec) -> str:
    """The token that a credential plugin prints. Raises ConfigError."""
    if plugin.apiVersion not in _EXEC_VERSIONS:
        raise ConfigError(f"auth exec api version {plugin.apiVersion} not implemented")
    environment = os.environ | {variable.name: variable.value for variable in plugin.env or ()}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *(plugin.args or ()), env=environment, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        raise ConfigError(f"Exec {plugin.command}: {error.strerror}") from error
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise ConfigError(f"Exec {plugin.command} returned {process.returncode}: {errors.decode(errors='replace')}")
    try:
        return msgspec.json.decode(output, type=_Credential).status.token
    except msgspec.DecodeError as error:
        raise ConfigError(f"Exec {plugin.command}: its answer cannot be read: {error}") from error


def tls_of(cluster: Cluster, user: User, place: Place) -> ssl.SSLContext:
    """Whom to trust as the server, and our certificate. `place`: of a file that the kubeconfig names. Raises
    ConfigError, and OSError for a file that cannot be read or is no certificate.
    """
    with tempfile.TemporaryDirectory() as directory:  # OpenSSL reads files only

        def file(name: str | None, data: str | None) -> str | None:
            if data:
                return _written(Path(directory, str(len(os.listdir(directory)))), data)
            return str(place(name)) if name else None

        authority = file(cluster.certificate_auth, None) or file(None, cluster.certificate_auth_data)
        context = ssl.create_default_context(cafile=authority)
        if cluster.insecure and authority is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate = file(user.client_cert, user.client_cert_data)
        if certificate is not None:
            context.load_cert_chain(certificate, file(user.client_key, user.client_key_data))
    return context


def _written(path: Path, data: str) -> str:
    """Raises ConfigError."""
    try:
        path.write_bytes(base64.b64decode(data))
    except binascii.Error as error:
        raise ConfigError(f"a certificate or key of the kubeconfig is not base64: {error}") from error
    return str(path)
