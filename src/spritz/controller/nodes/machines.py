"""Other machines of the cluster: tokens, certificates, their configuration, and the links that they open.

Active only if a cluster key lies next to slurm.conf (`client.trust.membership`); a cluster of one machine needs none.
Tokens and the machines that joined with them are stored in StateSaveLocation/machines.json, or with the journal in
PostgreSQL, where a controller that takes over finds them.

Source: docs/decisions/0175, 0176; slurm.conf(5) SlurmctldParameters=enable_configless.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import socket
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from spritz.client.channel.aio import Secure
from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.client.joining.member import Member
from spritz.client.locate import controller_socket_name, streams_socket_name
from spritz.client.relay.hub import Hub
from spritz.client.relay.relay import listen_here
from spritz.client.trust.membership import write_private
from spritz.client.trust.munged import munged_of
from spritz.client.trust.same_machine import is_here
from spritz.controller.callers.identity import identified
from spritz.controller.journal.kept import Journaled
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.needs import Clocked, Configured, Identifying, Logged, Reading, Spawning
from spritz.model.commands.job import Done
from spritz.model.commands.step import AttachStep, CreateHetStep, CreateStep
from spritz.model.errors import SpritzError
from spritz.model.node.machines import (
    AuthorityCertificate,
    ConfigurationFiles,
    CreateToken,
    FetchAuthority,
    FetchConfiguration,
    JoinCluster,
    JoinedMachine,
    ListTokens,
    MachineJoined,
    RenewCertificate,
    RevokeToken,
    Token,
    TokenCreated,
    Tokens,
    certified,
    cut_off,
)
from spritz.model.node_daemon.launch import LaunchBatch, LaunchProlog, LaunchStep, Order, SignedLaunch, subject_of
from spritz.model.node_daemon.reports import REVOKED_REASON
from spritz.model.rejection import Rejection
from spritz.notation import hostlist
from spritz.runtime import tls
from spritz.runtime.authority import fingerprint
from spritz.runtime.randomness import SystemRandomness
from spritz.runtime.worker import Worker
from spritz.stepd.protocol import address_at
from spritz.wire.credential import LIFETIME_SECONDS, LaunchCredential, OrderCredential, digest_of, launch_content

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from spritz.client.channel.handling import Call, Handler
    from spritz.client.channel.server import Server
    from spritz.client.trust.membership import Membership
    from spritz.config.loaded import LoadedConfig
    from spritz.controller.diagnostics import Counting
    from spritz.runtime.tls import Machine

StepRequest = TypeVar("StepRequest", bound=CreateStep | CreateHetStep | AttachStep)

FILE = "machines.json"

#: Most tokens that are valid at the same time.
TOKENS_MAX = 1000

#: Largest configuration file, bytes: files are sent whole.
FILE_BYTES_MAX = 4 * 1024 * 1024

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,62})$")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}$")

#: parts of a token before base64: id, secret, the authority's fingerprint
_ID_BYTES, _SECRET_BYTES, _PRINT_BYTES = 4, 16, 16


class Expelling(Protocol):
    """Connections of node daemons (`links.NodeLinks`)."""

    def expel(self, names: Iterable[str], reason: str) -> None: ...


class Trusting(Clocked, Configured, Identifying, Journaled, Logged, Reading, Spawning, Protocol):
    """What machines that join, and the keys of those that did, need."""

    @property
    def counting(self) -> Counting: ...

    @property
    def nodes(self) -> Expelling: ...


class _Kept(Struct, frozen=True, kw_only=True):
    """A stored token; only a hash of the secret is stored."""

    token: Token
    secret_hash: bytes


class _File(Struct, frozen=True, kw_only=True):
    """The content of `machines.json`."""

    format: int = 1
    tokens: tuple[_Kept, ...] = ()
    machines: tuple[JoinedMachine, ...] = ()
    #: machines whose certificates are no longer accepted
    revoked: tuple[str, ...] = ()


class Machines:
    """The controller's side of a cluster that spans machines."""

    def __init__(self, context: Trusting, membership: Membership) -> None:
        self._context = context
        self.membership = membership
        self.cluster = context.configuration.settings.cluster_name
        self._randomness = SystemRandomness()
        self._worker = Worker("machines")
        path = os.path.join(context.configuration.state_directory, FILE)
        journal = context.journal
        self._place = _InJournal(journal, path) if isinstance(journal, PostgresJournal) else _OnDisk(path)
        self._file = self._place.read()
        #: hosts of the machines that joined
        self._joined = {machine.host for machine in self._file.machines}
        self._signer = membership.signer()
        self._streams = streams_socket_name(controller_socket_name(self.cluster, context.configuration.ports[0]))
        self._listening: asyncio.Server | None = None
        loaded = context.configuration.loaded
        #: the files at the last reading without faults
        self._served = ConfigurationFiles(digest=loaded.digest, files=_read_files(loaded.path, loaded.files_read))
        #: calls that wait for another configuration than `_served`
        self._waiting: dict[Call, None] = {}
        #: the certificate of the port that other machines connect to
        self.certificate: tls.PortCertificate
        self.hub: Hub

    def own_keys(self) -> tls.Keys:
        """The controller's own certificate and key. Raises SpritzError."""
        return self.membership.keys(self.cluster, tls.CONTROLLER, self._context.clock.now())

    def secure_database(self) -> Secure:
        """TLS for connections to a slurmdbd on another machine."""
        # slurmdbd may serve several clusters, which then share a key
        return Secure(lambda: tls.client_context(self.own_keys()), "", tls.DATABASE)

    def begin(self, server: Server) -> None:
        """Accept connections from other machines. Raises SpritzError."""
        context, membership = self._context, self.membership
        self.certificate = tls.PortCertificate(self.own_keys, context.log)
        self.hub = Hub(membership, self.cluster, context.clock, context.tasks, server.complaints, server.take)
        self.hub.is_welcome = self.is_welcome
        settings = context.configuration.loaded.settings
        munged = munged_of(settings.text("AuthType"), ",".join(settings.words("AuthInfo")), self._makers())
        if munged is not None:
            self.hub.unseal = munged.unseal
        server.secure(self.certificate.context, self.hub)
        context.tasks.keep(self.certificate.keep(context.clock), name="certificate")
        self._warn_of_keys()
        # As sackd does on login hosts, the controller relays users of this machine to a slurmdbd on another one.
        users = Member(membership, self.cluster, tls.LOGIN, (), context.configuration.ports[0], context.clock)
        self._users = users.relay_database(context.tasks, context.log, context.configuration.databases)

    def _makers(self) -> set[int]:
        """Users that daemons on other machines run as."""
        entry = self._context.configuration.slurmd_user_entry
        return {0, *((entry.uid,) if entry is not None else ())}

    def _warn_of_keys(self) -> None:
        """Log which machines are cut off because a step of replacing the cluster's key came too early for them."""
        keys, now = self.membership.fingerprints, self._context.clock.now()
        if self.membership.site is not None:
            return
        if hosts := cut_off(certified(self._file.machines, now), keys):
            self._context.log.error(
                "keys.early",
                machines=hostlist.compress(hosts),
                detail="these keys cut them off: take the last change of slurm.jwks back, or let them join again",
            )

    async def listen_streams(self) -> None:
        """Relay streams between supervisors of this machine and clients on other machines."""
        self._listening = await listen_here(self._streams, self.hub, self._context.tasks)

    def stop_listening(self) -> None:
        """Accept no further streams and users; open streams go on."""
        self._users.close()
        if self._listening is not None:
            self._listening.close()

    def table(self) -> dict[type[Struct], Handler]:
        """Handlers of requests from machines, and from administrators about machines."""
        context = self._context
        return {
            FetchAuthority: self.fetch_authority,
            JoinCluster: self.join,
            RenewCertificate: self.renew,
            FetchConfiguration: self.fetch_configuration,
            **{
                kind: identified(context.identity, context.tasks, handler)
                for kind, handler in (
                    (CreateToken, self.create_token),
                    (ListTokens, self.list_tokens),
                    (RevokeToken, self.revoke_token),
                )
            },
        }

    # Authorization

    def is_welcome(self, machine: Machine) -> bool:
        """Whether the machine's certificate is still accepted."""
        return machine.cluster == self.cluster and machine.host not in self._file.revoked

    def _need_unrevoked(self, machine: Machine | None) -> None:
        """Raises SpritzError with the way back for a machine that was revoked."""
        if machine is not None and machine.host in self._file.revoked:
            raise _denied(
                f"machine {machine.host} was revoked; to let it join again: spritz token create --host {machine.host}"
            )

    def need_node(self, call: Call, name: str = "") -> None:
        """Raises SpritzError unless the caller is a node daemon on the machine of node `name`."""
        machine = call.machine
        self._need_unrevoked(machine)
        if machine is None or machine.role != tls.NODE or not self.is_welcome(machine):
            says = (
                "no certificate" if machine is None else f"one for {machine.role} {machine.host} of {machine.cluster}"
            )
            raise _denied(f"only machines that have joined as nodes may report; this one shows {says}")
        if not name:
            return
        host = self._host_of(name)
        if machine.host not in _machine_names(name, host):
            self.hub.complain(machine.host, f"it reports for node {name}, which is another machine's")
            raise _denied(f"node {name} is not {machine.host}'s: its NodeHostname is {host}")

    def _host_of(self, name: str) -> str:
        """NodeHostname of a node."""
        node = self._context.machine.state.nodes.get(name)
        return (node.config.hostname if node is not None else "") or name

    # Tokens

    async def create_token(self, request: CreateToken, call: Call) -> TokenCreated:
        """Create a token; it is on disk before the answer leaves. Raises SpritzError."""
        self._need_admin(call)
        if self.membership.site is not None:
            raise _wrong("TLSType=tls/s2n: the site makes the machines' certificates, and the cluster none by tokens")
        if request.role not in (tls.NODE, tls.LOGIN):
            raise _wrong(f"role {request.role!r}: node or login")
        if not 0 < request.lifetime_seconds <= 10 * 365 * 86400:
            raise _wrong("its lifetime is at most ten years")
        if not 0 <= request.uses <= 1_000_000:
            raise _wrong(f"{request.uses} uses: from 1 to 1000000, or 0 for any number")
        if request.host and not _HOST.match(request.host):
            raise _wrong(f"not a host name: {request.host!r}")
        now = self._context.clock.now()
        tokens = tuple(kept for kept in self._file.tokens if _is_usable(kept.token, now))
        if len(tokens) >= TOKENS_MAX:
            raise _wrong(f"there are {len(tokens)} tokens already: revoke some")
        identity, secret = self._randomness.token(_ID_BYTES), self._randomness.token(_SECRET_BYTES)

        text = identity + secret + fingerprint(self.membership.authorities[0].certificate)[:_PRINT_BYTES]
        token = Token(
            id=identity.hex(),
            role=request.role,
            created_at=now,
            expires_at=now + request.lifetime_seconds,
            uses=request.uses,
            used=0,
            host=request.host,
        )
        kept = _Kept(token=token, secret_hash=hashlib.sha256(secret).digest())
        await self._keep(structs.replace(self._file, tokens=(*tokens, kept)))
        self._context.log.info("token.created", id=token.id, role=token.role, lifetime_seconds=request.lifetime_seconds)
        return TokenCreated(
            id=token.id,
            # never begins with "-", which a command would take for an option
            token="spz" + base64.urlsafe_b64encode(text).decode().rstrip("="),
            address=f"{self._address()}:{self._context.configuration.ports[0]}",
        )

    def list_tokens(self, request: ListTokens, call: Call) -> Tokens:
        """Valid tokens, and the machines that joined."""
        self._need_admin(call)
        now = self._context.clock.now()
        usable = tuple(kept.token for kept in self._file.tokens if _is_usable(kept.token, now))
        return Tokens(tokens=usable, machines=self._file.machines, keys=self.membership.fingerprints)

    async def revoke_token(self, request: RevokeToken, call: Call) -> Done:
        """Revoke a token or a machine. Raises SpritzError if there is none."""
        self._need_admin(call)
        file = self._file
        if request.host:
            if request.host not in self._joined:
                raise _wrong(f"no machine {request.host} has joined")
            machines = tuple(machine for machine in file.machines if machine.host != request.host)
            # First to disk, then the effect: after a crash in between, the machine is revoked and is refused at its
            # next connection.
            await self._keep(structs.replace(file, machines=machines, revoked=tuple({*file.revoked, request.host})))
            self.hub.dismiss(request.host)
            server = self._context.counting.server
            for channel in list(server.channels if server is not None else ()):
                if channel.pipe.machine is not None and channel.pipe.machine.host == request.host:
                    channel.pipe.abort()
            nodes = self._context.machine.state.nodes
            names_of_host = [name for name in nodes if request.host in _machine_names(name, self._host_of(name))]
            if names_of_host:
                self._context.nodes.expel(names_of_host, REVOKED_REASON.format(host=request.host))
        else:
            tokens = tuple(kept for kept in file.tokens if kept.token.id != request.id)
            if len(tokens) == len(file.tokens):
                raise _wrong(f"there is no token {request.id}")
            await self._keep(structs.replace(file, tokens=tokens))
        self._context.log.info("token.revoked", id=request.id, host=request.host)
        return Done()

    # Machines

    def fetch_authority(self, request: FetchAuthority, call: Call) -> AuthorityCertificate:
        """Public: the certificate is in every handshake."""
        authorities = [authority.certificate for authority in self.membership.authorities]
        return AuthorityCertificate(cluster=self.cluster, certificate=authorities[0], authorities="".join(authorities))

    async def join(self, request: JoinCluster, call: Call) -> MachineJoined:
        """Issue a certificate for a token. Raises SpritzError with the reason."""
        peer, log = call.channel.pipe.peer_name, self._context.log
        try:
            kept = self._token_of(request)
        except SpritzError as error:
            call.channel.complain("machine.join_refused", host=request.host[:64], reason=error.message)
            raise
        now, host = self._context.clock.now(), request.host
        joined = self._certified(host, kept.token.role, request.public_key)
        record = JoinedMachine(
            host=host,
            role=kept.token.role,
            joined_at=now,
            certified_at=now,
            token_id=kept.token.id,
            keys=self.membership.fingerprints,
        )
        file = self._file
        used = structs.replace(kept, token=structs.replace(kept.token, used=kept.token.used + 1))
        await self._keep(
            structs.replace(
                file,
                tokens=tuple(used if token.token.id == used.token.id else token for token in file.tokens),
                machines=(*(machine for machine in file.machines if machine.host != host), record),
                revoked=tuple(name for name in file.revoked if name != host),
            )
        )
        log.info("machine.joined", host=host, role=record.role, peer=peer, token=record.token_id)
        return joined

    async def renew(self, request: RenewCertificate, call: Call) -> MachineJoined:
        """Issue the next certificate of a machine. Raises SpritzError."""
        machine = call.machine
        if machine is None or not self.is_welcome(machine) or machine.role not in (tls.NODE, tls.LOGIN):
            raise _denied("only machines that have joined can renew")
        joined = self._certified(machine.host, machine.role, request.public_key)
        now, file = self._context.clock.now(), self._file
        await self._keep(
            structs.replace(
                file,
                machines=tuple(
                    structs.replace(other, certified_at=now, keys=self.membership.fingerprints)
                    if other.host == machine.host
                    else other
                    for other in file.machines
                ),
            )
        )
        self._context.log.info("machine.renewed", host=machine.host)
        return joined

    def _certified(self, host: str, role: str, public_key: bytes) -> MachineJoined:
        authorities = self.membership.authorities
        try:
            certificate = authorities[0].issue(
                tls.Machine(self.cluster, role, host), public_key, self._context.clock.now()
            )
        except ValueError as error:
            raise _wrong(f"not a public key: {error}") from error
        return MachineJoined(
            cluster=self.cluster,
            role=role,
            certificate=certificate,
            authorities="".join(authority.certificate for authority in authorities),
            user_key=self.membership.user_keys(host)[0],
            launch_keys=self.membership.launch_keys,
        )

    def _token_of(self, request: JoinCluster) -> _Kept:
        identity, secret = request.token[:_ID_BYTES].hex(), request.token[_ID_BYTES:]
        digest = hashlib.sha256(secret).digest()
        for kept in self._file.tokens:
            token = kept.token
            # Compared in constant time: how long a refusal takes must not tell how much of the secret was right.
            if token.id != identity or not hmac.compare_digest(kept.secret_hash, digest):
                continue
            if token.expires_at < self._context.clock.now():
                raise _denied(f"token {token.id} has expired")
            if token.uses and token.used >= token.uses:
                raise _denied(f"token {token.id} has been used {token.used} times, and is good for no more")
            if request.role and request.role != token.role:
                raise _denied(f"token {token.id} is for machines of role {token.role}, not {request.role}")
            if not _HOST.match(request.host):
                raise _denied(f"not a host name without a domain, in lower case: {request.host[:64]!r}")
            if token.host and token.host != request.host:
                raise _denied(f"token {token.id} is for machine {token.host}, not {request.host}")
            # A token without a host must not take over an existing identity: a certificate for the name of the
            # controller, or of a machine that has joined, would let its bearer pose as that machine.
            if not token.host and request.host == self.membership.host:
                raise _denied(f"{request.host} is the controller's own name")
            if not token.host and request.host in self._joined:
                raise _denied(
                    f"a machine {request.host} has joined already; to let it join again: "
                    f"spritz token create --host {request.host}"
                )
            # Refused before the token is used and the name is taken: that user joins by the same line.
            user = self._context.configuration.slurmd_user_entry
            if token.role == tls.NODE and user is not None and request.user not in ("", user.name, str(user.uid)):
                raise _denied(
                    f"nodes of this cluster belong to {user.name} (SlurmdUser), not {request.user}: join as {user.name}"
                )
            return kept
        raise _denied("the token is not one of this cluster's, or was revoked")

    # Configuration

    def fetch_configuration(self, request: FetchConfiguration, call: Call) -> ConfigurationFiles | Deferred:
        """Parked while the caller already has the current configuration."""
        machine = call.machine
        self._need_unrevoked(machine)
        if machine is None or not self.is_welcome(machine):
            raise _denied("the configuration is for machines that have joined")
        if machine.host not in self._joined and not self._context.configuration.loaded.settings.has_option(
            "SlurmctldParameters", "enable_configless"
        ):
            raise _denied("slurm.conf has no SlurmctldParameters=enable_configless, and the machine joined by no token")
        if request.known != self._served.digest:
            return self._served
        self._waiting[call] = None
        call.on_abandon(lambda: self._waiting.pop(call, None))
        return DEFERRED

    async def read(self, loaded: LoadedConfig) -> ConfigurationFiles:
        """The files of a configuration, for `serve`. Raises SpritzError."""
        files = await self._worker.run(_read_files, loaded.path, loaded.files_read)
        return ConfigurationFiles(digest=loaded.digest, files=files)

    def serve(self, files: ConfigurationFiles) -> None:
        """Serve these files from now on, also to parked calls, if they are others."""
        known, self._served = self._served.digest, files
        if files.digest == known:
            return
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.reply(files)

    # Steps

    def signed(self, message: Struct) -> Struct:
        """A launch message for another machine with its credential; other messages unchanged."""
        if not isinstance(message, LaunchBatch | LaunchStep | LaunchProlog):
            return message
        job, now = message.job, self._context.clock.now()
        body = msgspec.msgpack.encode(message)
        content = launch_content(
            LaunchCredential(
                cluster=self.cluster,
                term=message.term,
                node=message.node,
                nodes=hostlist.compress(job.allocation.names) if job.allocation is not None else "",
                job_id=job.id,
                restart_count=job.restart_count,
                step_id=message.step.step_id if isinstance(message, LaunchStep) else -1,
                uid=job.spec.uid,
                gid=job.spec.gid,
                digest=digest_of(body),
                issued_at=now,
                expires_at=now + LIFETIME_SECONDS,
                nonce=self._randomness.token(16),
            )
        )
        return SignedLaunch(
            kind=type(message).__name__, message=body, credential=content, signature=self._signer.sign(content)
        )

    def order_credential(self, order: Order, body: bytes, nodes: Iterable[str]) -> tuple[bytes, bytes]:
        """Credential and signature of a forwarded message; `body` is the message as it travels."""
        job_id, restart_count, step_id, uid, gid = subject_of(order)
        now = self._context.clock.now()
        content = launch_content(
            OrderCredential(
                cluster=self.cluster,
                kind=type(order).__name__,
                term=order.term,
                nodes=hostlist.compress(nodes),
                job_id=job_id,
                restart_count=restart_count,
                step_id=step_id,
                uid=uid,
                gid=gid,
                digest=digest_of(body),
                issued_at=now,
                expires_at=now + LIFETIME_SECONDS,
                nonce=self._randomness.token(16),
            )
        )
        return content, self._signer.sign(content)

    def reachable(self, command: StepRequest, call: Call) -> StepRequest:
        """A step request with the machine of its client."""
        host = call.origin or self.membership.host

        def at(address: str) -> str:
            return address_at(host, self._streams, address) if address else ""

        if isinstance(command, AttachStep):
            return structs.replace(command, io_address=at(command.io_address))
        if isinstance(command, CreateHetStep):
            parts = tuple(
                (place, structs.replace(spec, io_address=at(spec.io_address))) for place, spec in command.parts
            )
            return structs.replace(command, parts=parts)
        return structs.replace(command, spec=structs.replace(command.spec, io_address=at(command.spec.io_address)))

    # Parts

    def _need_admin(self, call: Call) -> None:
        # Trusted callers: relayed users, vouched for by root of another machine; and auth/jwt, verified here
        # (slurmrestd).
        trusted = call.channel.pipe.is_same_machine or (call.caller is not None and call.caller.via == "jwt")
        if not trusted or not self._context.identity.is_admin(call):
            raise _denied("tokens are for administrators on the controller's machine: root, SlurmUser")

    def _address(self) -> str:
        addresses = self._context.configuration.addresses
        for address in addresses:
            if address not in ("localhost", "127.0.0.1", "::1") and (len(addresses) == 1 or is_here((address,))):
                return address
        return socket.gethostname()

    async def _keep(self, file: _File) -> None:
        self._file = file
        self._joined = {machine.host for machine in file.machines}
        await self._worker.run(self._place.write, file)


class _OnDisk:
    """Storage of tokens and machines in StateSaveLocation."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> _File:
        """Read the file. Raises SpritzError."""
        try:
            with open(self._path, "rb") as file:
                return _decoded(file.read(), self._path)
        except FileNotFoundError:
            return _File()

    def write(self, file: _File) -> None:
        """Write the file; it is on disk on return."""
        write_private(self._path, msgspec.json.encode(file))


class _InJournal:
    """Storage with the journal in PostgreSQL, for the leading controller. An existing file is taken over."""

    def __init__(self, journal: PostgresJournal, path: str) -> None:
        self._journal = journal
        self._before = _OnDisk(path)

    def read(self) -> _File:
        """Read the record in the journal. Raises SpritzError."""
        content = self._journal.kept(FILE)
        return self._before.read() if content is None else _decoded(content, f"{self._journal.name}: {FILE}")

    def write(self, file: _File) -> None:
        """Write the record; it is durable on return. Raises JournalFenced, JournalFailed."""
        self._journal.keep(FILE, msgspec.json.encode(file))


def _decoded(data: bytes, name: str) -> _File:
    try:
        kept = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise SpritzError(f"{name}: {error}", hint="machines stay joined without it; tokens are lost") from error
    if kept.format != 1:
        raise SpritzError(f"{name}: format {kept.format} is of a later release")
    return kept


def _read_files(path: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read files of slurm.conf's directory only. Raises SpritzError."""
    directory = os.path.dirname(os.path.abspath(path))
    contents = {}
    for name in (path, *names):
        folder, base = os.path.split(os.path.abspath(name))
        if folder != directory or not _NAME.match(base):
            continue
        try:
            with open(name, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise SpritzError(f"{name}: {error.strerror}", code="ESLURM_CONFIG_NOT_FOUND") from error
        if len(content) > FILE_BYTES_MAX:
            raise SpritzError(f"{name} is longer than {FILE_BYTES_MAX} bytes", code="ESLURM_CONFIG_NOT_FOUND")
        contents["slurm.conf" if name == path else base] = content
    return contents


def _machine_names(node: str, host: str) -> tuple[str, str]:
    """The names that the certificate of the machine of a node with this NodeHostname may have."""
    return node.lower(), host.partition(".")[0].lower()


def _is_usable(token: Token, now: float) -> bool:
    return token.expires_at >= now and not (token.uses and token.used >= token.uses)


def _denied(reason: str) -> SpritzError:
    return SpritzError(f"{Rejection(code='ESLURM_ACCESS_DENIED').text}: {reason}", code="ESLURM_ACCESS_DENIED")


def _wrong(reason: str) -> SpritzError:
    return SpritzError(f"Invalid token: {reason}")
