"""Findings of `spritz doctor` about the cluster, as this machine's daemon and the controller know it."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.local import daemons
from spritz.cli.local.doctor.finding import NOTE, OK, WRONG, Finding, count
from spritz.cli.local.doctor.log_end import last_error
from spritz.cli.local.down import joined_role
from spritz.cli.local.paths import ClusterPaths, SitePaths
from spritz.cli.local.status import elsewhere
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.client.trust.same_machine import is_here
from spritz.config.load import load
from spritz.model.errors import SpritzError
from spritz.model.node_daemon.reports import is_revoked_reason
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.daemons import ControllerPongs, PingControllers
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics
from spritz.model.queries.nodes import ListNodes, Nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.queries.nodes import NodeView

_RESUME = "`scontrol update NodeName={node} State=RESUME`"

#: Reasons with which daemons drain a node, by their first words, and the remedy. The texts are Slurm's where it has
#: them. Nodes that people drain for another reason are no fault.
CAUSES: dict[str, str] = {
    "Prolog error": "slurmd's log on {node} has the output of slurm.conf's Prolog: mend it, then {resume}",
    "Epilog error": "slurmd's log on {node} has the output of slurm.conf's Epilog: mend it, then {resume}",
    "Kill task failed": "processes on {node} do not end (`ps -eo pid,stat,args | grep ' D'` shows those that wait for a"
    " disk): mend what they wait for, or reboot, then {resume}",
    "batch job complete failure": "see slurmd's log on {node}, then {resume}",
    "the clock of ": "set the clocks right (chronyc tracking), then {resume}",
    "SlurmdSpoolDir ": "make room in SlurmdSpoolDir of {node} or mend its disk, then {resume}",
    "health-check:": "mend what the check found; the next run of the check that finds nothing resumes the node",
    "Low ": "slurm.conf states more than {node} has (`slurmd -C` there): change the line or the machine, then"
    " `scontrol reconfigure`",
    "jobs fail at once": "the output of its last jobs (`sacct -N {node} -s F`) says what {node} lacks: mend it, then"
    " {resume}",
    "gres/": "slurm.conf states more devices than {node} has (`slurmd -C` there): change the line or mend the device",
}

#: States of nodes that are away on purpose.
_AWAY = {"POWERING_UP", "POWERING_DOWN", "POWERED_DOWN", "POWER_UP", "POWER_DOWN", "REBOOT_ISSUED"}

#: Below this much free space, submissions are soon refused.
_FREE_MIB = 100


def away(paths: ClusterPaths) -> bool:
    """Whether the controller does not run, which `doctor` reports from the processes of this machine."""
    return not isinstance(paths, SitePaths) and daemons.living(paths)["slurmctld"] is None


def _silent(paths: ClusterPaths) -> bool:
    """Whether the controller cannot be asked, for a reason that another check reports."""
    return away(paths) or any(member(paths))


def member(paths: ClusterPaths) -> Iterator[Finding]:
    """The daemon of a machine that has joined: commands here reach the controller through it."""
    place = ClusterPaths(os.path.dirname(os.path.dirname(paths.slurm_conf)))
    if place.slurm_conf != paths.slurm_conf or (role := joined_role(place)) is None:
        return
    if daemons.member(place, role) is not None:
        return
    name = daemons.of_role(role)
    last = last_error(place.node_log if role == "node" else place.login_log)
    named = "" if isinstance(paths, SitePaths) else f" --dir {shlex.quote(place.root)}"
    yield Finding(
        WRONG,
        f"{name} of this machine does not run: no command here reaches the controller",
        f"`spritz join{named}` starts it again" + (f"; its log ends: {last}" if last else ""),
    )


def joined(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """As `member`, for the list of checks."""
    yield from member(paths)


def controllers(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether each controller answers, and what would be wrong if it led."""
    if _silent(paths):
        return
    try:
        config = locate_controller(paths.slurm_conf)
        if not config.has_standby:
            return
        with connect_controller(config) as controller:
            answer = controller.call(PingControllers(), ControllerPongs)
    except ClientError:
        return  # `nodes` reports it
    troubled = False
    for index, (name, pong) in enumerate(zip(config.names, answer.pongs, strict=False)):
        if pong is not None and not pong.detail:
            continue
        troubled = True
        if pong is not None:
            yield Finding(WRONG, f"controller {name}: {pong.detail}", f"mend it before {name} has to lead")
        else:
            reason = f": {answer.reasons[index]}" if answer.reasons else ""
            yield Finding(WRONG, f"controller {name} does not answer{reason}", f"see {paths.controller_log} on {name}")
    if not troubled:
        yield Finding(OK, f"{count(len(answer.pongs), 'controller')} answer")


def state_space(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether the controller of this machine can store events."""
    if not paths.state or not os.path.isdir(paths.state) or not _leads_here(paths):
        return
    try:
        free_mib = shutil.disk_usage(paths.state).free >> 20
        files = os.statvfs(paths.state)
    except OSError as error:
        yield Finding(WRONG, f"StateSaveLocation {paths.state}: {error.strerror}", "mend the disk")
        return
    if free_mib < _FREE_MIB:
        text = f"{free_mib} MiB free for StateSaveLocation {paths.state}"
        yield Finding(WRONG, text, "slurmctld ends when it cannot store an event: make room, then start it")
    elif files.f_files and files.f_favail < 100:
        text = f"{files.f_favail} files can be made in StateSaveLocation {paths.state}"
        yield Finding(WRONG, text, "slurmctld ends when it cannot store an event: remove files, then start it")


def _leads_here(paths: ClusterPaths) -> bool:
    """Whether this machine is one of the controllers'."""
    try:
        return is_here(locate_controller(paths.slurm_conf).hosts)
    except ClientError:
        return False


def nodes(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether the controller answers, and each node."""
    if _silent(paths):
        return
    try:
        with connect_controller(locate_controller(paths.slurm_conf)) as controller:
            views = controller.joined(ListNodes(all=True, pieces=True), Nodes, "nodes").nodes
            config = controller.call(ShowConfig(), ConfigText)
    except ClientError as error:
        yield _unreachable(paths, error)
        return
    yield from _differs(paths, config)
    troubled = [finding for view in views if (finding := _node(view)) is not None]
    yield from troubled
    if not troubled:
        yield Finding(OK, f"{count(len(views), 'node')} answer{'s' if len(views) == 1 else ''}")


def _unreachable(paths: ClusterPaths, error: ClientError) -> Finding:
    place = elsewhere(paths.slurm_conf)
    text = f"the controller{place and f', on {place},'} does not answer: {error.message}"
    if "self-signed certificate" in error.hint or "unable to get local issuer" in error.hint:
        advice = (
            f"{error.hint}: this machine has another key of the cluster than the controller (or another authority, with"
            " TLSType=tls/s2n): copy slurm.key from there and restart the daemons here, or `spritz join` again"
        )
        return Finding(WRONG, text, advice)
    here = ClusterPaths(os.path.dirname(os.path.dirname(paths.slurm_conf)))
    role = joined_role(here)
    if role is not None:  # its own daemon answers, and knows why the controller does not
        last = last_error(here.node_log if role == "node" else here.login_log, "node.refused")
    else:
        last = "" if place else last_error(paths.controller_log)
    advice = error.hint or f"see {paths.controller_log}"
    return Finding(WRONG, text, advice + (f"; its log ends: {last}" if last else ""))


def _differs(paths: ClusterPaths, config: ConfigText) -> Iterator[Finding]:
    """Whether this machine has another slurm.conf than the one that slurmctld read."""
    place = ClusterPaths(os.path.dirname(os.path.dirname(paths.slurm_conf)))
    if joined_role(place) is not None:
        return  # it comes from the controller, with this machine's own directories
    try:
        same = load(paths.slurm_conf).digest == config.digest
    except SpritzError:
        return  # it has errors, which are reported
    if same:
        return
    if _leads_here(paths):
        advice = "`scontrol reconfigure` applies it"
        yield Finding(NOTE, f"{paths.slurm_conf} was changed since slurmctld read it", advice)
    else:
        advice = f"copy it, with the files next to it, from {elsewhere(paths.slurm_conf)}; then `scontrol reconfigure`"
        yield Finding(WRONG, f"{paths.slurm_conf} differs from the file that slurmctld has read", advice)


def _node(view: NodeView) -> Finding | None:
    """The fault of a node; None if it has none."""
    name, reason, states = view.node.name, view.node.reason, set(view.state_names)
    resume = _RESUME.format(node=name)
    if view.refused and not is_revoked_reason(reason):
        return Finding(WRONG, f"node {name} is not let in: {view.refused}", f"see SlurmdLogFile on {name}")
    if states & _AWAY and "DOWN" not in states:
        return None  # by power saving or a reboot, until its time is over; then it is DOWN
    if states & {"DOWN", "NOT_RESPONDING"}:
        if is_revoked_reason(reason):
            return Finding(
                NOTE,
                f"node {name} is retired: {reason}",
                f"`scontrol delete nodename={name}` removes a node that joined (one of slurm.conf: take it out of its"
                f" line); `spritz token create --host {name}` lets it join again",
            )
        advice = (
            f"start slurmd on {name} (`spritz join` on a machine that has joined, else `systemctl start slurmd` or"
            " `spritz up`), or see its log there (SlurmdLogFile)"
            if "NOT_RESPONDING" in states or not reason
            else resume + ", once its cause is repaired"
        )
        return Finding(WRONG, f"node {name} is {'+'.join(view.state_names)} {reason}".rstrip(), advice)
    if states & {"DRAIN", "FAIL"}:
        text = f"node {name} is drained: {reason}"
        for words, advice in CAUSES.items():
            if reason.startswith(words):
                return Finding(WRONG, text, advice.format(node=name, resume=resume))
        return Finding(NOTE, text, f"{resume}, once its cause is repaired")
    return None


def accounting(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether slurmdbd has received all events."""
    if _silent(paths):
        return
    try:
        with connect_controller(locate_controller(paths.slurm_conf)) as controller:
            diagnostics = controller.call(GetDiagnostics(), Diagnostics)
    except ClientError:
        return  # `nodes` reports it
    if diagnostics.database_connected is None:
        return
    if diagnostics.set_aside_events:
        yield Finding(
            WRONG,
            f"accounting lacks {count(diagnostics.set_aside_events, 'event')} that the database could not store",
            f"{paths.database_log} names each (event.set_aside) and why; table events_set_aside keeps them",
        )
    if not diagnostics.database_connected:
        yield Finding(
            NOTE,
            f"slurmctld is not connected to slurmdbd; {count(diagnostics.unsent_events, 'event')} wait to be sent",
            "start slurmdbd, or see its log; nothing is lost meanwhile",
        )
    elif not diagnostics.set_aside_events:
        yield Finding(
            OK, "accounting is up to date" if diagnostics.unsent_events < 1000 else "accounting is catching up"
        )
