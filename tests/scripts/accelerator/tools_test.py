#!/usr/bin/python3
"""Tests `gradlane check` and `gradlane stats` with accelerators. A fake daemon gives the answers that each test needs.

Usage: tools_test.py GRADLANE GRADLANED
"""

import copy
import json
import os
import re
import signal
import subprocess

from tests.scripts.accelerator.told_daemon import BINARIES, DOCUMENT, ToolsTest, changed, main, peer
from tests.scripts.fixtures.waiting import PATIENCE, wait_for


class CheckTest(ToolsTest):
    def test_in_order(self):
        with self.daemon(DOCUMENT) as daemon:
            self.check(0, "^ok   configuration .*: accelerator, host net_tap0,iface=gl0, wire net_af_packet0",
                       "^note daemon: asked the running daemon, process 1752", "^ok   link of port host: up",
                       "^ok   link of port wire: up",
                       r"^ok   10\.77\.0\.2: an accelerator answers; 8000 packets went there compressed",
                       "^note interface glnone of port wire: not in this network namespace")
            self.assertEqual(daemon.requests, [b"stats\n"])

    def test_nobody_answers(self):
        silent = changed(peers=peer("silent"), advice=["10.77.0.2: marked traffic is sent uncompressed, what else"],
                         advice_about=["peer"])
        with self.daemon(silent):
            lines = self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) is sent there uncompressed: no "
                               r"accelerator answers; start an accelerator there with udp_port: 18400 and tos: "
                               r"\{wire: 0x30\}, .*")
            self.assertEqual(len([line for line in lines if "10.77.0.2" in line]), 1, "told once")

    def test_asked_until_it_is_known(self):
        with self.daemon(changed(peers=peer("asked")), changed(peers=peer("asked")), DOCUMENT) as daemon:
            self.check(0, r"^ok   10\.77\.0\.2: an accelerator answers")
            self.assertEqual(len(daemon.requests), 3)

    def test_asked_in_vain(self):
        with self.daemon(changed(peers=peer("asked"))) as daemon:
            self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic \(ToS 0x28\) is sent there uncompressed")
            self.assertGreater(len(daemon.requests), 1)

    def test_nothing_is_sent_any_more(self):
        """Checks a peer without recent marked traffic. The daemon does not ask such a peer, so `gradlane check` knows
        nothing about it and reports no failure."""
        for state in ("silent", "asked"):
            with self.daemon(changed(peers=peer(state, ago=60.5))) as daemon:
                self.check(0, r"^note 10\.77\.0\.2: no marked traffic went there lately")
                self.assertEqual(len(daemon.requests), 1)
            self.admin.unlink()
        with self.daemon(changed(peers=peer("silent", ago=59.5))):
            self.check(1, r"^FAIL 10\.77\.0\.2: marked traffic")

    def test_nothing_is_sent(self):
        with self.daemon(changed(peers=peer("silent", uncompressed=0))):
            self.check(0, r"^note 10\.77\.0\.2: no accelerator answers there, and no marked traffic")
        self.admin.unlink()
        with self.daemon(changed(peers=[])):
            self.check(0, "^note peers: this machine sent no marked traffic")

    def test_the_kernel(self):
        with self.daemon(DOCUMENT):
            self.check(0, "^ok   the kernel does not process packets of glnone$",
                       "^ok   without gradlaned no packets pass$")
        self.admin.unlink()
        wrong = changed(kernel={"kept_off": False, "bypass": False}, advice=["the kernel is not kept off"],
                        advice_about=["kernel"])
        with self.daemon(wrong):
            lines = self.check(1, "^FAIL accelerator: the kernel is not kept off$")
            self.assertFalse([line for line in lines if line.startswith("ok   ") and "kernel does not process" in line])

    def test_what_the_daemon_says(self):
        with self.daemon(changed(advice=["7 packets longer than the MTU were dropped: ethtool -K gl0 tx off"],
                                 advice_about=["packets"])):
            self.check(1, "^FAIL accelerator: 7 packets longer than the MTU were dropped: ethtool -K gl0 tx off$")
        self.admin.unlink()
        down = copy.deepcopy(DOCUMENT)
        down["ports"]["wire"]["link_up"] = False
        with self.daemon(down):
            self.check(1, "^FAIL link of port wire: down")
        self.admin.unlink()
        with self.daemon(changed(counters={"wire_dropped": 5, "bundle_bad_checksum": 3, "bundle_not_ours": 2})):
            self.check(0, "^note packets from the wire: 5 .*dropped: bad_checksum 3, not_ours 2;")

    def test_other_configuration(self):
        with self.daemon(changed(config={"codec": "fixed:8", "mtu": 9000})):
            self.check(1, "^FAIL daemon: the running daemon has other settings than this file: codec is \"fixed:8\" in the "
                       "daemon and \"fixed:10\" in the file, mtu is 9000 in the daemon and 1500 in the file; restart the daemon")

    def test_documents_of_all_sorts(self):
        for document, pattern in (({"node": 0}, "^FAIL daemon: the daemon on .* is not an accelerator"),
                                  ({"error": "no"}, "^FAIL daemon: the daemon does not answer 'stats'"),
                                  ([], "^FAIL daemon: the answer on .* is incomplete, or does not come from a gradlane daemon")):
            with self.daemon(document):
                self.check(1, pattern)
            self.admin.unlink()
        for part in DOCUMENT:
            for value in (None, 7, "x", [], {}, [3], {"a": 1}):
                if part == "mode":
                    continue
                with self.daemon(changed(**{part: value}) if part not in ("counters", "config")
                                 else {**DOCUMENT, part: value}):
                    self.check(0, "^note daemon: asked")
                    for options in ([], ["--all"]):
                        ended = self.run_program("gradlane", "stats", "--admin", self.admin, *options)
                        self.assertEqual((ended.returncode, ended.stderr), (0, ""), (part, value))
                self.admin.unlink()

    def test_json(self):
        with self.daemon(changed(peers=peer("silent"))):
            ended = self.run_program("gradlane", "check", "--config", self.config, "--json")
        self.assertEqual(ended.returncode, 1)
        document = json.loads(ended.stdout)
        self.assertFalse(document["ok"])
        self.assertEqual([item["what"] for item in document["items"] if item["verdict"] == "FAIL"], ["10.77.0.2"])
        self.assertEqual(document["daemon"]["pid"], 1752)

    def test_no_daemon(self):
        self.check(1, "^FAIL daemon: no accelerator runs on .*/a.admin: no packets pass between host and wire without it, and the "
                   "kernel cannot forward between these ports; gradlaned --config", "^FAIL interface glnone of port wire: there is no such",
                   "^note interface gl0 of port host: the daemon creates it", "^ok   folder of `admin`",
                   "^FAIL permissions" if os.getuid() else "^ok   permissions for port host")

    def test_configuration_is_wrong(self):
        self.write_config(more="rank: 0\n")
        self.check(1, "^FAIL configuration: .*/a.yaml:5:1: rank: is a key of `mode: node`, but this is an "
                      "accelerator's")
        self.write_config(more="worker: {core: 1023, idle: spin}\nuser: no-such-user\n")
        self.check(1, "^FAIL CPU 1023 of `worker.core`: there is no such CPU", "^FAIL user 'no-such-user'", others=True)


class DaemonTest(ToolsTest):
    """Tests the command line of gradlaned."""

    def test_check_prints_all_settings(self):
        first = self.run_program("gradlaned", "--check", "--config", self.config)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertIn("\nrepack: {enabled: true, hold: 20us}\n", first.stdout)
        printed = self.folder / "printed.yaml"
        printed.write_text(first.stdout)
        self.assertEqual(self.run_program("gradlaned", "--check", "--config", printed).stdout, first.stdout)

    def test_one_accelerator_in_a_process(self):
        node = self.folder / "n.yaml"
        node.write_text("rank: 0\nnodes: [{rank: 0, ip: 10.77.0.1}]\n")
        for other in (node, self.config):
            ended = self.run_program("gradlaned", "--config", other, "--config", self.config)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("start a separate gradlaned for each accelerator", ended.stderr)


class StatsTest(ToolsTest):
    def stats(self, *options):
        ended = self.run_program("gradlane", "stats", *options)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_table(self):
        with self.daemon(changed(advice=["switch it off"])):
            table = self.stats("--config", self.config)
            for pattern in (r"^accelerator   up 3\.6 s   gradlane 0\.1\.0   pid 1752   61\.1 MiB$",
                            r"^codec fixed:10   MTU 1500   ToS 0x28, on the wire 0x30   repacked within 20 us$",
                            "^  WRONG: switch it off$", r"^host +up +17\.0M +500k +12\.0k +6\.00k +0 +net_tap0$",
                            r"^wire +up +500k +5\.00M +6\.00k +4\.00k +7 +net_af_packet0$",
                            r"^compressed +8\.00k +80\.0 %$", r"^uncompressed: no accelerator answers there +1\.50k +15\.0 %$",
                            r"^uncompressed: SYN, FIN, RST, URG +500 +5\.0 %$",
                            r"^compressed payload   11\.0M bytes in   4\.00M out   ratio 2\.75   2\.00 packets per frame$",
                            r"^restored   300 packets   from 200 frames   0 damaged ones dropped$",
                            r"^TCP connections   5 of 65536   34 segments remembered, 12\.3k bytes$",
                            r"^10\.77\.0\.2 +answers +8\.00k +1\.50k +0\.5 s ago$"):
                self.assertTrue(re.search(pattern, table, re.MULTILINE), f"{pattern}:\n{table}")
            self.assertNotIn("too little payload", table)
            self.assertNotIn("stream_begun", table)
            full = self.stats("--admin", self.admin, "--all")
            self.assertRegex(full, r"\n  stream_begun +6  TCP connections that were tracked from their start")
            self.assertRegex(full, r"\n  raw_no_peer +1500  marked packets sent uncompressed: no accelerator")
            self.assertNotIn("bundle_bad_checksum", full)
            names = [line.split()[0] for line in full.split("\ncounters:\n")[1].splitlines()]
            self.assertEqual(names, ["from_host", "marked", "compressed", "payload_bytes", "compressed_bytes",
                                     "wire_frames", "raw_no_peer", "raw_flags", "restored", "restored_frames",
                                     "stream_begun"], "in the order of the rows")
            self.assertEqual(json.loads(self.stats("--socket", self.folder / "a.sock", "--json"))["pid"], 1752)

    def test_unknown_reasons_have_their_names(self):
        with self.daemon(changed(counters={"raw_moon": 7, "bundle_bad_checksum": 2})):
            self.assertRegex(self.stats("--admin", self.admin), r"\nuncompressed: moon +7 ")
            self.assertRegex(self.stats("--admin", self.admin, "--all"),
                             r"\n  bundle_bad_checksum +2  wrong UDP or TCP checksum")

    def watch(self, documents, *options, rounds):
        """Returns the output of `gradlane stats --watch` until the daemon has got at least `rounds` requests."""
        command = [BINARIES["gradlane"], "stats", "--admin", str(self.admin), "--watch", "0.1", *options]
        with self.daemon(*documents) as daemon:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
                wait_for(lambda: len(daemon.requests) >= rounds or watching.poll() is not None, f"{rounds} requests")
                watching.send_signal(signal.SIGINT)
                output, _ = watching.communicate(timeout=PATIENCE)
        self.assertEqual(watching.returncode, 0)
        return output

    def test_watch_shows_rates_and_shares_since_the_look_before(self):
        later = changed(counters={"marked": 11000, "compressed": 9000, "payload_bytes": 12_000_000,
                                  "compressed_bytes": 4_250_000, "wire_frames": 4250})
        blocks = self.watch([DOCUMENT, later], rounds=4).split("\n\naccelerator ")
        self.assertGreaterEqual(len(blocks), 2)
        self.assertRegex(blocks[1], r"rx Gb/s +tx Gb/s")
        self.assertRegex(blocks[1], r"\ncompressed +\S+ +100\.0 %\n")
        self.assertIn("ratio 4.00   4.00 packets per frame", blocks[1])

    def test_watch_json_and_a_restart(self):
        lines = self.watch([DOCUMENT], "--json", rounds=3).splitlines()
        self.assertEqual({json.loads(line)["pid"] for line in lines}, {1752})
        self.admin.unlink()
        blocks = self.watch([DOCUMENT, changed(pid=1753)], rounds=3).split("\n\naccelerator ")
        self.assertIn("rx bytes", blocks[1])


if __name__ == "__main__":
    main()
