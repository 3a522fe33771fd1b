"""Job records of one version as JSON, quickly: jobs of the same request share most of their text.

A record has about 150 keys. All but fifty follow from the job's request, state and billing
(`presentation.json.jobs.kind_of`): for jobs that do not run, these are shaped and encoded once per such kind. The rest
is shaped and encoded for each job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.jobs import OWN_KEYS, job_json, kind_of, own_json
from spritz.presentation.json.shape import MISSING
from spritz.rest.answers import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job
    from spritz.presentation.json.documents import Json
    from spritz.presentation.json.shape import Convert

#: Most kinds whose text is cached; beyond that, the cache is cleared.
_KINDS_MAX = 1000


class JobWriter:
    """Shapes and encodes jobs. `keys`: the version's converter for each key of a record."""

    def __init__(self, cluster: str, keys: dict[str, Convert]) -> None:
        self._cluster = cluster
        self._all = list(keys.items())
        self._own = [(key, keys[key]) for key in keys if key in OWN_KEYS]
        self._kind = [(key, keys[key]) for key in keys if key not in OWN_KEYS]
        self._kinds: dict[object, bytes] = {}

    def loose(self, job: Job, now: float, exempt_seconds: int | None = None) -> Json:
        """The record before it is shaped. `exempt_seconds`: `model.queries.job_records.Jobs.exempt_of`."""
        return job_json(job, now, self._cluster, exempt_seconds)

    def shaped(self, job: Job, now: float, exempt_seconds: int | None = None) -> Json:
        """The record in the version's form."""
        return _shaped(self._all, self.loose(job, now, exempt_seconds))

    def record(self, job: Job, now: float, exempt_seconds: int | None = None) -> bytes:
        """The record in the version's form, as JSON text."""
        kind = kind_of(job)
        if kind is None:
            return encoded(self.shaped(job, now, exempt_seconds))
        shared = self._kinds.get(kind)
        if shared is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            shared = self._kinds[kind] = b"," + encoded(_shaped(self._kind, self.loose(job, now)))[1:]
        return encoded(_shaped(self._own, own_json(job, now, self._cluster, exempt_seconds)))[:-1] + shared


def _shaped(keys: Iterable[tuple[str, Convert]], record: Json) -> Json:
    get = record.get
    return {key: convert(get(key, MISSING)) for key, convert in keys}
