"""How any thread wakes the engine's."""

from __future__ import annotations

import os
import select


class Bell:
    """A pipe: ring() makes `descriptor` readable, hush() undoes it."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)
        self._poll = select.poll()  # select() has no descriptors from 1024 on
        self._poll.register(self.descriptor, select.POLLIN)

    def ring(self) -> None:
        """In any thread."""
        try:
            os.write(self._end, b"!")
        except BlockingIOError:
            pass  # it has been ringing for long

    def hush(self) -> None:
        """In the thread that waits."""
        try:
            os.read(self.descriptor, 4096)
        except BlockingIOError:
            pass

    def wait(self) -> None:
        """Until somebody rings."""
        self._poll.poll()
        self.hush()

    def close(self) -> None:
        """Nobody may ring it any more."""
        os.close(self.descriptor)
        os.close(self._end)
