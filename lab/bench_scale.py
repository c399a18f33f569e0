#!/usr/bin/python3
"""bench_scale.py - experiment `scale`: thousands of ranks in virtual time. It needs neither PyTorch nor a network.

1. times: an all-reduce by one ring, and by rings of 2 and 3 levels. It is a formula with the links of `gradlane sim`;
   --compare shows the difference from simulated exchanges.
2. changes: members of an elastic training fail, and the others agree on the next members through a store that serves
   one request after another. "flat" runs the class Agreement of gradlane, "groups" a prototype (lab/scale/). A cell has
   the requests of all processes, in parentheses those of the busiest, and the time from the failure until the next step
   ends with an all-reduce of 64 MiB. Shards are computed in no time. After each change, all survivors must have the same
   members, and a sum over rings of groups must have the bits of a sum over one ring. Values after "~" are extrapolated
   by parabolas through the values of three smaller numbers of members. In rows without a failure, the last value says
   how busy the store is.
"""

import argparse
import collections
import itertools
import json
import math
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # imports are written from the root

from lab.results.experiment import Batch, Experiment  # noqa: E402
from lab.results.texts import size_text, time_text  # noqa: E402
from lab.scale.agreement import begin_flat, group_change  # noqa: E402
from lab.scale.world import REQUEST_S, World  # noqa: E402

# ---- Time of an all-reduce

RATE, DELAY_S = 10e9, 25e-6  # links as in `gradlane sim`, with a switch
PAYLOAD, HEADERS, GRANULE = 1408, 44 + 20 + 66, 128  # bytes of a packet of raw elements, and of its headers
HOP_S = 3e-6  # per hop, apart from the link: open packets wait for more runs, 10 us at most (max_hold)
START_S = 25e-6  # per stage, until the successor has announced its start
SIZES = (4 << 10, 1 << 20, 64 << 20)
LEVELS = {64: ((64,), (8, 8), (4, 4, 4)), 256: ((256,), (16, 16), (8, 8, 4)), 1024: ((1024,), (32, 32), (16, 8, 8)),
          4096: ((4096,), (64, 64), (16, 16, 16))}


def ring_seconds(ranks, size, hops):
    """Returns the time in which the block of each rank, size / ranks bytes, makes `hops` hops. A rank sends the next
    round of blocks when it has sent this one, or when the first packet has arrived, whichever is later."""
    # Where a block takes about one to four times as long as a hop, `gradlane sim` takes up to 1.5 times as long as
    # this: --nodes 64 --size 4M. The other samples of compare() differ by less than a tenth.
    block = max(size / ranks, GRANULE)
    packet_s = (min(block, PAYLOAD) + HEADERS) * 8 / RATE
    send_s = (block + math.ceil(block / PAYLOAD) * HEADERS) * 8 / RATE
    path_s = DELAY_S + HOP_S + packet_s  # the switch sends the packet, too
    return (hops - 1) * max(send_s, packet_s + path_s) + send_s + path_s


def all_reduce_seconds(levels, size):
    """levels: lengths of the rings of each level. Ranks reduce-scatter in the first, then in the second, and so on."""
    *inner, last = levels
    seconds, share = 0.0, size
    for ranks in inner:
        seconds += 2 * (START_S + ring_seconds(ranks, share, ranks - 1))  # reduce-scatter and all-gather
        share /= ranks
    return seconds + START_S + ring_seconds(last, share, 2 * (last - 1))


def compare():
    """Yields (strategy, ranks, size, seconds of `gradlane sim`, seconds here) of the samples in docs/results/data."""
    for sample in json.loads((ROOT / "docs/results/data/simulated.json").read_text())["samples"]:
        for row in sample["values"] if "--loss" not in sample["command"] else ():
            word, _, inner = row["strategy"].partition(":")
            if row["codec"] == "raw" and row["nodes"] >= 16 and word in ("ring", "rings"):
                levels = (int(inner), row["nodes"] // int(inner)) if inner else (row["nodes"],)
                yield row["strategy"], row["nodes"], row["bytes"], row["seconds"], all_reduce_seconds(levels, row["bytes"])


# ---- Changes of members

WATCH_S, LOOK_S = 0.05, 0.5  # as in agent.py: time between two looks of a member at ended/E, and at join/N
RESTART_S = 0.2  # start of a daemon


def ring_sum(rows):
    """Adds rows of 32-bit integers as a ring does: block b in the order b + 1, b + 2, ..., b."""
    count, width, result = len(rows), len(rows[0]), []
    for block in range(count):
        begin, end = width * block // count, width * (block + 1) // count
        total = [0] * (end - begin)
        for step in range(count if total else 0):
            row = rows[(block + 1 + step) % count]
            total = [(a + b + 2**31) % 2**32 - 2**31 for a, b in zip(total, row[begin:end])]
        result += total
    return result


def rings_sum(rows, groups):
    """Adds {process: row}: each group by a ring, and then each position's share of the sums by a ring."""
    partial = [ring_sum([rows[it] for it in group]) for group in groups]
    columns, width, result = min(map(len, groups)), len(partial[0]), []
    for column in range(columns):
        result += ring_sum([it[width * column // columns:width * (column + 1) // columns] for it in partial])
    return result


def check(world, dice):
    """Raises AssertionError unless all survivors have the same members, themselves, and the same bits of a sum."""
    left = world.survivors()
    assert len({(it.epoch, it.record, it.groups) for it in left}) == 1, "an epoch has two memberships"
    members = list(itertools.chain(*left[0].groups))
    assert sorted(members) == sorted(it.id for it in left), "the members are not the survivors"
    rows = {it: [dice.getrandbits(32) - 2**31 for _ in range(16)] for it in members}
    assert rings_sum(rows, left[0].groups) == ring_sum([rows[it] for it in members]), "the sums differ"


def failures(groups, epoch, dice):
    """Yields a failure's name, the processes that fail, and keys at whose creation their creator dies, too."""
    yield "a member", [dice.choice(groups[-2][1:])], ()
    yield "a leader", [groups[-1][0]], ()
    yield "the coordinator", [groups[0][0]], ()
    yield "a leader; the next one, after its summary", [groups[3][0]], (f"group/{epoch}/3",)
    yield "the coordinator; the next one, after the record", [groups[0][0]], (f"record/{epoch + 1}",)
    yield "a leader stops", [groups[4][0]], ()
    others = list(itertools.chain(*groups[6:]))
    yield "a group, and 8 members", [*groups[5], *dice.sample(others, min(8, len(others) // 2))], ()
    yield "three quarters of a group", groups[2][:len(groups[2]) * 3 // 4], ()


_IDLE = "none, in a second"


def run_groups(count, options):
    """Yields a row for each failure. They follow each other in one training."""
    dice = random.Random(options["seed"])
    world = World(group_change, options["request_s"], options["stores"])
    length = math.isqrt(count)
    world.begin(tuple(tuple(range(at + 1, at + 1 + length)) for at in range(0, count, length)))
    yield idle_row("groups", count, count // length, options)
    for index in range(8):
        begin, first = world.now, world.survivors()[0]
        found = failures(first.groups, first.epoch, dice)
        name, failed, world.crash_at = next(itertools.islice(found, index, None))
        world.fail(failed, stop=name.endswith("stops"))
        yield finish("groups", count, name, world, first.epoch, begin, dice)


def run_flat(count, options):
    dice = random.Random(options["seed"])
    world = begin_flat(count, options["request_s"])
    yield idle_row("flat", count, count, options)
    yield finish("flat", count, "start of all", world, 0, 0.0, dice)
    for name, failed in (("a member", [count // 2]), ("4 members", [3, 7, 11, 13])):
        begin, epoch = world.now, world.processes[1].epoch
        world.fail(failed)
        yield finish("flat", count, name, world, epoch, begin, dice)


def idle_row(kind, count, watching, options):
    """Without changes, members look for their end; with groups, only leaders do: others hear of it from their rings."""
    each = 1 / WATCH_S + 1 / LOOK_S
    return {"agreement": kind, "members": count, "event": _IDLE, "epochs": 0, "requests":
            round(watching * each), "busiest": round(each), "seconds": watching * each * options["request_s"],
            "simulated": True, "stores": options["stores"]}


def finish(kind, count, name, world, epoch, begin, dice):
    """Lets the processes agree, checks them, and returns a row."""
    world.run()
    requests, world.requests = world.requests, collections.Counter()
    check(world, dice)
    left = world.survivors()
    groups = left[0].groups
    levels = (max(map(len, groups)), len(groups)) if len(groups) > 1 else (len(left),)
    seconds = max(it.since for it in left) - begin + RESTART_S + all_reduce_seconds(levels, SIZES[-1])
    return {"agreement": kind, "members": count, "event": name, "epochs": left[0].epoch - epoch,
            "requests": requests.total(), "busiest": max(requests.values()), "seconds": seconds,
            "simulated": True, "stores": len(world.free_at)}


def extrapolate(rows, count):
    """Yields rows of another number of members, by the parabolas through the rows of the last three numbers."""
    for name in dict.fromkeys(row["event"] for row in rows):
        points = [row for row in rows if row["event"] == name][-3:]
        row = {**points[0], "members": count, "simulated": False}
        for key in ("requests", "busiest", "seconds"):
            value = sum(it[key] * math.prod((count - other["members"]) / (it["members"] - other["members"])
                                            for other in points if other is not it) for it in points)
            row[key] = value if key == "seconds" else round(value)
        yield row


def changes(flat, groups, **options):
    """Returns all rows. flat, groups: numbers of members. options: request_s, stores, seed."""
    rows = [row for count in flat for row in run_flat(count, options)]
    more = [row for count in groups if len(flat) > 2 and count > flat[-1] for row in extrapolate(rows, count)]
    return rows + more + [row for count in groups for row in run_groups(count, options)]


# ---- Tables, in Markdown


def table(heads, texts, rows):
    """Returns a table whose first columns, `texts` of them, are not numbers."""
    lines = [heads, ["---"] * texts + ["---:"] * (len(heads) - texts), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def seconds_text(seconds):
    return time_text(1e6 * seconds) if seconds < 999 else f"{seconds:.0f} s"


def times_table():
    return table(["ranks", "rings of", "hops", *map(size_text, SIZES)], 0, (
        [ranks, " x ".join(map(str, levels)), 2 * (sum(levels) - len(levels)),
         *(time_text(1e6 * all_reduce_seconds(levels, size)) for size in SIZES)]
        for ranks, choices in LEVELS.items() for levels in choices))


def compare_table():
    return table(["strategy", "ranks", "size", "`gradlane sim`", "formula", "difference"], 1, (
        [f"`{strategy}`", ranks, size_text(size), time_text(1e6 * simulated), time_text(1e6 * here),
         f"{here / simulated - 1:+.0%}"] for strategy, ranks, size, simulated, here in sorted(set(compare()))))


def changes_table(rows):
    """Returns a table with a column for each number of members and of stores."""
    cells = {}
    for row in rows:
        about = "" if row["simulated"] else "~"
        last = f"{row['seconds']:.0%} busy" if row["event"] == _IDLE else seconds_text(row["seconds"])
        cells.setdefault((row["agreement"], row["event"]), {})[row["members"], row["stores"]] = (
            f"{about}{row['requests']} ({about}{row['busiest']}), {about}{last}")
    columns = sorted({key for row in cells.values() for key in row})
    heads = [str(members) + (f", {stores} stores" if stores > 1 else "") for members, stores in columns]
    return table(["agreement", "failure", *heads], 2, ([*key, *(row.get(it, "") for it in columns)]
                                                       for key, row in cells.items()))


RUNS = {"one store": {"flat": (64, 128, 256), "groups": (256, 1024, 4096), "stores": 1},
        "8 stores": {"flat": (), "groups": (4096,), "stores": 8}}


def batches(samples):
    return [Batch((key,), 90, options) for key, options in RUNS.items() if key not in samples]


def measure(batch, context):
    yield batch.keys[0], changes(**batch.argument, seed=1, request_s=REQUEST_S), "lab/bench_scale.py"


EXPERIMENT = Experiment(
    name="scale",
    title="thousands of ranks in virtual time",
    sources=("lab/bench_scale.py", "lab/scale/**", "client/python/gradlane/torch/elastic/agreement.py"),
    batches=batches,
    measure=measure,
    figures={"times": lambda samples: times_table(),
             "compare": lambda samples: compare_table(),
             "changes": lambda samples: changes_table([row for key in RUNS for found in samples.get(key, [])[-1:]
                                                       for row in found if row["members"] >= 256])},
    timed=False,
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flat", metavar="N", type=int, nargs="*", default=[64, 128, 256],
                        help="numbers of members, from 16 (64 128 256)")
    parser.add_argument("--groups", metavar="N", type=int, nargs="*", default=[1024, 4096],
                        help="numbers of members, squares from 64 (1024 4096)")
    parser.add_argument("--request-us", metavar="US", type=float, default=1e6 * REQUEST_S,
                        help="time of a request of a store (150)")
    parser.add_argument("--stores", metavar="N", type=int, default=1, help="number of stores (1)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="seed of random choices (1)")
    parser.add_argument("--compare", action="store_true", help="compare the formula with `gradlane sim`, and end")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")
    args = parser.parse_args()
    if any(it < 16 for it in args.flat) or any(it < 64 or math.isqrt(it) ** 2 != it for it in args.groups):
        parser.error("--flat takes numbers from 16, and --groups squares from 64")
    if args.stores < 1 or not 0 < args.request_us < math.inf:
        parser.error("--stores takes numbers from 1, and --request-us numbers above 0")
    if args.compare:
        print(compare_table())
        return
    rows = changes(args.flat, args.groups, stores=args.stores, seed=args.seed, request_s=args.request_us / 1e6)
    if args.json:
        times = [{"levels": levels, "bytes": size, "seconds": all_reduce_seconds(levels, size)}
                 for levels in itertools.chain(*LEVELS.values()) for size in SIZES]
        print(json.dumps({"times": times, "changes": rows}, indent=1))
    else:
        print(f"{times_table()}\n\n{changes_table(rows)}")


if __name__ == "__main__":
    main()
