#!/usr/bin/python3
"""Tests the nftables rules that keep the kernel away from an accelerator's interfaces, and that make the kernel forward
packets when the accelerator is dead. Others may change or remove these rules."""

import argparse
import json
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time

from tests.scripts.accelerator import rig, traffic
from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE
from lab.net.spaces import run

wait_for = rings.wait_for
TABLE = "gradlane-glw0"


class Programs:
    """Runs `gradlane` on a host, with the configuration of the host's accelerator."""

    def __init__(self, hosts, bumps, gradlane):
        self.hosts, self.bumps, self.gradlane = hosts, bumps, gradlane

    def run(self, i, *words):
        command = self.hosts.command(i, self.gradlane, *words, "--config", str(self.bumps.config(i)))
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    def check(self, i, status, *patterns):
        """Runs `gradlane check` on host i and returns its output. The patterns must match the FAIL lines, one each, in
        order."""
        ended = self.run(i, "check", "--time", "300ms")
        failed = [line for line in ended.stdout.splitlines() if line.startswith("FAIL")]
        assert ended.returncode == status and len(failed) == len(patterns), f"{ended.returncode}: {ended.stdout}"
        for line, pattern in zip(failed, patterns):
            assert re.search(pattern, line), f"no '{pattern}': {line}"
        return ended.stdout


def take_wires_address(hosts, i):
    """Gives gl0 the MAC address of glw0, as `gradlane accelerator up` does. Without the nftables rules, the kernel
    would accept a frame to this address at both interfaces."""
    links = json.loads(hosts.node(i).ip("-j", "link"))
    (address,) = [link["address"] for link in links if link["ifname"] == "glw0"]
    hosts.node(i).ip("link", "set", "gl0", "address", address)


def tables(hosts, i):
    return hosts.node(i).run("nft", "list", "tables", "netdev").split("\n")


def has_table(hosts, i):
    return f"table netdev {TABLE}" in tables(hosts, i)


def flush(hosts, i):
    hosts.node(i).run("nft", "flush", "ruleset")


def receive_all(sock, count, patience):
    """Returns the first `count` datagrams that arrive, or fewer if none arrives for `patience` seconds."""
    got = []
    while len(got) < count and select.select([sock], [], [], patience)[0]:
        got.append(sock.recv(65536))
    return got


def check_once(hosts, bumps, what):
    """Asserts that marked datagrams and a marked stream arrive once and within the codec's bound. The stream is
    compressed."""
    bumps.warm(0, 1)
    values = traffic.laplace(100 * 300).reshape(100, 300)
    with (hosts.socket(1, traffic.socket.SOCK_DGRAM) as receiver, hosts.socket(0, traffic.socket.SOCK_DGRAM) as sender):
        receiver.bind((rig.address(1), 0))
        receiver.setsockopt(traffic.socket.SOL_SOCKET, traffic.SO_RCVBUFFORCE, 1 << 22)
        traffic.mark(sender, traffic.MARK)
        for value in values:
            sender.sendto(value.tobytes(), receiver.getsockname())
            time.sleep(0.001)
        got = receive_all(receiver, len(values), rig.PATIENCE) + receive_all(receiver, 1, 0.3)
    assert len(got) == len(values), f"{what}: {len(got)} datagrams of {len(values)}, of {sorted(set(map(len, got)))} bytes"
    for value, payload in zip(values, got):
        traffic.check_floats(value, payload, what=what)
    stream = traffic.laplace(300_000)
    pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
    received = traffic.Transfer(*pair, stream.tobytes(), what=what).finish()
    traffic.close(pair)
    assert traffic.check_floats(stream, received, what=what) > 0, f"{what}: nothing was compressed"


def no_rule(hosts, bumps, programs):
    """Checks that no user has to write nftables rules. If the rules are removed, datagrams still arrive once, and the
    daemon restores the rules. Even root cannot delete the table that matters (`TABLE`-held)."""
    check_once(hosts, bumps, "no rules by hand")
    programs.check(1, 0)
    flush(hosts, 1)
    check_once(hosts, bumps, "all rules removed")
    wait_for(lambda: has_table(hosts, 1), "the table is there again")
    assert f"table netdev {TABLE} of nftables was removed or changed: repaired" in bumps.log(1), bumps.log(1)
    denied = subprocess.run(hosts.command(1, "nft", "delete", "table", "netdev", f"{TABLE}-held"),
                            capture_output=True, text=True, timeout=PATIENCE)
    assert denied.returncode != 0 and "not permitted" in denied.stderr, denied
    # Other tables with rules for the same interface change nothing, whatever their priority.
    hosts.node(1).run("nft", "-f", "-", stdin="""table netdev another {
 chain early { type filter hook ingress device "glw0" priority -600; policy accept; }
 chain late { type filter hook ingress device "glw0" priority 100; policy accept; }
}
""")
    check_once(hosts, bumps, "rules of others")
    programs.check(1, 0)


def renamed(hosts, bumps, programs):
    """Gives an interface another name while it is used, and then its old name."""
    hosts.node(1).ip("link", "set", "glw0", "name", "wan0")
    wait_for(lambda: "was renamed: repaired" in bumps.log(1), "the new name is noticed")
    check_once(hosts, bumps, "another name")
    hosts.node(1).ip("link", "set", "wan0", "name", "glw0")
    wait_for(lambda: bumps.log(1).count("was renamed: repaired") == 2, "the old name is noticed")
    check_once(hosts, bumps, "the old name")
    programs.check(1, 0)


def second(hosts, bumps, programs):
    """Starts another accelerator with the same interfaces. It is refused, and the first one continues."""
    other = bumps.folder / "other.yaml"
    other.write_text(bumps.config(1).read_text().replace("n1.admin", "other.admin"))
    ended = subprocess.run(hosts.command(1, bumps.gradlaned, "--config", other), capture_output=True, text=True,
                           timeout=PATIENCE)
    assert ended.returncode == 2 and "another accelerator uses glw0 and gla0" in ended.stderr, ended
    assert str(bumps.processes[1].pid) in ended.stderr, ended.stderr
    check_once(hosts, bumps, "beside a second one")


def killed(hosts, bumps, programs):
    """Kills the accelerator of host 1. The host's network works without it, and a marked stream continues. No
    compressed packet reaches programs."""
    bumps.warm(0, 1)
    values = traffic.laplace(400_000)
    pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
    stream = traffic.Transfer(*pair, values.tobytes(), read=8192, what="killed",
                              pause=lambda received: time.sleep(0.003))
    wait_for(lambda: len(stream.received) > values.nbytes // 10, "the stream runs")
    payload = traffic.laplace(300)
    with (hosts.socket(1, traffic.socket.SOCK_DGRAM) as receiver, hosts.socket(0, traffic.socket.SOCK_DGRAM) as sender):
        receiver.bind((rig.address(1), 0))
        traffic.mark(sender, traffic.MARK)
        bumps.kill(1)
        died = time.monotonic()
        ping = hosts.command(0, "ping", "-c", "1", "-W", "1", rig.address(1))
        wait_for(lambda: subprocess.run(ping, capture_output=True, timeout=PATIENCE).returncode == 0, "a ping passes")
        print(f"a ping passes {time.monotonic() - died:.2f} s after the accelerator died", flush=True)
        programs.check(1, 1, r"^FAIL daemon: no accelerator runs on \S*n1.admin \(the last one died\): the kernel forwards packets "
                             r"between glw0 and gla0, so the host sends uncompressed; compressed packets for this host are "
                             r"dropped; gradlaned --config \S*$")
        exact = []

        def uncompressed():
            sender.sendto(payload.tobytes(), receiver.getsockname())
            time.sleep(0.01)
            got = receive_all(receiver, 1, 0)
            for each in got:
                traffic.check_floats(payload, each, what="a datagram after the death")
            exact.extend(each for each in got if each == payload.tobytes())
            return len(exact) > 10

        wait_for(uncompressed, "marked datagrams pass uncompressed")
    assert traffic.check_floats(values, stream.finish(), what="the stream") > 0
    traffic.close(pair)
    # Traffic that host 1 marks itself leaves uncompressed.
    pair = traffic.connect(hosts, 1, 0, tos=traffic.MARK)
    traffic.Transfer(*pair, values.tobytes(), what="from the dead one's host").check_exact()
    traffic.close(pair)
    # Without the table, nothing joins glw0 and gla0.
    flush(hosts, 1)
    programs.check(1, 1, r"^FAIL daemon: no accelerator runs .* no packets pass between glw0 and gla0 without it: the host has no "
                         r"network over gl0; gradlaned --config \S*; or, for a network without it, gradlane accelerator up --config")
    assert programs.run(1, "accelerator", "up").returncode == 0
    wait_for(lambda: subprocess.run(ping, capture_output=True, timeout=PATIENCE).returncode == 0, "a ping passes")
    bumps.start_node(1)
    bumps.wait_up()
    check_once(hosts, bumps, "another one")


def stopped(hosts, bumps, programs):
    """Ends the accelerator by SIGTERM and starts it again. In between no packet is lost, and the start duplicates none.
    """
    assert bumps.terminate(1) == 0
    ping = hosts.command(0, "ping", "-c", "20", "-i", "0.05", "-W", "30", rig.address(1))
    text = run(*ping)
    assert " 0% packet loss" in text and "duplicates" not in text, text
    programs.check(1, 1, r"^FAIL daemon: no accelerator runs on \S*n1.admin: the kernel forwards packets between")
    ping = hosts.process(0, "ping", "-c", "100", "-i", "0.02", "-W", "30", rig.address(1))
    bumps.start_node(1)
    text = ping.communicate(timeout=PATIENCE)[0]
    assert "DUP" not in text and "duplicates" not in text, text
    bumps.wait_up()


def nobody(hosts, bumps, programs):
    """Runs the accelerator as a user without rights, who cannot fix its rules. The log repeats the error until
    `gradlane accelerator up` fixes them."""
    assert bumps.terminate(1) == 0
    bumps.configure(1, user="nobody")
    bumps.folder.chmod(0o777)
    bumps.start_node(1)
    bumps.wait_up()
    programs.check(1, 0)
    flush(hosts, 1)
    words = f"error table netdev {TABLE} of nftables was removed or changed, and this process cannot repair it"
    wait_for(lambda: words in bumps.log(1), "the log says it")
    check_once(hosts, bumps, "without the table")
    programs.check(1, 1, rf"^FAIL accelerator: table netdev {TABLE} of nftables was removed or changed, .*Operation not "
                         r"permitted.*: run gradlane accelerator up --config \S*n1.yaml$")
    assert bumps.stats(1)["kernel"] == {"kept_off": True, "bypass": False}, bumps.stats(1)["kernel"]
    assert "  WRONG: table netdev" in programs.run(1, "stats").stdout
    wait_for(lambda: bumps.log(1).count(words) > 1, "the log says it again")
    assert programs.run(1, "accelerator", "up").returncode == 0
    wait_for(lambda: bumps.stats(1)["kernel"] == {"kept_off": True, "bypass": True}, "it sees the table")
    programs.check(1, 0)
    assert bumps.terminate(1) == 0
    bumps.configure(1)
    bumps.start_node(1)
    bumps.wait_up()


def gone(hosts, bumps, programs):
    """Deletes the interface of the wire. The accelerator ends with status 3, so that a supervisor starts it again."""
    hosts.node(1).ip("link", "del", "glw0")
    assert bumps.processes[1].wait(PATIENCE) == 3, bumps.log(1)
    assert "interface glw0 is gone: it was deleted" in bumps.log(1), bumps.log(1)
    bumps.processes[1] = None
    programs.check(1, 1, "^FAIL interface glw0 of port wire: there is no such interface",
                   "^FAIL daemon: no accelerator runs .*: the interfaces are not set up; gradlane accelerator up --config")


# gone() must be the last case, because it deletes an interface.
CASES = (no_rule, renamed, second, killed, stopped, nobody, gone)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    parser.add_argument("only", nargs="*", help="names of cases")
    args = parser.parse_args()
    networks.require("ping")
    with (tempfile.TemporaryDirectory() as name, rig.Hosts() as hosts,
          rig.Bumps(hosts, pathlib.Path(name), args.gradlaned) as bumps):
        programs = Programs(hosts, bumps, args.gradlane)
        for i in range(2):
            take_wires_address(hosts, i)
        bumps.start().wait_up()
        for case in CASES:
            if args.only and case.__name__ not in args.only:
                continue
            begin = time.monotonic()
            case(hosts, bumps, programs)
            print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    print("the kernel is kept off, and there when it is needed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
