"""Notifications about runs through Apprise: e-mail, chat, telephone, as its addresses say.

    python -m spritz.experiments.notify EVENT [TEXT]

is the command that a run's job calls on its node, with addresses in $SPRITZ_NOTIFY and the run in $SPRITZ_RUN_DIR. It
prints failures, which the job stores in the run's log/notify.log. Addresses contain secrets and are never printed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import lives, record
from spritz.experiments.results import failures
from spritz.extras import pip_install

VARIABLE = "SPRITZ_NOTIFY"
_NAME = re.compile(r"\$(\w+)|\$\{(\w+)\}")


def addresses(configured: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Addresses of spritz.yaml, with `$NAME` replaced, and of $SPRITZ_NOTIFY. Raises ExperimentError."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environment:
            raise ExperimentError(f"notify: ${name} is not set")
        return environment[name]

    resolved = [_NAME.sub(value, text) for text in configured]
    resolved += re.split(r"[\s,]+(?=\w+://)", environment.get(VARIABLE, "").strip())
    for address in filter(None, resolved):
        if not re.match(r"[\w+.-]+://", address):
            raise ExperimentError("notify: an address as SCHEME://… is expected", hint="see Apprise's list of services")
    return list(dict.fromkeys(filter(None, resolved)))


def names(configured: Sequence[str]) -> list[str]:
    """Variables that addresses in spritz.yaml contain."""
    return [match[1] or match[2] for text in configured for match in _NAME.finditer(text)]


def send(urls: Sequence[str], title: str, text: str) -> list[str]:
    """Send a notification; return a message about failures, without secrets, or ""."""
    try:
        import apprise
    except ImportError:
        return [f"not sent: Apprise is missing: {pip_install('experiments')}"]
    import logging  # not above: all code that submits runs imports this module

    class Heard(logging.Handler):
        """Keeps Apprise's message about a failure."""

        def __init__(self) -> None:
            super().__init__(logging.WARNING)
            self.lines: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record.getMessage())

    missing = []
    for url in urls:
        heard = Heard()
        logger = logging.getLogger("apprise")
        logger.addHandler(heard)
        logger.propagate = False
        scheme = url.partition("://")[0]
        try:
            service = apprise.Apprise()
            if not service.add(url):
                reason = "Apprise does not understand the address"
            elif service.notify(title=title, body=text):
                continue
            else:
                reason = "; ".join(heard.lines[-2:]) or "the service refused it"
        except Exception as error:  # of a plug-in: a notification that fails must not harm the run
            reason = f"{type(error).__name__}: {error}"
        finally:
            logger.removeHandler(heard)
        missing.append(f"not sent to {scheme}://…: {hidden(reason, [url])}")
    return missing


def hidden(text: str, urls: Sequence[str]) -> str:
    """The text without addresses, and without parts of them that may be secrets."""
    parts = {part for url in urls for part in re.split(r"[/:@?&=,]+", url.partition("://")[2]) if len(part) >= 6}
    return secrets.masked_text(secrets.without(text, [*urls, *sorted(parts, key=len, reverse=True)]))


def message(directory: Path, event: str, text: str = "") -> tuple[str, str]:
    """Title and text of the notification about an event of a run."""
    run = record.read(directory)
    where = f"job {os.environ.get('SLURM_JOB_ID', run.job_id)} on {os.uname().nodename.partition('.')[0]}"
    if event == "ended":
        ends = [item for item in lives.current(record.events(directory)) if item["event"] == "ended"]
        status = int(ends[-1]["status"]) if ends else 1
        state = "FAILED" if status else "COMPLETED"
        why = failures.explain(directory, state, status)
        return f"{run.name} {'failed' if status else 'ended'}", f"{why or 'It ended well.'}\n{where}"
    title = {"idle": f"{run.name} is idle", "paused": f"{run.name} is paused"}.get(event, f"{run.name}: {event}")
    return title, f"{text or title}\n{where}"


def unsent(directory: Path) -> str:
    """Why the last notification was not sent from the node; "" if all were."""
    try:
        lines = (directory / "log" / "notify.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def main(words: list[str]) -> int:
    """Send the notification that the batch script names. Returns 0 if all addresses were served, else 1."""
    directory = Path(os.environ["SPRITZ_RUN_DIR"])
    try:
        missing = send(addresses((), os.environ), *message(directory, words[0], " ".join(words[1:])))
    except ExperimentError as error:
        missing = [f"not sent: {error.message}"]
    for line in missing:
        print(f"{os.uname().nodename}: {line}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
