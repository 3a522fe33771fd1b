"""Reservations. Source: OpenAPI `reservation_info`, `reservation_desc_msg`; scontrol(1)."""

from __future__ import annotations

from typing import Any

from spritz.model.commands.job import Done
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationMade,
    ReservationRequest,
    UpdateReservation,
)
from spritz.model.ids import INFINITE
from spritz.model.node.reservation import FLAGS
from spritz.model.queries.reservations import ListReservations, Reservations
from spritz.presentation.json.reservations import reservation_json
from spritz.presentation.json.values import moment
from spritz.rest.answers import Answer, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations.job_fields import bad
from spritz.rest.operations.nodes import names_of
from spritz.runtime.zone import calendar

#: Flags of the document that a caller may set; NO_… clears a flag.
_SETTABLE = frozenset(FLAGS) - {"SPEC_NODES", "ALL_NODES"}
#: Flags about a reservation's state, which clients may send back; they are ignored.
_TOLD = frozenset(("SPEC_NODES", "ALL_NODES", "REOCCURRING"))
_YEAR = 365 * 86_400.0


async def _listed(ask: Ask, names: tuple[str, ...] = ()) -> Answer:
    answer = await ask.controller.call(ListReservations(names=names), Reservations)
    records = [reservation_json(reservation, answer.now) for reservation in answer.reservations]
    return Answer(body={"reservations": records, "last_update": moment(answer.now)})


@operation("GET /slurm/reservations")
async def get_reservations(ask: Ask) -> Result:
    """All reservations that the caller may see."""
    return await _listed(ask)


@operation("GET /slurm/reservation/{reservation_name}")
async def get_reservation(ask: Ask) -> Result:
    name = ask.path["reservation_name"]
    answer = await _listed(ask, (name,))
    if not answer.body["reservations"]:
        raise Refused("ESLURM_RESERVATION_INVALID", f"Unable to find reservation {name}", "reservation_name")
    return answer


@operation("DELETE /slurm/reservation/{reservation_name}")
async def delete_reservation(ask: Ask) -> Result:
    """Delete a reservation. slurmctld refuses if a job uses it."""
    await ask.controller.call(DeleteReservation(name=ask.path["reservation_name"]), Done)
    return Answer()


@operation("POST /slurm/reservation")
async def post_reservation(ask: Ask) -> Result:
    """Create a reservation, or change an existing one."""
    return Answer(body={"reservations": [await _put(ask, ask.body, await _names(ask))]})


@operation("POST /slurm/reservations")
async def post_reservations(ask: Ask) -> Result:
    """Create or change several reservations, in their order."""
    records = ask.body.get("reservations") or []
    if not records:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no reservations are given", "reservations")
    names = await _names(ask)
    requests = [request_of(record, ask.now) for record in records]  # check all before creating the first
    assert len(requests) == len(records)
    return Answer(body={"reservations": [await _put(ask, record, names) for record in records]})


async def _names(ask: Ask) -> set[str]:
    answer = await ask.controller.call(ListReservations(), Reservations)
    return {reservation.name for reservation in answer.reservations}


async def _put(ask: Ask, given: dict[str, Any], names: set[str]) -> dict[str, Any]:
    request = request_of(given, ask.now)
    if request.name and request.name in names:
        await ask.controller.call(UpdateReservation(request=request), Done)
        return given
    created = await ask.controller.call(CreateReservation(request=request), ReservationMade)
    names.add(created.name)
    return {**given, "name": created.name}


def request_of(given: dict[str, Any], now: float) -> ReservationRequest:
    """The request for a record of the document. Its local times are those of this machine, as scontrol's are."""
    fields: dict[str, Any] = {"name": given.get("name") or ""}
    for name, field in (("start_time", "start_at"), ("end_time", "end_at")):
        if given.get(name):
            fields[field] = float(given[name])
    duration = given.get("duration")
    if duration:
        # Minutes, like other durations of reservations in Slurm.
        fields["duration_seconds"] = _YEAR if duration >= INFINITE else duration * 60.0
    if given.get("node_list"):
        words = ",".join(word for word in given["node_list"] if word)
        fields["nodes"] = ("ALL",) if words.upper() == "ALL" else names_of(words)
    if given.get("node_count"):
        fields["node_count"] = int(given["node_count"])
    if given.get("core_count"):
        fields["core_counts"] = (int(given["core_count"]),)
    for name in ("comment", "partition", "features"):
        if given.get(name):
            fields[name] = given[name]
    if given.get("burst_buffer"):
        raise bad("burst_buffer", "burst buffers are not built", "ESLURM_NOT_SUPPORTED")
    for name in ("users", "accounts"):
        if given.get(name):
            people = [word for word in given[name] if word]
            denied = bool(people) and all(word.startswith("-") for word in people)
            fields[name] = tuple(word.removeprefix("-") if denied else word.removeprefix("+") for word in people)
            fields[f"{name}_denied"] = denied
    if given.get("groups"):
        fields["groups"] = tuple(word for word in given["groups"] if word)
    if given.get("licenses"):
        fields["licenses"] = tuple(_license(word) for word in given["licenses"] if word)
    if given.get("tres"):
        _tres(fields, given["tres"])
    if given.get("max_start_delay"):
        fields["max_start_delay_seconds"] = int(given["max_start_delay"])
    purge = (given.get("purge_completed") or {}).get("time")
    if purge:
        fields["purge_seconds"] = int(purge)
    _flags(fields, given.get("flags") or [])
    start_at = fields.get("start_at")
    if start_at is not None and "TIME_FLOAT" in (fields.get("flags") or fields.get("flags_added") or ()):
        fields["float_seconds"] = max(0.0, start_at - int(now))
    return ReservationRequest(**fields, **calendar(start_at, now))


def _flags(fields: dict[str, Any], words: list[str]) -> None:
    added, removed = [], []
    for word in words:
        if word in _SETTABLE:
            added.append(word)
        elif word.startswith("NO_") and word[3:] in _SETTABLE:
            removed.append(word[3:])
        elif word == "SKIP":
            fields["skip"] = True
        elif word not in _TOLD:
            raise bad("flags", f"{word} is not supported by Spritz", "ESLURM_NOT_SUPPORTED")
    if added:
        fields["flags"] = tuple(sorted(added, key=FLAGS.index))
    if removed:
        fields["flags_removed"] = tuple(removed)


def _license(word: str) -> tuple[str, int]:
    name, _, count = word.partition(":")
    if count and not (count.isascii() and count.isdigit() and len(count) < 10):
        raise bad("licenses", f"{word} is not NAME:COUNT", "ESLURM_INVALID_LICENSES")
    return name, int(count or 1)


def _tres(fields: dict[str, Any], given: list[dict[str, Any]]) -> None:
    gres = []
    for pair in given:
        kind, name, count = (pair.get("type") or "").lower(), pair.get("name") or "", int(pair.get("count") or 0)
        if kind == "cpu":
            fields["cpu_count"] = count
        elif kind == "node":
            fields["node_count"] = count
        elif kind == "gres" and name:
            word, _, of = name.partition(":")
            gres.append((word, of, count))
        elif kind == "license" and name:
            fields["licenses"] = (*fields.get("licenses", ()), (name, count))
        else:
            raise bad("tres", f"{kind} is none of cpu, node, gres and license", "ESLURM_INVALID_TRES")
    if gres:
        fields["gres"] = tuple(gres)
