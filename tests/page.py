"""A page by HTTP from another network namespace, by a command that runs there: no machine needs curl."""

from __future__ import annotations

import sys

_SCRIPT = """\
import ssl, sys, urllib.error, urllib.request
url, body, *headers = sys.argv[1:]
data = open(body, "rb").read() if body else None
request = urllib.request.Request(url, data, dict(header.split(": ", 1) for header in headers))
context = ssl._create_unverified_context() if url.startswith("https") else None
try:
    answer = urllib.request.urlopen(request, timeout=20, context=context)
except urllib.error.HTTPError as error:
    answer = error
except OSError:
    print(0)
    sys.exit()
print(answer.status)
sys.stdout.write(answer.read().decode())
"""


def page_command(url: str, *headers: str, body: str = "") -> list[str]:
    """The command line; `body`: a file to send. `page_of` reads what it prints."""
    return [sys.executable, "-c", _SCRIPT, url, body, *headers]


def page_of(printed: str) -> tuple[int, str]:
    """Status and text; (0, "") if nothing serves."""
    status, _, text = printed.partition("\n")
    return int(status or 0), text
