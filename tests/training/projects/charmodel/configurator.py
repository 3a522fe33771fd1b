"""Settings by a file that is executed and by --name=value, as scripts do that take no library for it."""

import sys
from ast import literal_eval
from pathlib import Path

for word in sys.argv[1:]:
    if "=" not in word:
        exec(Path(word).read_text())
    else:
        name, _, text = word.removeprefix("--").partition("=")
        assert name in globals(), f"no such setting: {name}"
        try:
            globals()[name] = literal_eval(text)
        except (SyntaxError, ValueError):
            globals()[name] = text
