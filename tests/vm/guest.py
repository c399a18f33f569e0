"""One guest: QEMU in software emulation, with cards behind an emulated IOMMU.

    with Guest("g0", folder, kernel, image, [Card("e1000e", cable)]) as guest:
        print(guest.run("uname -a").output)
        guest.monitor("set_link", name="card0", up=False)

Scripts go in and their output comes out through a serial line of their own. The kernel's console is another line. QEMU
ends with this process, however that ends.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import socket
import subprocess
import time
import typing

from tests.vm.archive import Archive
from tests.vm.kernels import Missing

QEMU = "qemu-system-x86_64"
BOOT = 240  # seconds at most; a boot takes 7, or minutes where a dozen guests share two CPUs
CONSOLE_LINES = 15  # number of lines of a failed guest's console that an error shows
# The kernel is built so that vfio needs an IOMMU. A panic ends QEMU. `no_timer_check` skips a check that the timer
# ticks, which may fail on a busy machine.
ARGUMENTS = "console=ttyS0 panic=-1 quiet no_timer_check intel_iommu=on iommu=pt"


class GuestFailed(AssertionError):
    """Raised if a guest hangs or ends (with the end of its console), or if a script in it fails (with its output)."""


@dataclasses.dataclass
class Card:
    """A network card. `cable` is one end of a Cable, or a port of a Switch.

    `options` has further properties of QEMU's device. An empty `mac` stands for mac_of(). `near` is the guest's NUMA
    node to which the card is connected.
    """

    model: str
    cable: object
    options: str = ""
    mac: str = ""
    near: typing.Optional[int] = None


@dataclasses.dataclass
class Result:
    status: int
    output: str


class Guest:
    """A guest with these cards. `files` is {path in the guest: content}. `arguments` has further arguments of the
    kernel.

    `space` is the namespace in which QEMU must run to reach its network. `qemu` is the command line of another QEMU
    program, `extra` further arguments of QEMU. `deadline` is the value of time.monotonic() at which all scripts must
    have ended.
    """

    def __init__(self, name, folder, kernel, image, cards=(), files=None, cpu="max", cpus=2, memory=1024, iommu=True,
                 arguments="", extra=(), qemu=(QEMU,), space=None, deadline=None):
        self.name, self.kernel, self.cards = name, kernel, list(cards)
        self.folder = pathlib.Path(folder) / name
        self.deadline = deadline or time.monotonic() + 600
        self._cpu, self._cpus, self._memory, self._iommu = cpu, cpus, memory, iommu
        self._arguments, self._extra, self._space = arguments, list(extra), space
        self._image, self._qemu, self.files = image, list(qemu), dict(files or {})
        self._process = self._line = self._monitor = None
        self._number, self._received = 0, b""
        self.said = []  # every script with its output

    # ---- Start and end

    def __enter__(self):
        try:
            self.start()
            self.wait_until_up()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        """Starts QEMU, and does not wait for the guest. To boot several guests at once, attach to all before waiting
        for any."""
        if not shutil.which(self._qemu[0]):
            raise Missing(f"no {self._qemu[0]}; lab/vm-test.sh installs it")
        self.folder.mkdir(parents=True, exist_ok=True)
        files = Archive()
        for path, content in self.files.items():
            files.text(f"files/{path.strip('/')}", content, 0o600)
        with open(self.folder / "initramfs", "wb") as initramfs:
            with open(self._image, "rb") as image:
                shutil.copyfileobj(image, initramfs)
            initramfs.write(files.data())
        command = ["setpriv", "--pdeathsig", "KILL", "--", *self._command()]
        if self._space:
            command = self._space.command(*command)
        with open(self.folder / "qemu.log", "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True)  # Ctrl-C must reach this process only

    def attach(self):
        """Connects to the monitor and to the serial line. Earlier output of the guest is lost."""
        self._monitor = _Monitor(self._connect("monitor"))
        self._line, self._received = self._connect("line"), b""

    def wait_until_up(self):
        if self._line is None:
            self.attach()
        self._read_until(b"@lab ready\n", min(self.deadline, time.monotonic() + BOOT), "start")
        if self.files:
            self.run("cp -a /files/. /", timeout=60)

    def end(self):
        """Ends the guest at once, as if its power were cut."""
        for connection in (self._line, self._monitor):
            if connection:
                connection.close()
        self._line = self._monitor = None
        if self._process and self._process.poll() is None:
            self._process.kill()
        if self._process:
            self._process.wait()
        (self.folder / "initramfs").unlink(missing_ok=True)

    def wait_for_end(self, seconds):
        """Waits for the end of a guest that switches itself off."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failed("it does not switch itself off") from None

    @property
    def pid(self):
        return self._process.pid

    def runs(self):
        return self._process is not None and self._process.poll() is None

    # ---- Scripts and commands

    def run(self, script, timeout=120, check=True):
        """Runs a script in busybox's shell, with the functions of inside/lab.sh. Returns its exit status and its
        output.

        Raises GuestFailed if the script does not end in time, or with `check` if its exit status is not 0.
        """
        self._number += 1
        data = script.encode() + b"\n"
        self._send(b"%d %d\n" % (self._number, len(data)) + data)
        until = min(self.deadline, time.monotonic() + timeout)
        output = self._read_until(b"\n@lab %d " % self._number, until, f"'{script.strip().splitlines()[0]}'")
        status = int(self._read_until(b"\n", until, "an exit status"))
        text = output.decode(errors="replace").replace("\r", "")
        self.said.append(f"{self.name}> {script}\n{text}[{status}]\n")
        if check and status != 0:
            raise GuestFailed(f"{self.name}: '{script.strip().splitlines()[0]}' ended with {status}: {text.strip()[-2000:]}")
        return Result(status, text)

    def read(self, path):
        """Returns the content of a text file in the guest."""
        return self.run(f"cat '{path}'").output

    def monitor(self, command, **arguments):
        """Runs a command of QEMU's monitor (QMP): set_link, device_del, stop, cont, ..."""
        return self._monitor.execute(command, arguments)

    def put_in(self, number):
        """Puts a card that was taken out (device_del) into its slot again."""
        card = self.cards[number]
        options = dict(option.split("=") for option in card.options.split(",") if option)
        self.monitor("device_add", driver=card.model, id=f"card{number}", netdev=f"cable{number}", bus=f"slot{number}",
                     mac=card.mac or mac_of(self.name, number), **options)

    def console(self):
        """Returns all output of the kernel's console and of QEMU."""
        texts = [path.read_text(errors="replace") for path in (self.folder / "console.log", self.folder / "qemu.log")
                 if path.exists()]
        return "\n".join(texts).replace("\r", "")

    def address(self, number):
        """Returns the address of a card on the PCI bus."""
        if self.cards[number].near is not None:
            return f"0000:{_host_bus(number) + 1:02x}:00.0"
        return "0000:" + (f"00:{16 + number:02x}.0" if _is_old(self.cards[number]) else f"{self._bus(number):02x}:00.0")

    # ---- Private

    def _bus(self, number):
        return 1 + sum(not _is_old(card) and card.near is None for card in self.cards[:number])

    def _command(self):
        machine = "q35,kernel-irqchip=split" if self._iommu else "q35"
        words = [*self._qemu, "-M", machine, "-accel", "tcg,thread=multi", "-cpu", self._cpu, "-smp", str(self._cpus),
                 "-m", str(self._memory), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                 "-kernel", str(self.kernel.image), "-initrd", str(self.folder / "initramfs"),
                 "-append", f"{ARGUMENTS} {self._arguments}",
                 "-serial", f"file:{self.folder}/console.log",
                 "-serial", f"unix:{self.folder}/line,server=on,wait=off",
                 "-qmp", f"unix:{self.folder}/monitor,server=on,wait=off"]
        if self._iommu:
            words += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
        for number, card in enumerate(self.cards):
            words += self._card(number, card)
        return words + self._extra

    def _card(self, number, card):
        """Returns QEMU's arguments for a card behind a port of its own, like a card in a slot. Cards older than PCI
        Express have no port."""
        place = f"addr={16 + number:#x}"
        port = []
        # the card is behind a host bridge of its own, because nothing else tells the guest the NUMA node of a card
        if card.near is not None:
            port = ["-device", f"pxb-pcie,id=host{number},bus_nr={_host_bus(number)},bus=pcie.0,numa_node={card.near},{place}"]
            place = f"bus=host{number},addr=0"
        if not _is_old(card):
            port += ["-device", f"pcie-root-port,id=slot{number},chassis={number + 1},slot={number + 1},{place}"]
            place = f"bus=slot{number}"
        mac = card.mac or mac_of(self.name, number)
        device = f"{card.model},id=card{number},netdev=cable{number},mac={mac},{place}"
        if card.options:
            device += f",{card.options}"
        return ["-netdev", card.cable.netdev(f"cable{number}"), *port, "-device", device]

    def _connect(self, name):
        path, end = self.folder / name, time.monotonic() + 30
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
                return connection
            except OSError:
                connection.close()
                if not self.runs() or time.monotonic() > end:
                    raise self._failed("QEMU does not start")
                time.sleep(0.02)

    def _send(self, data):
        try:
            self._line.sendall(data)
        except OSError:
            raise self._failed("QEMU has ended") from None

    def _read_until(self, mark, until, what):
        while mark not in self._received:
            left = until - time.monotonic()
            if left <= 0:
                raise self._failed(f"no end of {what} in time; so far: {_tail(self._received.decode(errors='replace'))}")
            self._line.settimeout(min(left, 1.0))
            try:
                data = self._line.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                raise self._failed(f"QEMU has ended in {what}")
            self._received += data
        before, self._received = self._received.split(mark, 1)
        return before

    def _failed(self, text):
        status = None
        if self._process:
            try:
                status = self._process.wait(2 if "QEMU" in text else 0)
            except subprocess.TimeoutExpired:
                pass
        ended = "" if status is None else f" (status {status})"
        panic = re.search(r"Kernel panic.*", self.console())
        if panic:
            ended += f": {panic[0]}"
        return GuestFailed(f"{self.name}: {text}{ended}; the end of its console:\n{_tail(self.console())}")


class _Monitor:
    def __init__(self, connection):
        self._connection = connection
        connection.settimeout(30)
        self._lines = connection.makefile("r")
        self.events = []
        self._lines.readline()  # the greeting
        self.execute("qmp_capabilities", {})

    def execute(self, command, arguments):
        try:
            self._connection.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
            for line in self._lines:
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise GuestFailed(f"monitor: {command}: {answer['error']['desc']}")
                self.events.append(answer)
        except OSError as error:
            raise GuestFailed(f"monitor: {command}: {error}") from None
        raise GuestFailed(f"monitor: {command}: QEMU has ended")

    def close(self):
        self._lines.close()
        self._connection.close()


def mac_of(name, number):
    """Returns a MAC address, which is different for all cards of a row."""
    return f"52:54:00:00:{sum(name.encode()) & 255:02x}:{number + 1:02x}"


def _host_bus(number):
    return 64 + 16 * number


def _is_old(card):
    return card.model.startswith("e1000") and not card.model.startswith("e1000e")


def _tail(text):
    return "\n".join(text.splitlines()[-CONSOLE_LINES:])
