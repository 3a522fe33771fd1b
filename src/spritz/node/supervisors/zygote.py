"""The daemon's connection to its zygote: the warm parent that supervisors are forked from. Source: `stepd.zygote`."""

from __future__ import annotations

import os
import resource
import socket
import subprocess

from spritz import installed


class Zygote:
    """Starts the process on first use, and again after its death. `log_descriptor` gets its error output.

    `files_limit` is the RLIMIT_NOFILE that it and all tasks get (None: the daemon's own). `own_namespaces`: tasks get
    names of their own (`stepd.tasks.namespaces`).
    """

    def __init__(
        self,
        log_descriptor: int | None = None,
        files_limit: tuple[int, int] | None = None,
        *,
        own_namespaces: bool = False,
    ) -> None:
        self._own_namespaces = own_namespaces
        self._log_descriptor = log_descriptor
        self._files_limit = files_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The zygote's process id; 0 before it runs."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it unless it runs. Raises OSError."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A zygote that does not read is a machine short of something: the step is put off (EAGAIN).
        ours.setblocking(False)
        # -P: no module of ours may come from the directory that we happen to be started in.
        options = ("user-namespace",) if self._own_namespaces and os.geteuid() != 0 else ()
        command = installed.python("spritz.stepd", str(theirs.fileno()), *options)
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log_descriptor,
            start_new_session=True,
            cwd="/",
        )
        if self._files_limit is not None:
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._files_limit)
        theirs.close()
        self._requests = ours

    def launch(self, directory: str) -> socket.socket:
        """Fork a supervisor for the step in `directory`. Returns our end of its connection. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            self._ask(directory, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return ours

    def _ask(self, directory: str, connection: socket.socket) -> None:
        body = os.fsencode(directory)
        for _ in range(2):
            self.start()
            assert self._requests is not None
            try:
                socket.send_fds(self._requests, [body], [connection.fileno()])
                return
            except (BrokenPipeError, ConnectionResetError):
                self.close()  # it was killed: a new one is started
        raise BrokenPipeError("the parent of step supervisors does not stay alive")

    def close(self) -> None:
        """End the zygote; supervisors that it forked continue."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
