"""A request as plugins see it: the names of job_desc_msg_t over the plain values of a `JobSpec`.

A field that was not given reads as None (texts) or NO_VAL of its width (numbers); writing that value clears the field.
A submission holds everything that its user gave, an update only what it changes. A name of Slurm's that Spritz does not
support reads as not given, and writing it raises an error that names it.

Source: slurm/slurm.h job_desc_msg_t; https://slurm.schedmd.com/job_submit_plugins.html; values as recorded from Slurm
22.05.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from spritz.model.job.record import JobSpec
from spritz.notation.octets import octets, plain
from spritz.plugins.answer import FieldError
from spritz.plugins.fields import FIELDS


class Description:
    """One request. `fields`: plain values of JobSpec's fields, only those that were given.

    `facts`: what the controller adds: user_name, default_account, default_qos, immediate, het_job_offset.
    """

    __slots__ = ("changed", "environment", "facts", "fields", "job_id", "min_cpus", "modify", "script")

    def __init__(
        self,
        fields: dict[str, Any],
        *,
        facts: Mapping[str, Any] | None = None,
        script: bytes = b"",
        environment: tuple[bytes, ...] = (),
        job_id: int = 0,
    ) -> None:
        self.fields: dict[str, Any] = fields
        self.facts: Mapping[str, Any] = facts or {}
        self.script: bytes = script
        self.environment: list[bytes] = list(environment)
        #: the job that an update changes; 0 for a submission
        self.job_id = job_id
        self.modify = bool(job_id)
        #: names of JobSpec fields that plugins have written
        self.changed: set[str] = set()
        #: the value that a plugin wrote to min_cpus; it takes effect after all writes, because it depends on other
        #: fields
        self.min_cpus: int | None = None

    @classmethod
    def of_spec(
        cls, spec: JobSpec, script: bytes, environment: tuple[bytes, ...], facts: Mapping[str, Any]
    ) -> Description:
        return cls(msgspec.to_builtins(spec), facts=facts, script=script, environment=environment)

    def read(self, name: str) -> Any:
        """The value; None for a text that was not given, and for an unknown name."""
        field = FIELDS.get(name)
        return None if field is None else field.read(self)

    def write(self, name: str, value: Any) -> None:
        """Set a field. Raises FieldError for an unknown name, or a value that the field does not accept."""
        field = FIELDS.get(name)
        if field is None:
            raise FieldError(f'a job description has no field "{name}"')
        field.write(self, name, value)

    def put(self, field: str, value: Any) -> None:
        """Set a field of JobSpec; None clears it. For the writers of the table."""
        self.changed.add(field)
        if value is None and not self.modify:
            self.fields.pop(field, None)
        else:
            self.fields[field] = value

    def variable(self, name: str) -> str | None:
        """Value of a variable in the batch job's environment; None if unset."""
        start = octets(name) + b"="
        entry = next((variable for variable in self.environment if variable.startswith(start)), None)
        return None if entry is None else plain(entry[len(start) :].decode("utf-8", "surrogateescape"))

    def set_variable(self, name: str, value: str) -> None:
        """Set a variable. No effect on interactive jobs, which bring no environment. Raises FieldError for an empty
        name.
        """
        if not name or "=" in name or "\0" in name + value:
            raise FieldError(f'"{name}" is not the name of a variable')
        if not self.environment:
            return
        start = octets(name) + b"="
        entry = start + octets(value)
        for place, present in enumerate(self.environment):
            if present.startswith(start):
                self.environment[place] = entry
                return
        self.environment.append(entry)

    def unset_variable(self, name: str) -> None:
        """Remove a variable from the environment."""
        start = octets(name) + b"="
        self.environment = [variable for variable in self.environment if not variable.startswith(start)]

    def variables(self) -> list[str]:
        """Names in the environment, in its order."""
        return [plain(variable.partition(b"=")[0].decode("utf-8", "surrogateescape")) for variable in self.environment]

    def spec(self) -> JobSpec:
        """The submission with all changes. Raises FieldError."""
        self._settle()
        try:
            return msgspec.convert(self.fields, JobSpec)
        except msgspec.ValidationError as error:
            raise FieldError(str(error)) from error

    def _settle(self) -> None:
        """Derive fields that depend on several others, as the commands do."""
        fields = self.fields
        if self.changed & {"nodes_min", "tasks", "tasks_per_node"}:
            per_node, nodes = fields.get("tasks_per_node"), fields.get("nodes_min", 1)
            if not fields.get("tasks_given"):
                fields["tasks"] = (per_node or 1) * nodes
            if not fields.get("nodes_given") and per_node:
                fields["nodes_min"] = -(-fields.get("tasks", 1) // per_node)
        if self.min_cpus is None:
            return
        needed = fields.get("tasks", 1) * fields.get("cpus_per_task", 1)
        if self.min_cpus <= needed:
            return  # return  # the tasks need at least as many
        if fields.get("tasks_given") or fields.get("cpus_per_task"):
            raise FieldError(f"min_cpus: {self.min_cpus} is more than num_tasks times cpus_per_task, {needed}")
        fields["tasks"], fields["tasks_given"] = self.min_cpus, True
        self.changed |= {"tasks", "tasks_given"}
