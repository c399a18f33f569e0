"""Where a row is played: its guests and networks, all gone behind the `with`, however it ends."""

import contextlib
import pathlib
import threading
import time

from tests.vm.guest import Card, Guest
from tests.vm.network import Cable, Switch


class Stage:
    """number: of the row, for names that meet nowhere. limit: seconds for all of it. build: folder that programs are
    from."""

    def __init__(self, folder, number, kernel, image, limit, build="build"):
        self.folder = pathlib.Path(folder) / f"row{number}"
        self.kernel, self.image, self.build = kernel, image, pathlib.Path(build)
        self.deadline = time.monotonic() + limit
        self._number, self._guests, self._cables, self._switches = number, [], 0, 0
        self._stack, self._lock = contextlib.ExitStack(), threading.Lock()

    def __enter__(self):
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Also by another thread, which ends the program."""
        with self._lock:
            for guest in self._guests:
                guest.end()
            self._stack.close()
            transcript = "\n".join(text for guest in self._guests for text in guest.said)
            with contextlib.suppress(FileNotFoundError):  # removed by then
                (self.folder / "transcript.log").write_text(transcript)

    # ---- What rows ask for

    def cable(self):
        self._cables += 1
        return Cable(self.folder, f"cable{self._cables}")

    def switch(self, mtu=9000):
        """Needs root."""
        self._switches += 1
        return self._stack.enter_context(Switch(f"vm{self._number}-{self._switches}", mtu))

    def prepare(self, cards=(), **options):
        """A guest that has not been started, as Guest has them; `guest.files` may be added to."""
        guest = Guest(f"g{len(self._guests)}", self.folder, options.pop("kernel", self.kernel),
                      options.pop("image", self.image), cards, deadline=self.deadline, **options)
        self._guests.append(guest)
        return guest

    def boot(self, *guests):
        """All at once."""
        for guest in guests:
            guest.start()
        for guest in guests:
            guest.attach()
        for guest in guests:
            guest.wait_until_up()

    def two_cards(self, model, options="", **more):
        """A guest that has two cards, joined by a cable."""
        cable = self.cable()
        return self.prepare([Card(model, end, options) for end in cable.ends], **more)
