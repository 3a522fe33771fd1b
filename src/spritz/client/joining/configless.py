"""Configless operation: where daemons keep and find the configuration that the controller sends.

Root's files are in /var/lib/spritz (or systemd's STATE_DIRECTORY), and /run/slurm/conf points commands there, as in
Slurm; another user's are among its clusters. The last fetched files are used when no controller answers.

Source: slurmd(8), sackd(8) --conf-server; Slurm's guide to configless operation (order of the search; DNS SRV).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spritz.client.errors import ClientError
from spritz.client.joining.joining import fetch, lend_keys, parse_address, write_configuration
from spritz.client.locate import RUN_DIRECTORY, find_slurm_conf, state_home, system_state_home
from spritz.client.trust.membership import KEY_FILE, Membership, find_membership
from spritz.installed import prefix
from spritz.runtime.srv import NoService, service_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.node.machines import ConfigurationFiles


def state_directory() -> str:
    """The directory for this machine's membership files."""
    return system_state_home() if os.geteuid() == 0 else state_home()


def publish(directory: str) -> None:
    """Point all users' commands to a directory with slurm.conf, if this is root."""
    if os.geteuid() != 0:
        return
    try:
        os.makedirs(os.path.dirname(RUN_DIRECTORY), mode=0o755, exist_ok=True)
        if os.path.islink(RUN_DIRECTORY):
            os.unlink(RUN_DIRECTORY)
        os.symlink(directory, RUN_DIRECTORY)
    except OSError as error:
        sys.stderr.write(f"error: {RUN_DIRECTORY}: {error.strerror}: commands need SLURM_CONF={directory}/slurm.conf\n")


def configuration(config_file: str, conf_server: str, role: str, now: float) -> tuple[str, Membership | None, bool]:
    """Path of slurm.conf for a daemon, its keys, and whether the controller sends it. Raises ClientError.

    Order: the named file, the named servers, a file in the usual places, servers found by DNS SRV. A file that was
    fetched before is none of the usual ones: it is fetched again.
    """
    if not conf_server and not config_file:
        problem = ClientError("Could not establish a configuration source", code="ESLURM_CONFIG_NOT_FOUND")
        try:
            config_file = find_slurm_conf()
            if os.path.realpath(config_file) == os.path.realpath(_kept_path()):
                config_file = ""
        except ClientError as error:
            problem = error
        if not config_file:
            try:
                conf_server = ",".join(f"{host}:{port}" for host, port in service_servers("_slurmctld._tcp"))
            except NoService as absent:
                problem.hint = "; DNS: ".join(filter(None, (problem.hint, str(absent))))
                return _kept(problem)
    if config_file and not conf_server:
        path = os.path.abspath(config_file)
        membership = find_membership(path)
        return path, membership, membership is not None and membership.joined is not None
    servers = [parse_address(text.strip()) for text in conf_server.split(",")]
    path = _kept_path()
    directory = os.path.dirname(path)
    membership = _lent(directory)
    if membership is None:
        raise ClientError(
            f"--conf-server {conf_server}: this machine has no key of the cluster",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint=f"put the cluster's {KEY_FILE} into /etc/slurm, or have the machine join: spritz join HOST --token T",
        )
    try:
        _, files = fetch(membership, servers, role, now)
        write_configuration(directory, files)
    except ClientError as error:
        return _kept(error)
    publish(directory)
    return path, membership, True


def _kept_path() -> str:
    return os.path.join(state_directory(), "conf/slurm.conf")


def _lent(directory: str) -> Membership | None:
    """The membership by the key of /etc/slurm, in the directory of fetched files. Raises ClientError."""
    lend_keys(directory, ("/etc/slurm", os.path.join(prefix(), "etc/slurm"), os.path.join(prefix(), "etc")))
    return find_membership(os.path.join(directory, "slurm.conf"))


def _kept(error: ClientError) -> tuple[str, Membership | None, bool]:
    """The configuration fetched before. Raises `error` where there is none."""
    path = _kept_path()
    directory = os.path.dirname(path)
    membership = _lent(directory) if os.path.exists(path) else None
    if membership is None:
        raise error
    sys.stderr.write(f"error: {_reason(error)}; using the configuration fetched before, {path}\n")
    publish(directory)
    return path, membership, True


def keep(path: str, membership: Membership | None, files: ConfigurationFiles) -> None:
    """Replace the files fetched before. Raises ClientError."""
    own_files = membership.joined.own if membership is not None and membership.joined is not None else {}
    write_configuration(os.path.dirname(path), files, own_files)


def refresh(path: str, membership: Membership, role: str, servers: Sequence[tuple[str, int]], now: float) -> bool:
    """Fetch the configuration of a joined machine. False, without a change, if no controller answers."""
    try:
        _, files = fetch(membership, servers, role, now)
    except ClientError as error:
        sys.stderr.write(f"error: {_reason(error)}\n")
        return False
    keep(path, membership, files)
    return True


def _reason(error: ClientError) -> str:
    return ": ".join(filter(None, (error.message, error.hint)))
