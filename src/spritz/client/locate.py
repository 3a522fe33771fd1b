"""Finds the controller: the search for slurm.conf, and the few keys that commands need.

A command needs six keys of some two hundred, so this only scans lines for these. `config` parses the whole file and
reports its mistakes, in the daemons and in `spritz config check`. Imports nothing that is slow.

Sources: slurm.conf(5) "SlurmctldHost", "SlurmctldPort", "SlurmUser", "MessageTimeout", "INCLUDE"; sbatch(1) SLURM_CONF.
"""

from __future__ import annotations

import os
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from spritz.client.errors import ClientError

#: slurmctld's default port, by slurm.conf(5)
DEFAULT_PORT = 6817

#: slurmdbd's default port, by slurm.conf(5)
DEFAULT_DATABASE_PORT = 6819

#: slurm.conf(5): MessageTimeout, seconds.
DEFAULT_MESSAGE_TIMEOUT_SECONDS = 10.0

#: Variable of salloc's command: `name:address:port:version` of the allocation's cluster. Source: salloc(1).
WORKING_CLUSTER = "SLURM_WORKING_CLUSTER"

#: Where configless daemons put the configuration. Source: Slurm's guide to configless operation.
RUN_DIRECTORY = "/run/slurm/conf"

_INCLUDE_DEPTH_MAX = 8
_KEYS = frozenset(
    (
        "clifilterplugins",
        "clustername",
        "federationparameters",
        "messagetimeout",
        "slurmctldaddr",
        "slurmctldhost",
        "slurmctldport",
        "slurmuser",
        "statesavelocation",
    )
)

_DATABASE_KEYS = frozenset(
    (
        "accountingstoragebackuphost",
        "accountingstoragehost",
        "accountingstorageport",
        "accountingstoragetype",
        "clustername",
        "messagetimeout",
        "slurmuser",
    )
)


class ControllerConfig(Struct, frozen=True, kw_only=True):
    """Data for reaching the controller. `hosts`: addresses in order of preference.

    `hosts_key` the key of slurm.conf that they come from.
    """

    path: str
    cluster_name: str
    hosts: tuple[str, ...]
    #: names as in SlurmctldHost
    names: tuple[str, ...] = ()
    hosts_key: str = "SlurmctldHost"
    port: int = DEFAULT_PORT
    slurm_user: str = "root"
    state_save_location: str = ""
    message_timeout_seconds: float = DEFAULT_MESSAGE_TIMEOUT_SECONDS
    #: FederationParameters=fed_display: listings show the federation unless --local is given
    lists_federation: bool = False

    @property
    def has_standby(self) -> bool:
        """Whether there are several controllers, of which one leads."""
        return len(self.hosts) > 1

    @property
    def socket_name(self) -> str:
        """Name of the controller's socket in Linux's abstract namespace, by cluster and port."""
        return controller_socket_name(self.cluster_name, self.port)

    def owners(self) -> frozenset[int]:
        """uids that the controller may run as: root and SlurmUser. Raises ClientError if that user does not exist."""
        return _owners(self.path, self.slurm_user)


def _owners(path: str, slurm_user: str) -> frozenset[int]:
    if slurm_user == "root":
        return frozenset((0,))
    if slurm_user.isdecimal():
        return frozenset((0, int(slurm_user)))
    import pwd

    try:
        return frozenset((0, pwd.getpwnam(slurm_user).pw_uid))
    except KeyError as error:
        raise ClientError(f"{path}: Invalid user for SlurmUser {slurm_user}", code="ESLURM_USER_ID_MISSING") from error


def controller_socket_name(cluster_name: str, port: int) -> str:
    """Name of the abstract Unix socket that the controller of a cluster listens on. `port` is its first TCP port."""
    return f"\0spritz/slurmctld/{cluster_name.lower()}/{port}"


def streams_socket_name(controller_name: str) -> str:
    """Name of the abstract socket by which step supervisors of a machine reach clients on others."""
    return controller_name.replace("/slurmctld/", "/streams/")


class DatabaseConfig(Struct, frozen=True, kw_only=True):
    """slurmdbd by slurm.conf. `kind`: AccountingStorageType without its prefix."""

    path: str
    cluster_name: str
    kind: str = "none"
    host: str = "localhost"
    #: AccountingStorageBackupHost; "" for none
    backup_host: str = ""
    port: int = DEFAULT_DATABASE_PORT
    slurm_user: str = "root"
    message_timeout_seconds: float = DEFAULT_MESSAGE_TIMEOUT_SECONDS

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each slurmdbd; one of them serves."""
        return tuple((host, self.port) for host in (self.host, self.backup_host) if host)

    @property
    def is_local(self) -> bool:
        """Whether slurmdbd runs on this machine, judged by its host's name."""
        name = os.uname().nodename
        return self.host in ("localhost", "127.0.0.1", "::1", name, name.split(".")[0])

    @property
    def addresses(self) -> tuple[str | tuple[str, int], ...]:
        """Addresses in order: the Unix socket if it runs here, then the ports, then the relay to the other slurmdbd."""
        # For a slurmdbd on another machine, the local daemon has its socket.
        relayed = (database_relay_name(self.port),) if self.backup_host else ()
        return database_socket_name(self.port), *self.ports, *relayed

    def owners(self) -> frozenset[int]:
        """User ids that may own slurmdbd's socket, as `ControllerConfig.owners`."""
        return _owners(self.path, self.slurm_user)


def database_socket_name(port: int) -> str:
    """Name of the abstract Unix socket that slurmdbd listens on. `port` is its TCP port."""
    return f"\0spritz/slurmdbd/{port}"


def database_relay_name(port: int) -> str:
    """Name of the socket by which a machine with one of two slurmdbds reaches the other."""
    return database_socket_name(port) + "/relay"


def locate_database(path: str | None = None) -> DatabaseConfig:
    """slurmdbd by slurm.conf. Raises ClientError as `locate_controller` does."""
    path = path or find_slurm_conf()
    values = _read(path, _DATABASE_KEYS)
    port = _last(values, "accountingstorageport", "0")
    if not port.isdecimal() or int(port) > 65535:
        raise ClientError(f"{path}: invalid AccountingStoragePort {port} (a port, 0 is {DEFAULT_DATABASE_PORT})")
    return DatabaseConfig(
        path=path,
        cluster_name=_last(values, "clustername", "cluster").lower(),
        kind=_last(values, "accountingstoragetype", "none").lower().removeprefix("accounting_storage/"),
        host=_last(values, "accountingstoragehost", "localhost"),
        backup_host=_last(values, "accountingstoragebackuphost", ""),
        port=int(port) or DEFAULT_DATABASE_PORT,
        slurm_user=_slurm_user(_last(values, "slurmuser", "root")),
        message_timeout_seconds=_seconds(path, _last(values, "messagetimeout", "")),
    )


def state_home() -> str:
    """Directory under which a user's clusters live: `$XDG_STATE_HOME/spritz`, else `~/.local/state/spritz`.

    Root's clusters serve all users of the machine, who cannot enter root's home: they are in `system_state_home()`,
    except for a cluster that an earlier release made in root's home.

    Works with an empty environment: the home directory then comes from the passwd database.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return os.path.join(base, "spritz")
    user_home = os.path.join(_home(), ".local/state/spritz")
    if os.geteuid() == 0 and not os.path.exists(os.path.join(user_home, "default/etc/slurm.conf")):
        return system_state_home()
    return user_home


def system_state_home() -> str:
    """Directory of root's clusters, and of clusters that this machine has joined. systemd names another if asked to."""
    return os.environ.get("STATE_DIRECTORY", "").partition(":")[0] or "/var/lib/spritz"


def _home() -> str:
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def candidates() -> list[str]:
    """Paths at which slurm.conf is looked for, in order; SLURM_CONF alone if it is set."""
    configured = os.environ.get("SLURM_CONF")
    if configured:
        return [configured]
    from spritz.installed import prefix

    return [
        os.path.join(prefix(), "etc/slurm.conf"),
        os.path.join(prefix(), "etc/slurm/slurm.conf"),
        "/etc/slurm/slurm.conf",
        os.path.join(state_home(), "default/etc/slurm.conf"),
        os.path.join(RUN_DIRECTORY, "slurm.conf"),
    ]


def find_slurm_conf() -> str:
    """Path of the slurm.conf in force. Raises ClientError that lists the paths tried."""
    paths = candidates()
    for path in paths:
        if (_seen is not None and (path, _KEYS) in _seen) or os.path.exists(path):
            return path
    raise ClientError(
        "Could not establish a configuration source",
        code="ESLURM_CONFIG_NOT_FOUND",
        hint=f"no slurm.conf at {', '.join(paths)}; `spritz up` starts a cluster on this machine",
    )


def locate_controller(path: str | None = None) -> ControllerConfig:
    """The controller by slurm.conf (at `path`, or in the usual places). Without a path, `set_target` and
    SLURM_WORKING_CLUSTER take precedence.

    Raises ClientError if there is none, it cannot be read, or one of these keys is wrong. Other keys are ignored.
    """
    if path is None and _target is not None:
        return _target
    is_default = path is None
    path = path or find_slurm_conf()
    values = _read(path, _KEYS)
    if is_default and os.environ.get(WORKING_CLUSTER):
        return _working_cluster(_controller(path, values))
    known = _known[path, _KEYS]
    if known.found is values and known.controller is not None:
        return known.controller
    known.controller = _controller(path, values)
    return known.controller


def set_target(controller: ControllerConfig | None) -> None:
    """Select another controller than slurm.conf's for this call (`--clusters`); None: slurm.conf's again."""
    global _target
    _target = controller


def working_cluster(controller: ControllerConfig) -> str:
    """SLURM_WORKING_CLUSTER for commands inside an allocation of another cluster: name, address, port, version."""
    return f"{controller.cluster_name}:{controller.hosts[0]}:{controller.port}:9728"


def _working_cluster(this_cluster: ControllerConfig) -> ControllerConfig:
    """The controller of the surrounding allocation. Raises ClientError for an invalid variable."""
    text = os.environ[WORKING_CLUSTER]
    name, _, address = text.partition(":")
    host, _, port = address.rpartition(":")[0].rpartition(":")
    if name.lower() == this_cluster.cluster_name:
        return this_cluster
    if not (name and host and port.isdecimal() and 0 < int(port) < 65536):
        raise ClientError(f"invalid {WORKING_CLUSTER} {text}")
    return replace(this_cluster, cluster_name=name.lower(), hosts=(host,), names=(host,), port=int(port))


def _controller(path: str, values: dict[str, list[str]]) -> ControllerConfig:
    if not values and os.path.getsize(path):  # some other file
        raise ClientError(
            f"Unable to process configuration file {path}: ClusterName needs to be specified",
            code="ESLURM_CONFIG_NOT_FOUND",
            hint="is it a slurm.conf? `spritz config check FILE` names every mistake in one",
        )
    shared = _last(values, "slurmctldaddr", "")
    given = values.get("slurmctldhost", ())
    hosts = (shared,) if shared else tuple(_host_address(value) for value in given)
    return ControllerConfig(
        path=path,
        cluster_name=_last(values, "clustername", "cluster").lower(),
        hosts=hosts or ("localhost",),
        names=hosts if shared else tuple(value.partition("(")[0].strip() for value in given) or ("localhost",),
        hosts_key="SlurmctldAddr" if shared else "SlurmctldHost",
        port=_port(path, _last(values, "slurmctldport", str(DEFAULT_PORT))),
        slurm_user=_slurm_user(_last(values, "slurmuser", "root")),
        state_save_location=_last(values, "statesavelocation", "/var/spool"),
        message_timeout_seconds=_seconds(path, _last(values, "messagetimeout", "")),
        lists_federation="fed_display" in _last(values, "federationparameters", "").lower().replace(" ", "").split(","),
    )


def cli_filters() -> tuple[str, ...]:
    """CliFilterPlugins, without their kind; empty without a slurm.conf: connecting will report that."""
    try:
        values = _read(find_slurm_conf(), _KEYS)
    except ClientError:
        return ()
    words = _last(values, "clifilterplugins", "")
    return tuple(word.strip().removeprefix("cli_filter/") for word in words.split(",") if word.strip())


def data_parser() -> str:
    """DataParserParameters: the default version for `--json` and `--yaml`; "" if none is configured or found."""
    try:
        return read_keys(frozenset(("dataparserparameters",))).get("dataparserparameters", "")
    except ClientError:
        return ""


def read_keys(names: frozenset[str], path: str | None = None) -> dict[str, str]:
    """Raw values of these keys (lower case) in slurm.conf; the last one counts.

    For settings that only commands use (KillOnBadExit, SrunProlog). Raises ClientError as above.
    """
    values_by_key = _read(path or find_slurm_conf(), names | {"clustername"})
    return {name: values[-1] for name, values in values_by_key.items() if name in names}


def _last(by_key: dict[str, list[str]], key: str, default: str) -> str:
    values = by_key.get(key)
    return values[-1] if values else default


def _host_address(value: str) -> str:
    """`name(address)` or `name`: the address to connect to."""
    name, bracket, address = value.partition("(")
    return address.rstrip(")").strip() if bracket else name.strip()


def _port(path: str, value: str) -> int:
    first, dash, last = value.partition("-")
    ports = (first, last) if dash else (first,)
    if not all(port.isdecimal() and 0 < int(port) < 65536 for port in ports):
        raise ClientError(f"{path}: invalid SlurmctldPort {value} (a port, or a range such as 6817-6818)")
    return int(first)


def _slurm_user(value: str) -> str:
    """`user` or `user(uid)`."""
    name, _, _ = value.partition("(")
    return name.strip() or "root"


def _seconds(path: str, value: str) -> float:
    if not value:
        return DEFAULT_MESSAGE_TIMEOUT_SECONDS
    if not value.isdecimal() or int(value) == 0:
        raise ClientError(f"{path}: invalid MessageTimeout {value} (seconds, at least 1)")
    return float(value)


class _Known:
    """Cached values from a set of files. `found` is None until the files have been unchanged for a moment.

    `controller` the controller by `found`, once requested.
    """

    __slots__ = ("controller", "files", "found", "since")

    def __init__(self, files: dict[str, tuple[int, ...]], since: float) -> None:
        self.files = files
        self.since = since
        self.found: dict[str, list[str]] | None = None
        self.controller: ControllerConfig | None = None


_known: dict[tuple[str, frozenset[str]], _Known] = {}
#: files checked in this call of a command; None in processes that do not distinguish calls
_seen: set[tuple[str, frozenset[str]]] | None = None
_KNOWN_MAX = 64
#: another cluster's controller, selected for this call
_target: ControllerConfig | None = None
#: Longer than the resolution of file times: a later write has another time stamp.
_REST_SECONDS = 0.1


def begin_call() -> None:
    """For processes that serve many calls: between two `begin_call` each file is checked once."""
    global _seen
    _seen = set()
    set_target(None)


def _read(path: str, keys: frozenset[str]) -> dict[str, list[str]]:
    """Values of `keys` in a file and the files it includes; cached until one of these files changes.

    For processes that serve many calls. The result must not be modified. Raises ClientError.
    """
    known = _known.get((path, keys))
    if known is not None and known.found is not None:
        if _seen is not None and (path, keys) in _seen:
            return known.found
        try:
            if all(_stamp(os.stat(name)) == stamp for name, stamp in known.files.items()):
                if _seen is not None:
                    _seen.add((path, keys))
                return known.found
        except OSError:
            pass  # reading it will report the error
    values: dict[str, list[str]] = {}
    files: dict[str, tuple[int, ...]] = {}
    _scan(path, values, 0, keys, files)
    now = monotonic()
    if known is None or known.files != files:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[path, keys] = _Known(files, now)
    elif now - known.since > _REST_SECONDS:
        known.found = values
    return values


def _stamp(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _scan(
    path: str, values: dict[str, list[str]], depth: int, keys: frozenset[str], files: dict[str, tuple[int, ...]]
) -> None:
    """Collect the values of `keys` from a file and its includes; `files` gets their time stamps."""
    if depth > _INCLUDE_DEPTH_MAX:
        raise ClientError(f"{path}: files include each other more than {_INCLUDE_DEPTH_MAX} deep")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            files[path] = _stamp(os.fstat(file.fileno()))
            text = file.read()
    except OSError as error:
        raise ClientError(f"unable to read configuration file {path}: {error.strerror}") from error
    for line in text.replace("\\\n", " ").split("\n"):
        key, equals, value = line.partition("=")
        name = key.strip().lower()
        if equals and name in keys:
            values.setdefault(name, []).append(_value(value))
        elif name.startswith("include") and key[: len("include") + 1].strip().lower() == "include":
            _scan_included(path, line.strip()[len("include") :], values, depth, keys, files)


def _value(text: str) -> str:
    """The first word of a value, or its quoted text; without a trailing comment."""
    text = text.strip()
    if text[:1] == '"':
        return text[1:].partition('"')[0]
    text = text.partition("#")[0]
    words = text.split(None, 1)
    return words[0] if words else ""


def _scan_included(
    path: str,
    words: str,
    values: dict[str, list[str]],
    depth: int,
    keys: frozenset[str],
    files: dict[str, tuple[int, ...]],
) -> None:
    name = _value(words)
    if "%c" in name:
        name = name.replace("%c", _last(values, "clustername", "cluster"))
    if name:
        _scan(os.path.join(os.path.dirname(path), name), values, depth + 1, keys, files)
