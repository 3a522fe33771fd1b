"""JobCompType=jobcomp/kafka: the documents of `web`, sent to a topic of a Kafka cluster.

JobCompLoc names a file of librdkafka's options, `key=value` lines. A document counts as sent when the brokers have
acknowledged it; until then it stays on disk. The client is confluent-kafka, an extra (`kafka`).

Source: slurm.conf(5) of 23.02 and newer: JobCompLoc, JobCompParams=flush_timeout=,topic=, and of 25.05:
enable_job_start, topic_job_start=. Differs: undelivered documents are always kept and retried (in Slurm:
`requeue_on_msg_timeout`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spritz.extras import pip_install
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Milliseconds for the brokers to acknowledge, unless flush_timeout= is set.
FLUSH_MILLISECONDS = 500
#: HTTP status codes, as `web.Poster` expects them
_TAKEN, _NONE, _TOO_LARGE = 200, 0, 413


class Topic:
    """A Kafka topic. Raises SpritzError for invalid options, or without the client."""

    def __init__(self, path: str, parameters: Iterable[str], cluster: str) -> None:
        try:
            self._kafka: Any = importlib.import_module("confluent_kafka")
        except ImportError as error:
            raise SpritzError("jobcomp/kafka needs the package confluent-kafka", hint=pip_install("kafka")) from error
        self._topic, milliseconds = cluster, FLUSH_MILLISECONDS
        self._start_topic = ""
        for word in parameters:
            name, _, value = word.partition("=")
            if name.lower() == "topic" and value:
                self._topic = value
            elif name.lower() == "topic_job_start":
                self._start_topic = value
            elif name.lower() == "flush_timeout" and value.isdecimal() and int(value[:9]) > 0:
                milliseconds = int(value[:9])
        self._seconds = milliseconds / 1000
        # After this time the client gives up: a document must not be sent later, when it is also retried.
        settings = {"message.timeout.ms": str(milliseconds), **options(path)}
        try:
            self._producer = self._kafka.Producer(settings, logger=_Silent())
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise SpritzError(f"{path}: {error}") from error

    def post(self, body: bytes) -> tuple[int, str]:
        """Send one document and wait for the broker. Returns as `web.Server.post` does; blocks."""
        answers: list[Any] = []
        # Quotes within texts are escaped, so only a key can look like this.
        topic = self._topic if b',"@end":' in body else self._start_topic or self._topic
        try:
            self._producer.produce(topic, body, on_delivery=lambda problem, _: answers.append(problem))
            self._producer.flush(self._seconds + 1.0)
        except (self._kafka.KafkaException, BufferError) as error:
            answers.append(error.args[0] if error.args else error)
        if not answers:
            return _NONE, "no broker has acknowledged it"
        problem = answers[0]
        if problem is None:
            return _TAKEN, ""
        code = problem.code() if isinstance(problem, self._kafka.KafkaError) else None
        return (_TOO_LARGE if code == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE else _NONE), str(problem)

    def close(self) -> None:
        """Nothing to do: every document was acknowledged or failed."""


class _Silent:
    """Drops the client's log messages; `post` reports problems."""

    def log(self, *_: object) -> None:
        pass


def options(path: str) -> dict[str, str]:
    """The options in JobCompLoc's file. Raises SpritzError."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpritzError(f"jobcomp/kafka: JobCompLoc={path}: {error}") from error
    options: dict[str, str] = {}
    for number, text in enumerate(lines, 1):
        key, equals, value = text.strip().partition("=")
        if not key or key.startswith("#"):
            continue
        if not equals:
            raise SpritzError(f"{path}: line {number}: {text.strip()!r} is not key=value")
        options[key.strip()] = value.strip()
    return options
