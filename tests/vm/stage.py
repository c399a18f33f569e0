"""The place where a row is played: its guests and networks, which are gone after the `with`, however it ends."""

import contextlib
import pathlib
import threading
import time

from tests.vm.guest import Card, Guest
from tests.vm.network import Cable, Switch


class Stage:
    """`number` is that of the row, which makes names unique. `limit` is in seconds, for the whole row. `build` is the
    folder with the programs."""

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
        """Ends all guests and networks. Another thread, which ends the program, may call this too."""
        with self._lock:
            for guest in self._guests:
                guest.end()
            self._stack.close()
            transcript = "\n".join(text for guest in self._guests for text in guest.said)
            with contextlib.suppress(FileNotFoundError):  # the folder has been removed by then
                (self.folder / "transcript.log").write_text(transcript)

    # ---- For rows

    def cable(self):
        self._cables += 1
        return Cable(self.folder, f"cable{self._cables}")

    def switch(self, mtu=9000):
        """Adds a switch. Needs root."""
        self._switches += 1
        return self._stack.enter_context(Switch(f"vm{self._number}-{self._switches}", mtu))

    def prepare(self, cards=(), **options):
        """Returns a guest that has not been started. `options` are those of Guest. Files may be added to `guest.files`.
        """
        guest = Guest(f"g{len(self._guests)}", self.folder, options.pop("kernel", self.kernel),
                      options.pop("image", self.image), cards, deadline=self.deadline, **options)
        self._guests.append(guest)
        return guest

    def boot(self, *guests):
        """Boots these guests, all at once."""
        for guest in guests:
            guest.start()
        for guest in guests:
            guest.attach()
        for guest in guests:
            guest.wait_until_up()

    def two_cards(self, model, options="", **more):
        """Returns a guest with two cards that are connected to each other."""
        cable = self.cable()
        return self.prepare([Card(model, end, options) for end in cable.ends], **more)
