"""Runs `gradlane sim` on small networks. Checks form and repeatability of its output, sums, and that errors help."""

import json
import math
import subprocess

from tests.scripts.fixtures.waiting import PATIENCE

FIELDS = {
    "op": str,
    "nodes": int,
    "strategy": str,
    "switch": bool,
    "played": bool,
    "codec": str,
    "data": str,
    "bytes": int,
    "together": int,
    "seconds": float,
    "goodput_gbps": float,
    "busbw_gbps": float,
    "wire_bytes": int,
    "packets": int,
    "retransmits": int,
    "queue_drops": int,
    "ratio": float,
    "wa_seconds": float,
    "star_seconds": (float, type(None)),
    "wrong": int,
    "hash": str,
    "failure": str,
}
MAX_TABLE_COLUMNS = 120

# Arguments, and words that the error must have.
ERRORS = [
    (["--nodes", "0"], ["--nodes", "'0'", "1 to 256"]),
    (["--nodes", "4,257"], ["'257'", "1 to 256"]),
    (["--nodes", "many"], ["'many'", "1 to 256"]),
    (["--nodes", "2.5"], ["'2.5'", "1 to 256"]),
    (["--codec", "fixed:99"], ["fixed:99", "1 to 30"]),
    (["--codec", "fixed:10/fixed:99", "--strategy", "aggregator:0"], ["fixed:99", "1 to 30"]),
    (["--codec", "fixed:10/raw"], ["--codec", "fixed:10/raw", "ring", "aggregator"]),
    (["--strategy", "tree"], ["'tree'", "rings:G", "aggregator:R"]),
    (["--strategy", "ring,rings:4", "--nodes", "4,6"], ["--strategy", "rings:4", "6 ranks"]),
    (["--strategy", "aggregator:4", "--nodes", "4"], ["--strategy", "no rank 4"]),
    (["--strategy", "rings:2", "--op", "broadcast"], ["--strategy", "rings:2", "all-reduce", "broadcast"]),
    (["--play", "tree:2"], ["--play", "'tree:2'", "aggregators:G"]),
    (["--play", "aggregators:0"], ["--play", "'aggregators:0'", "rings-aggregator:G"]),
    (["--play", "aggregators:4", "--nodes", "4,6"], ["--play", "aggregators:4", "6 nodes"]),
    (["--play", "halving", "--nodes", "4,6"], ["--play", "halving", "6 nodes", "power of two"]),
    (["--play", "doubling:2"], ["--play", "'doubling:2'", "doubling, halving"]),
    (["--play", "aggregators:2", "--loss", "1%"], ["--play", "--loss"]),
    (["--play", "aggregators:2", "--op", "all-gather"], ["--play", "all-reduce"]),
    (["--op", "alltoallv"], ["alltoallv", "all-reduce", "barrier"]),
    (["--together", "0"], ["--together", "'0'", "1 to 100000"]),
    (["--together", "9", "--size", "32"], ["--together", "'9'", "8 elements"]),
    (["--together", "2", "--op", "broadcast"], ["--together", "all-reduces"]),
    (["--together", "2", "--operations", "257"], ["--operations", "'257'", "1 to 256"]),
    (["--size", "16X"], ["--size", "16X", "64M"]),
    (["--size", "6"], ["--size", "'6'", "multiple of 4"]),
    (["--size", "64G", "--nodes", "256"], ["256 nodes", "GiB", "--size"]),
    (["--size", "4", "--op", "all-gather"], ["all-gather", "4 bytes per node"]),
    (["--gbps", "0"], ["--gbps", "'0'", "0.001 to 10000"]),
    (["--gbps", "nan"], ["--gbps", "'nan'", "0.001 to 10000"]),
    (["--rtt", "50"], ["--rtt", "'50'", "unit", "50us"]),
    (["--rtt", "-1us"], ["--rtt", "'-1us'"]),
    (["--loss", "2"], ["--loss", "'2'", "0.1%"]),
    (["--loss", "150%"], ["--loss", "'150%'", "0 to 1"]),
    (["--dup", "x"], ["--dup", "'x'"]),
    (["--reorder", "x"], ["--reorder", "'x'"]),
    (["--corrupt", "x"], ["--corrupt", "'x'"]),
    (["--queue", "1"], ["--queue", "'1'", "2K to 1G"]),
    (["--mtu", "100"], ["--mtu", "'100'", "284 to 16412"]),
    (["--window", "100"], ["--window", "'100'", "power of two"]),
    (["--gamma", "1"], ["--gamma", "'1'", "0.1ns"]),
    (["--data", "noise"], ["noise", "laplace-1e-3"]),
    (["--seed", "-1"], ["--seed", "'-1'", "2^64"]),
    (["--speed"], ["--speed", "gradlane sim --help"]),
    (["foo"], ["foo", "gradlane sim --help"]),
]


def run(gradlane, arguments, status=0):
    result = subprocess.run([gradlane, "sim", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == status, (arguments, result)
    return result


def run_json(gradlane, arguments, status=0):
    return json.loads(run(gradlane, [*arguments, "--json"], status).stdout)["rows"]


def check_form(rows):
    for row in rows:
        assert set(row) == set(FIELDS), row
        for field, kind in FIELDS.items():
            assert isinstance(row[field], kind), (field, row)
        assert row["wrong"] == 0 and row["failure"] == "", row
        assert row["seconds"] > 0 and row["wire_bytes"] > 0, row
        p, n = row["nodes"], row["bytes"]
        assert math.isclose(row["goodput_gbps"], 8e-9 * n / row["seconds"]), row
        assert math.isclose(row["busbw_gbps"], row["goodput_gbps"] * 2 * (p - 1) / p), row
        assert math.isclose(row["ratio"], 2 * (p - 1) * n / row["wire_bytes"]), row
        hops = math.log2(p)
        assert math.isclose(row["wa_seconds"], (1 + hops) * 25e-6 + (p + hops) * n * 8e-10 + (p - 1) * n * 1e-10), row


def check_clean(gradlane):
    arguments = ["--nodes", "2,4", "5", "--codec", "raw", "fixed:10", "inceptionn:10,truncate", "--size", "1M"]
    rows = run_json(gradlane, [*arguments, "--gamma", "0.1ns"])
    order = [(row["nodes"], row["codec"]) for row in rows]
    assert order == [(p, codec) for p in (2, 4, 5) for codec in ("raw", "fixed:10", "inceptionn:10,truncate")], order
    check_form(rows)
    for row in rows:
        assert row["retransmits"] == 0 and row["queue_drops"] == 0, row
        # No link carries more than its rate, and headers take a share of that.
        assert row["busbw_gbps"] < 10 * row["ratio"], row
        if row["codec"] == "raw":
            assert 0.8 < row["ratio"] < 0.96, row
        else:
            assert row["ratio"] > 2, row


def check_lossy(gradlane):
    arguments = ["--nodes", "4", "--codec", "raw", "fixed:10", "--size", "1M", "--loss", "0.5%", "--gamma", "0.1ns"]
    arguments += ["--dup", "0.005", "--reorder", "1%", "--corrupt", "0.5%"]
    first = run_json(gradlane, arguments)
    check_form(first)
    assert first[0]["retransmits"] > 0, first
    assert run_json(gradlane, arguments) == first, "two runs with the same seed differ"
    assert run_json(gradlane, [*arguments, "--seed", "2"]) != first, "the seed has no effect"


def check_switch(gradlane):
    arguments = ["--nodes", "1,2,5", "--codec", "raw", "fixed:10", "--size", "300K", "--gamma", "0.1ns"]
    cables = run_json(gradlane, [*arguments, "--strategy", "ring"])
    switch = run_json(gradlane, [*arguments, "--switch"])
    assert [row["switch"] for row in cables + switch] == [False] * 6 + [True] * 6, (cables, switch)
    check_form(switch[2:])
    for cable, port in zip(cables, switch):
        assert port["strategy"] == "ring" and port["retransmits"] == 0 and port["queue_drops"] == 0, port
        # The switch stores and forwards packets in every hop.
        slower = port["seconds"] / cable["seconds"] if port["nodes"] > 1 else 1.1
        assert 1.0 < slower < 1.3, (cable, port)
    lossy = [*arguments, "--switch", "--loss", "1%", "--dup", "1%", "--reorder", "1%", "--corrupt", "1%"]
    rows = run_json(gradlane, lossy)
    assert all(row["wrong"] == 0 and row["failure"] == "" for row in rows), rows
    assert run_json(gradlane, lossy) == rows, "two runs with the same seed differ"


def check_strategies(gradlane):
    strategies = ["ring", "direct", "rings:2", "aggregator:3", "aggregator:0,stream"]
    arguments = ["--nodes", "4,6", "--size", "300K", "--codec", "raw", "fixed:10", "--gamma", "0.1ns"]
    arguments += ["--strategy", "ring,direct", "rings:2,aggregator:3", "aggregator:0,stream"]
    clean = run_json(gradlane, arguments)
    order = [(row["nodes"], row["strategy"], row["codec"]) for row in clean]
    assert order == [(p, each, codec) for p in (4, 6) for each in strategies for codec in ("raw", "fixed:10")], order
    check_form(clean)
    check_form(run_json(gradlane, [*arguments, "--loss", "1%", "--dup", "1%", "--reorder", "1%", "--corrupt", "1%"]))
    for row in clean:
        assert (row["star_seconds"] is not None) == row["strategy"].startswith("aggregator"), row
        if row["star_seconds"] is not None:
            once = math.ceil(row["bytes"] / 1408) * (1538 - 1408) + row["bytes"]
            ways = 1 if "stream" in row["strategy"] else 2
            assert math.isclose(row["star_seconds"], ways * (row["nodes"] - 1) * once * 8e-10, rel_tol=1e-3), row
            if row["codec"] == "raw":
                assert row["star_seconds"] < row["seconds"] < 1.5 * row["star_seconds"] + 1e-4, row
    arguments = ["--nodes", "4", "--size", "300K", "--strategy", "aggregator:1", "--codec", "bf16/raw", "bf16/bf16"]
    there, both = run_json(gradlane, arguments)
    assert there["codec"] == "bf16/raw" and both["codec"] == "bf16/bf16", (there, both)
    assert there["wrong"] == both["wrong"] == 0 and both["wire_bytes"] < 0.8 * there["wire_bytes"], (there, both)


def check_all_codecs(gradlane):
    """Each codec runs once, with a strategy that supports it. If strategies are named, it runs with each of them that
    supports it."""
    listed = subprocess.run([gradlane, "codecs", "--no-measure", "--json"], capture_output=True, text=True, check=True)
    codecs = {codec["codec"]: codec for codec in json.loads(listed.stdout)["codecs"]}
    owners = {name for name, codec in codecs.items() if codec["ways"] == "owners"}
    arguments = ["--nodes", "4", "--size", "300K", "--codec", "all", "--gamma", "0.1ns"]
    rows = run_json(gradlane, arguments)
    check_form(rows)
    assert {row["codec"]: row["strategy"] for row in rows} == {
        name: "direct" if name in owners else "ring" for name in codecs}, rows
    assert len(rows) == len(codecs), rows
    rows = run_json(gradlane, [*arguments, "--strategy", "ring,direct", "--loss", "1%"])
    check_form(rows)
    found = {(row["codec"], row["strategy"]) for row in rows}
    assert found == {(name, way) for name in codecs for way in ("ring", "direct")} - {(n, "ring") for n in owners}, rows
    some = run_json(gradlane, ["--nodes", "2", "--size", "64K", "--codec", "raw,inceptionn:10,truncate,fixed:7"])
    assert [row["codec"] for row in some] == ["raw", "inceptionn:10,truncate", "fixed:7"], some


def check_plays(gradlane):
    """Times and bytes of flows match the formulas."""
    arguments = ["--nodes", "12", "--size", "6M", "--strategy", "aggregator:0", "--codec", "raw"]
    names = [f"{name}:{group}" for name in ("aggregators", "rings-aggregator") for group in (1, 2, 3, 12)]
    first, *rows = run_json(gradlane, [*arguments, "--play", *names])
    assert [row["strategy"] for row in rows] == names, rows
    p, n = 12, 6 << 20
    tensor = first["star_seconds"] / (2 * (p - 1))  # time of one tensor through one port
    for row in rows:
        name, group = row["strategy"].split(":")
        g = int(group)
        assert row["played"] and row["wrong"] is None and row["queue_drops"] == 0, row
        if name == "aggregators":
            tensors, wire = 2 * (g - 1 + p // g - 1), 2 * (p - 1)
            assert tensors <= row["seconds"] / tensor < 1.02 * tensors, (row, tensor)
        else:
            # These tensors go through the root's port. Other ports wait for each other, too.
            tensors, wire = 2 * (g - 1) / g + 2 * (p - 1) / g, 2 * p * (g - 1) / g + 2 * (p - 1) / g
            assert tensors <= row["seconds"] / tensor < 1.2 * tensors + 0.02, (row, tensor)
        assert math.isclose(row["wire_bytes"], wire * n * 1538 / 1408, rel_tol=0.01), (row, wire)
    arguments = ["--nodes", "16", "--size", "6M", "--strategy", "ring", "--codec", "raw"]
    _, doubling, halving = run_json(gradlane, [*arguments, "--play", "doubling", "halving"])
    for row, tensors in ((doubling, 4), (halving, 2 * 15 / 16)):
        assert tensors <= row["seconds"] / tensor < 1.02 * tensors + 0.1, (row, tensor)
        assert math.isclose(row["wire_bytes"], 16 * tensors * n * 1538 / 1408, rel_tol=0.01), (row, tensors)


def check_operations(gradlane):
    kinds = ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier"]
    rows = run_json(gradlane, ["--nodes", "1,3", "--size", "1000000", "--loss", "1%", "--op", *kinds])
    assert [row["op"] for row in rows] == [kind for kind in kinds for _ in range(2)], rows
    for row in rows:
        assert row["wrong"] == 0 and row["failure"] == "", row
        assert (row["ratio"] is None) == (row["nodes"] == 1 or row["op"] == "barrier"), row
        assert (row["wa_seconds"] is None) == (row["op"] != "all-reduce"), row
    assert rows[2]["bytes"] == 1000000 and rows[3]["bytes"] == 999996, rows


def check_failure(gradlane):
    arguments = ["--nodes", "2", "--size", "64K", "--loss", "100%"]
    result = run(gradlane, [*arguments, "--json"], 1)
    row = json.loads(result.stdout)["rows"][0]
    assert row["wrong"] == 2 * 16384 and row["goodput_gbps"] == 0 and row["failure"] != "", row
    assert "2 nodes" in result.stderr and row["failure"] in result.stderr, result


def check_table(gradlane):
    arguments = ["--nodes", "1,2", "--size", "256K", "--loss", "1%", "--codec", "inceptionn:10,truncate", "raw"]
    result = run(gradlane, [*arguments, "--op", "allreduce", "barrier"])
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= MAX_TABLE_COLUMNS, result.stdout
    assert sum(line.startswith("nodes codec") for line in lines) == 2, result.stdout
    assert len(lines) == 2 * (3 + 4), result.stdout
    assert "all-reduce of 256 KiB (laplace-1e-3) over 10 Gb/s, RTT 50.0 us, loss 1%" in lines, result.stdout
    assert result.stderr == "", result.stderr


def check_errors(gradlane):
    for arguments, names in ERRORS:
        result = run(gradlane, arguments, 2)
        assert result.stdout == "", (arguments, result)
        assert result.stderr.startswith("gradlane: "), (arguments, result)
        for name in names:
            assert name in result.stderr, (arguments, name, result.stderr)


def check_hashes(gradlane):
    """Checks the bits of sums as docs/determinism.md describes them, in the documented command."""
    arguments = ["--nodes", "4", "--size", "1M", "--codec", "exact", "raw", "pack", "fixed:10", "--strategy", "ring",
                 "direct", "rings:2", "aggregator:0", "--together", "1", "7"]
    rows = run_json(gradlane, arguments)
    hashes = {(row["codec"], row["strategy"], row["together"]): row["hash"] for row in rows}
    assert len(hashes) == len(rows) == 28, rows
    for (codec, strategy, together), value in hashes.items():
        if codec == "pack":
            assert value == hashes["raw", strategy, together], hashes
        if codec in ("exact", "fixed:10"):
            assert value == hashes[codec, "direct", 1], hashes
        if codec == "raw" and strategy == "direct":
            assert value == hashes["raw", "ring", together], hashes
    assert len({value for (codec, *_), value in hashes.items() if codec == "raw"}) > 1, hashes
    faulty = run_json(gradlane, [*arguments, "--loss", "1%", "--reorder", "1%"])
    assert [row["hash"] for row in faulty] == [row["hash"] for row in rows], (rows, faulty)
    table = run(gradlane, [*arguments, "--hash"]).stdout
    assert all(row["hash"] in table for row in rows), table
    assert rows[0]["hash"] not in run(gradlane, arguments).stdout


def check(gradlane):
    check_clean(gradlane)
    check_hashes(gradlane)
    check_lossy(gradlane)
    check_switch(gradlane)
    check_strategies(gradlane)
    check_plays(gradlane)
    check_all_codecs(gradlane)
    check_operations(gradlane)
    check_failure(gradlane)
    check_table(gradlane)
    check_errors(gradlane)
