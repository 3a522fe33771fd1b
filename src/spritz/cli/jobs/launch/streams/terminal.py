"""The user's terminal during --pty: switches it to raw mode, reads its size, and restores it.

Source: srun(1) --pty.
"""

from __future__ import annotations

import fcntl
import struct
import termios


class Terminal:
    """The terminal behind a descriptor. Raises OSError if the descriptor is not a terminal."""

    def __init__(self, descriptor: int) -> None:

        self._descriptor = descriptor
        self.rows, self.columns = self._size()
        self._saved: list[object] | None = None

    def _size(self) -> tuple[int, int]:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._descriptor, termios.TIOCGWINSZ, bytes(8)))
        return rows, columns

    def resized(self) -> tuple[int, int]:
        """The terminal's present size: (rows, columns)."""
        self.rows, self.columns = self._size()
        return self.rows, self.columns

    def make_raw(self) -> None:
        """Switch to raw mode, so that all keys reach the task, even Ctrl-C."""
        try:
            self._saved = termios.tcgetattr(self._descriptor)
        except termios.error:
            return
        # cfmakeraw(3)
        iflag, oflag, cflag, lflag, ispeed, ospeed, characters = self._saved
        assert isinstance(iflag, int), "termios gives numbers"
        assert isinstance(oflag, int), "termios gives numbers"
        assert isinstance(cflag, int), "termios gives numbers"
        assert isinstance(lflag, int), "termios gives numbers"
        iflag &= ~(
            termios.IGNBRK
            | termios.BRKINT
            | termios.PARMRK
            | termios.ISTRIP
            | termios.INLCR
            | termios.IGNCR
            | termios.ICRNL
            | termios.IXON
        )
        lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
        cflag = (cflag & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
        settings = [iflag, oflag & ~termios.OPOST, cflag, lflag, ispeed, ospeed, characters]
        termios.tcsetattr(self._descriptor, termios.TCSANOW, settings)  # type: ignore[arg-type]  # as tcgetattr gave it

    def restore(self) -> None:
        """Restore the original mode; does nothing if it was never changed."""
        saved, self._saved = self._saved, None
        if saved is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, saved)  # type: ignore[arg-type]  # as tcgetattr gave it
            except termios.error:
                pass  # the terminal is gone
