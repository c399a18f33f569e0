"""Runs `gradlane perf --json` on two nodes, small and short, and checks the form and the results, not the speed."""

import json
import subprocess

from tests.scripts.fixtures.waiting import PATIENCE

FIELDS = {
    "op": str,
    "strategy": str,
    "codec": str,
    "bytes": int,
    "count": int,
    "together": int,
    "time_us": float,
    "mean_us": float,
    "least_us": float,
    "most_us": float,
    "algbw": float,
    "busbw": float,
    "wire_ratio": float,
    "memcpy_gbps": float,
    "vs_memcpy": float,
    "wrong": int,
}
OPS = ["allreduce", "reducescatter", "allgather", "broadcast"]
CODECS = ["raw", "bf16", "fp16", "inceptionn:10", "inceptionn:10,truncate", "fixed:10"]


def run(gradlane, *options, ranks=2, strategies="ring", mtu=9000, iterations=2, form="json", nodes=()):
    command = [gradlane, "run", "-n", str(ranks), "--link", "ring", "--strategies", strategies, "--mtu", str(mtu),
               *nodes, "--no-prefix", "--", gradlane, "perf", "--format", form, "-n", str(iterations), "-w", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def perf(gradlane, *options, **network):
    """Returns perf's output, which is JSON. perf must have succeeded."""
    result = run(gradlane, *options, **network)
    assert result.returncode == 0, result
    return json.loads(result.stdout)


def check_rows(result, ranks=2):
    for row in result["rows"]:
        assert set(row) - {"chosen", "percentiles", "burst_bytes", "encoded"} == set(FIELDS), row
        assert ("chosen" in row) == row["codec"].startswith("auto"), row
        for field, kind in FIELDS.items():
            assert isinstance(row[field], kind), (field, row)
        assert row["wrong"] == 0, row
        assert row["time_us"] > 0 and row["memcpy_gbps"] > 0, row
        algbw = row["bytes"] / row["time_us"] / 1e3
        assert abs(row["algbw"] - algbw) < 1e-6 * algbw, row
        share = 1 if row["op"] == "broadcast" else (ranks - 1) / ranks
        share *= 2 if row["op"] == "allreduce" else 1
        assert abs(row["busbw"] - share * algbw) < 1e-6 * algbw, row


def check_ratios(rows):
    for row in rows:
        if row["bytes"] < 60000:
            continue  # headers and barriers take too large a share of the bytes
        low, high = {"raw": (0.9, 1), "bf16": (1.7, 2), "fp16": (1.7, 2), "pack": (1, 2)}.get(row["codec"], (2, 8))
        assert low < row["wire_ratio"] < high, row


def check(gradlane):
    result = perf(gradlane, "-b", "1000", "-e", "256K", "-f", "8", "--op", ",".join(OPS), "--codec", ",".join(CODECS))
    check_rows(result)
    check_ratios(result["rows"])
    sizes = {1000, 8000, 64000}
    found = {(row["op"], row["codec"], row["bytes"]) for row in result["rows"]}
    # Only sums use codecs.
    assert found == {(op, codec, size) for op in OPS for codec in (CODECS if "reduce" in op else ["raw"])
                     for size in sizes}, found
    assert result["world"] == 2 and result["checked"], result


def check_local_reduce(gradlane):
    """Sums are right if the trainers of a node are added up before their sum is rounded."""
    nodes = ("--trainers", "2", "--local-reduce")
    check_rows(perf(gradlane, "-b", "64K", "-e", "64K", "--codec", "raw,fixed:10", nodes=nodes), ranks=4)


def check_choices(gradlane):
    """Checks that the choice of `auto` is reported."""
    result = perf(gradlane, "-b", "100000", "-e", "100000", "--codec", "auto:2^-10,raw")
    check_rows(result)
    assert result["rows"][0]["chosen"].endswith(" by ring"), result["rows"]
    assert len(result["rows"][0]["chosen"]) > len(" by ring"), result["rows"]


def check_strategies(gradlane):
    """Without --strategy, rows name the daemons' default. Several strategies are compared, each with the codecs that it
    has."""
    def rows(*options, strategies="ring,direct,rings:2,aggregator:1,stream"):
        result = perf(gradlane, "-b", "40000", "-e", "40000", *options, ranks=4, strategies=strategies)
        check_rows(result, 4)
        return {(row["strategy"], row["op"], row["codec"]) for row in result["rows"]}

    every = ["ring", "direct", "rings:2", "aggregator:1,stream"]
    codecs = ["raw", "bf16", "inceptionn:10,truncate", "fixed:10"]
    found = rows("--strategy", ",".join(every), "--codec", ",".join(codecs))
    assert found == {(strategy, "allreduce", codec) for strategy in every for codec in codecs}, found
    for reduction in ("min", "max"):
        found = rows("--strategy", ",".join(every), "--reduction", reduction, "--data", "gauss-1")
        assert found == {(strategy, "allreduce", "raw") for strategy in every}, found
    found = rows("--op", ",".join(OPS), "--strategy", "direct,ring", "--codec", "fixed:10")
    assert found == {(strategy, op, "fixed:10" if "reduce" in op else "raw") for strategy in ("direct", "ring")
                     for op in OPS}, found
    pairs = ["raw", "fixed:7/raw", "raw/bf16", "bf16/fixed:9"]
    found = rows("--strategy", "aggregator:1,stream", "--codec", ",".join(pairs))
    assert found == {("aggregator:1,stream", "allreduce", pair) for pair in pairs}, found
    # An aggregator does not gather. If no strategy is named, the ring does.
    found = rows("--op", "allreduce,allgather", "--codec", "raw", strategies="aggregator:1,ring")
    assert found == {("aggregator:1", "allreduce", "raw"), ("ring", "allgather", "raw")}, found


def check_together(gradlane):
    """The result is right if a tensor is divided into several operations."""
    result = perf(gradlane, "-b", "400K", "-e", "400K", "--together", "1,100", "--strategy", "ring,direct", ranks=3,
                  strategies="ring,direct")
    check_rows(result, 3)
    found = {(row["strategy"], row["codec"], row["together"]) for row in result["rows"]}
    assert found == {(strategy, codec, together) for strategy in ("ring", "direct") for codec in ("raw", "fixed:10")
                     for together in (1, 100)}, found


def check_concurrent(gradlane):
    """Several operations at a time are right, of all kinds, even with codecs that round at random."""
    result = perf(gradlane, "-b", "100K", "-e", "100K", "--concurrent", "4", "--op", ",".join(OPS), "--codec",
                  "raw,fixed:10,qsgd:4", "--strategy", "direct", strategies="ring,direct", ranks=3, iterations=9)
    check_rows(result, 3)
    assert result["concurrent"] == 4 and len(result["rows"]) == 8, result


def check_encoded(gradlane):
    """Sums of encoded contributions are right, and the same with `all` codecs as with those that can be encoded."""
    found = {}
    for codecs in ("raw,pack,fixed:10", "all"):
        result = perf(gradlane, "-b", "100K", "-e", "100K", "--encoded", "--codec", codecs)
        check_rows(result)
        for row in result["rows"]:
            figures = row["encoded"]
            assert figures["encode_gbps"] > 0 and figures["floats_us"] > 0, row
            low, high = {"raw": (4, 4.1), "pack": (3, 4)}.get(row["codec"], (0.5, 2))
            assert low < figures["bytes_per_float"] < high, row
            found.setdefault(row["codec"], set()).add(figures["bytes_per_float"])
    assert {"raw", "pack", "fixed:10"} <= set(found) and all(len(sizes) == 1 for sizes in found.values()), found
    assert any("topk:1% excludes an encoded contribution" in reason for reason in result["skipped"]), result
    check_ratios(result["rows"])
    for options in (["--op", "broadcast"], ["--type", "float64"], ["--reduction", "max"], ["--feedback"]):
        wrong = run(gradlane, "--encoded", *options)
        assert wrong.returncode == 2 and "--encoded works only with sums of float32" in wrong.stderr, wrong
    named = run(gradlane, "--encoded", "--codec", "topk:1%", strategies="ring,direct")
    assert named.returncode == 2 and "topk:1% excludes an encoded contribution" in named.stderr, named


def check_tail(gradlane):
    """Percentiles ascend while other traffic goes on. The formats of other programs have all their columns."""
    options = ["-b", "64K", "-e", "64K", "--codec", "fixed:10", "--background-load", "3", "--interface", "lo"]
    result = perf(gradlane, *options, iterations=40)
    check_rows(result)
    for row in result["rows"]:
        tail = row["percentiles"]
        times = [tail[name] for name in ("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us")]
        assert times == sorted(times) and times[0] > 0, row
        assert abs(tail["p99_over_p50"] - times[2] / times[0]) < 1e-9 and row["burst_bytes"] >= 4096, row
    assert result["background"] == {"aim": 3, "interface": "lo"}, result
    for form, columns in {"osu": 6, "nccl": 13}.items():
        printed = run(gradlane, "-b", "64K", "-e", "128K", form=form)
        lines = [line.split() for line in printed.stdout.splitlines() if line and line[0] != "#"]
        assert printed.returncode == 0 and [len(line) for line in lines] == 4 * [columns], printed
    nowhere = run(gradlane, "--background-load", "3", "--interface", "nowhere0")
    assert nowhere.returncode == 2 and "--interface 'nowhere0'" in nowhere.stderr, nowhere


def check_all_codecs(gradlane):
    """Each codec runs with a strategy that supports it, without feedback and with it. A codec is left out and reported
    if the daemons allow no such strategy."""
    listed = subprocess.run([gradlane, "codecs", "--no-measure", "--json"], capture_output=True, text=True, check=True)
    codecs = {codec["codec"]: codec for codec in json.loads(listed.stdout)["codecs"]}
    for options in ([], ["--feedback"]):
        result = perf(gradlane, "-b", "100000", "-e", "100000", "--codec", "all", *options, ranks=4,
                      strategies="ring,direct")
        check_rows(result, 4)
        assert {row["codec"]: row["strategy"] for row in result["rows"]} == {
            name: "direct" if codec["ways"] == "owners" else "ring" for name, codec in codecs.items()}, result
        assert not result["skipped"] and result["feedback"] == bool(options), result
    result = perf(gradlane, "-b", "10000", "-e", "10000", "--codec", "all")
    found = {row["codec"] for row in result["rows"]}
    assert found == {name for name, codec in codecs.items() if codec["ways"] != "owners"}, result
    assert len(result["skipped"]) == len(codecs) - len(found), result


def check_small_packets(gradlane):
    """Codecs whose shortest runs do not fit into a packet are left out and reported. If perf was told to measure such a
    codec alone, it ends with an error."""
    result = perf(gradlane, "-b", "10000", "-e", "10000", "--codec", "all,int8:1024", strategies="ring,direct", mtu=576)
    check_rows(result)
    left = {"onebit", "fixed:10", "signsgd"} - {row["codec"] for row in result["rows"]}
    assert not left, result
    ran = {row["codec"] for row in result["rows"]}
    for name in "int8:1024", "topk:1%":
        left_out = [line for line in result["skipped"] if line.startswith(f"codec {name}: ")]
        said = any("MTU 576 has room" in line for line in left_out)
        assert said and len(left_out) == 1 and name not in ran, (name, result)
    named = run(gradlane, "--codec", "int8:1024", strategies="ring,direct", mtu=576)
    assert named.returncode != 0 and "Traceback" not in named.stderr, named
    for text in "--codec 'int8:1024'", "a chunk of 1024 floats", "MTU 576", "choose a smaller chunk, or raise `mtu`":
        assert text in named.stderr, (text, named)


def check_more(gradlane):
    for kind in ("float64", "int32", "int64", "bytes"):
        other = perf(gradlane, "-b", "40000", "-e", "40000", "--op", ",".join(OPS), "--type", kind)
        check_rows(other)
        assert {row["op"] for row in other["rows"]} == set(OPS), other
        assert {row["codec"] for row in other["rows"]} == {"raw"}, other

    for kind in ("float16", "bfloat16"):
        halves = perf(gradlane, "-b", "40000", "-e", "40000", "--op", ",".join(OPS), "--type", kind, "--codec", "raw,pack")
        check_rows(halves)
        by_codec = {codec: [row["wire_ratio"] for row in halves["rows"] if row["codec"] == codec and "all" in row["op"]]
                    for codec in ("raw", "pack")}
        assert min(by_codec["pack"]) > max(by_codec["raw"]), halves
        picked = perf(gradlane, "-b", "10000", "-e", "10000", "--type", kind, "--reduction", "max")
        check_rows(picked)
    # The size is no whole number of elements per rank.
    odd = perf(gradlane, "-b", "10001", "-e", "10001", "--op", "allgather,reducescatter", "--codec", "raw")
    assert {row["bytes"] for row in odd["rows"]} == {10000}, odd
    # Minima and maxima are exact for all types. The strategy is named even if the daemon has only one.
    for kind in ("float32", "int64", "bytes"):
        picked = perf(gradlane, "-b", "10000", "-e", "10000", "--op", "allreduce,reducescatter", "--type", kind,
                      "--reduction", "min" if kind == "int64" else "max", "--strategy", "ring")
        check_rows(picked)
        assert {(row["codec"], row["strategy"]) for row in picked["rows"]} == {("raw", "ring")}, picked
        assert picked["reduction"] == ("minimum" if kind == "int64" else "maximum"), picked
    check_strategies(gradlane)
    check_local_reduce(gradlane)
    check_choices(gradlane)
    check_together(gradlane)
    check_concurrent(gradlane)
    check_encoded(gradlane)
    check_tail(gradlane)
    check_all_codecs(gradlane)
    check_small_packets(gradlane)
