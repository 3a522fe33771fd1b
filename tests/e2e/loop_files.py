"""Runs a daemon and notes each file that the loop's thread opens: `python loop_files.py MODULE DIRECTORY ARGUMENT…`.

Counts while DIRECTORY/count exists. When that is gone again, DIRECTORY/MODULE.json has what was opened: a list of the
path, or what was done, and the innermost places of our code.
"""

from __future__ import annotations

import importlib
import json
import os
import ssl
import sys
import threading
import time
from types import FrameType
from typing import Any

#: What Python tells its audit hooks of files. (os.stat tells nothing.)
EVENTS = {"open", "import", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}
EVENTS |= {"os.chmod", "os.chown", "os.link", "os.symlink", "shutil.rmtree", "glob.glob", "sqlite3.connect"}
EVENTS |= {"subprocess.Popen"}


def main() -> None:
    module, directory, *arguments = sys.argv[1:]
    loop, opened, counts = threading.get_ident(), list[tuple[str, str]](), [False]

    def hook(event: str, values: tuple[object, ...]) -> None:
        if counts[0] and event in EVENTS and threading.get_ident() == loop:
            frame: FrameType | None = sys._getframe(1)
            places: list[str] = []
            while frame is not None and len(places) < 5:
                if "/spritz/" in frame.f_code.co_filename:
                    file = frame.f_code.co_filename.rpartition("/spritz/")[2]
                    places.append(f"{file}:{frame.f_code.co_name}")
                frame = frame.f_back
            opened.append((f"{event} {values[0] if values else ''}", " < ".join(places)))

    def watch() -> None:
        while not os.path.exists(f"{directory}/count"):
            time.sleep(0.01)
        counts[0] = True
        while os.path.exists(f"{directory}/count"):
            time.sleep(0.01)
        counts[0] = False
        with open(f"{directory}/{module}.new", "w") as file:
            json.dump(opened, file)
        os.rename(f"{directory}/{module}.new", f"{directory}/{module}.json")

    load = ssl.SSLContext.load_cert_chain

    def load_cert_chain(context: ssl.SSLContext, *values: Any) -> None:
        hook("open", ("a certificate's key by OpenSSL", *values))  # C, of which no hook is told
        load(context, *values)

    ssl.SSLContext.load_cert_chain = load_cert_chain  # type: ignore[assignment,method-assign]  # as above
    sys.addaudithook(hook)
    threading.Thread(target=watch, daemon=True).start()
    sys.argv[1:] = arguments
    importlib.import_module(module).entry()


if __name__ == "__main__":
    main()
