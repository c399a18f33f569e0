"""Networks for the cards of guests: direct connections from one card to another, and switches."""

from lab.net.spaces import Spaces


class Cable:
    """A direct connection of two cards, of one guest or two. `ends` has one end for each card.

    Its sockets are in the folder of the row.
    """

    def __init__(self, folder, name):
        places = [f"{folder}/{name}-{side}" for side in "ab"]
        self.ends = [_End(*places), _End(*reversed(places))]


class _End:
    def __init__(self, here, there):
        self._here, self._there = here, there

    def netdev(self, name):
        return (f"dgram,id={name},local.type=unix,local.path={self._here},"
                f"remote.type=unix,remote.path={self._there}")


class Switch:
    """A bridge of this machine's kernel in a namespace of its own, where QEMU must run too. A port has as many queues
    as its card. Needs root.

        with Switch("r1", mtu=9000) as switch:
            Card("virtio-net-pci", switch.port(queues=2), "mq=on,vectors=6")
            switch.space.run("tc", "qdisc", "add", "dev", "port0", "root", "netem", "loss", "1%")
    """

    def __init__(self, label, mtu=9000):
        self._spaces, self._label, self._mtu, self._ports = Spaces(), label, mtu, 0
        self.space = None

    def __enter__(self):
        self._spaces.__enter__()
        try:
            self.space = self._spaces.add(self._label)
            self.space.bridge("br0", self._mtu)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._spaces.__exit__()

    def port(self, queues=1):
        name = f"port{self._ports}"
        self._ports += 1
        multiple = ["multi_queue"] if queues > 1 else []
        self.space.ip("tuntap", "add", "dev", name, "mode", "tap", *multiple)
        self.space.ip("link", "set", name, "mtu", self._mtu, "master", "br0", "up")
        return _Tap(name, queues)


class _Tap:
    def __init__(self, interface, queues):
        self._interface, self._queues = interface, queues

    def netdev(self, name):
        queues = f",queues={self._queues}" if self._queues > 1 else ""
        return f"tap,id={name},ifname={self._interface},script=no,downscript=no,vhost=off{queues}"
