"""Rows of the fault matrix. Each has a fault, the errors that trainers must see, and the repair."""

import dataclasses
import time

from tests.scripts.reliability.stage import Limits, named_ranks, require

HANG_BOUND_S = 11.0  # a trainer gives up a daemon that does nothing for 10 s
BLINK_S = 0.5  # shorter than 3/4 of the peer timeout, after which a neighbour is given up


@dataclasses.dataclass
class Seen:
    """Result of one run of a row. Times are in seconds."""

    texts: dict = dataclasses.field(default_factory=dict)  # error text of the trainer, by rank
    times: dict = dataclasses.field(default_factory=dict)  # time from the fault to the trainer's first error, by rank
    last: float = 0.0  # time from the fault to the end of the last request of any trainer
    # victims of the fault; errors on all other ranks must name one of them
    names: set = dataclasses.field(default_factory=set)
    own: float = None  # time from the fault to the error of the victim's own trainer, if that comes later by design
    pause: float = None  # longest time between two results, if there is no error
    tries: int = 1  # number of attempts until the result was right again, on the trainer that needed most
    recovered: float = None  # time from the repair to the end of two correct operations on all ranks


@dataclasses.dataclass
class Row:
    """play(stage, victim, options) returns a Seen, or raises a Problem."""

    name: str
    fault: str
    links: tuple
    play: object
    pause: bool = False  # True if no error may be seen; the table then has the longest pause between results
    short: tuple = ()  # links on which the row runs with --short


def expect_named(seen, events, since, names, gone=(), bound=0.0):
    """Checks that each of these trainers got errors that name one of `names`, and got them in time. The check covers
    all operations that were in flight, and those that the trainer submitted until the first error.

    Trainers of `gone` must have got the error that their daemon has gone. `bound` is in seconds: 0 for that of Limits,
    None for any time.
    """
    bound = Limits.bound() if bound == 0 else bound
    for rank, event in events.items():
        error = event["errors"][0]
        seen.texts[rank] = error["text"]
        seen.times[rank] = event["at_first"] - since
        seen.last = max(seen.last, event["at"] - since)
        where = f"trainer {rank}, {seen.times[rank]:.2f} s after the fault: {error['kind']}: {error['text']}"
        if rank in gone:
            require(error["kind"] == "DaemonGone", f"{where}: must be told that its daemon has gone")
        else:
            require(error["kind"] == "OperationFailed", where)
            require(named_ranks(error["text"]) & set(names), f"{where}: must name one of {sorted(names)}")
        require(bound is None or seen.times[rank] <= bound, f"{where}: later than {bound} s")
        check_later(rank, event, since, names, bound)


def check_later(rank, event, since, names, bound):
    """Checks the errors of operations that were in flight after the first one that failed."""
    last = event["at"] - since
    require(bound is None or last <= bound, f"trainer {rank}: the last error came {last:.2f} s after the fault, later "
            f"than {bound} s: {event['errors'][-1]['text']}")
    for error in event["errors"]:
        require(error["kind"] == "DaemonGone" or named_ranks(error["text"]) & set(names),
                f"trainer {rank}: a later error names none of {sorted(names)}: {error['kind']}: {error['text']}")


def recover(stage, seen, since, options):
    """Makes trainers recover together, as docs/client.md has it, or each by itself."""
    if options.alone:
        seen.tries = stage.recover()
    else:
        stage.all_right()
    seen.recovered = time.monotonic() - since
    return seen


def others_than(stage, victims):
    return [rank for rank in stage.everyone if rank not in victims]


# ---- Daemons


def play_kill(stage, victim, options, victims=1, at_once=False):
    """Kills `victims` daemons in a row. at_once: they are restarted before any process can have noticed."""
    gone = [(victim + i) % stage.nodes for i in range(victims)]
    pids = stage.pids(but=gone)
    seen = Seen(names=set(gone))
    stage.stream(options.codec)
    since = time.monotonic()
    for rank in gone:
        stage.ring.kill(rank)
    if at_once:
        for rank in gone:
            stage.ring.start_node(rank)
    expect_named(seen, stage.failures(stage.everyone), since, gone, gone)
    stage.check_alive(pids)
    repaired = since if at_once else time.monotonic()
    if not at_once:
        for rank in gone:
            stage.ring.start_node(rank)
    recover(stage, seen, repaired, options)
    stage.check_alive(pids)
    return seen


def play_stop(stage, victim, options):
    """Stops a daemon until all other trainers have failed, and then continues it. Its own trainer gets an error soon
    after that."""
    pids = stage.pids()
    seen = Seen(names={victim})
    stage.stream(options.codec)
    since = time.monotonic()
    stage.ring.stop(victim)
    try:
        others = stage.failures(others_than(stage, [victim]))
        expect_named(seen, others, since, [victim])
        time.sleep(options.hold)
    finally:
        stage.ring.cont(victim)
    continued = time.monotonic()
    own = stage.failures([victim])
    expect_named(seen, own, continued, stage.everyone)
    recover(stage, seen, continued, options)
    stage.check_alive(pids)
    return seen


def play_hang(stage, victim, options):
    """Stops a daemon until its own trainer has given it up, and then continues it."""
    pids = stage.pids()
    seen = Seen(names={victim})
    stage.stream(options.codec)
    since = time.monotonic()
    stage.ring.stop(victim)
    try:
        expect_named(seen, stage.failures(others_than(stage, [victim])), since, [victim])
        own = Seen()
        expect_named(own, stage.failures([victim]), since, [victim], [victim],
                     HANG_BOUND_S if Limits.bound() else None)
        seen.texts[victim], seen.own = own.texts[victim], own.times[victim]
    finally:
        stage.ring.cont(victim)
    recover(stage, seen, time.monotonic(), options)
    stage.check_alive(pids)
    return seen


def play_pause(stage, victim, options):
    return blink(stage, options, lambda: stage.ring.stop(victim), lambda: stage.ring.cont(victim))


def blink(stage, options, begin, end):
    """Causes a fault that is too short for an error. Operations must go on."""
    pids = stage.pids()
    stage.stream(options.codec)
    begin()
    time.sleep(BLINK_S)
    end()
    ended = time.monotonic()
    for puppet in stage.puppets:
        for _ in range(3):
            puppet.expect("step")
    seen = Seen(pause=stage.stop_stream())
    recover(stage, seen, ended, options)
    stage.check_alive(pids)
    return seen


def play_idle_kill(stage, victim, options):
    """Kills a daemon while nothing is in flight. Operations begin before any process can have noticed that it is dead.
    """
    pids = stage.pids(but=[victim])
    seen = Seen(names={victim})
    since = time.monotonic()
    stage.ring.kill(victim)
    stage.begin(stage.everyone)
    expect_named(seen, stage.failures(stage.everyone), since, [victim], [victim])
    repaired = time.monotonic()
    stage.ring.start_node(victim)
    recover(stage, seen, repaired, options)
    stage.check_alive(pids)
    return seen


# ---- Cables


def play_blink(end):
    def play(stage, victim, options):
        return blink(stage, options, lambda: stage.network.cable(victim, False, end),
                     lambda: stage.network.cable(victim, True, end))

    return play


def broken(stage, options, breaks, mends, names_for, down):
    """Breaks the network for `down` seconds, or until all trainers have failed if that is later. An error of rank r
    must name one of the ranks names_for(r)."""
    pids = stage.pids()
    seen = Seen()
    stage.stream(options.codec)
    since = time.monotonic()
    breaks()
    try:
        events = stage.failures(stage.everyone)
        for rank, event in events.items():
            expect_named(seen, {rank: event}, since, names_for(rank))
        time.sleep(max(0.0, since + down - time.monotonic()))
    finally:
        mends()
    recover(stage, seen, time.monotonic(), options)
    stage.check_alive(pids)
    return seen


def play_cable(end):
    def play(stage, victim, options):
        """Takes a cable down. The node that is cut off cannot know that it is, so its errors name a neighbour."""
        neighbours = {(victim - 1) % stage.nodes, (victim + 1) % stage.nodes}
        return broken(stage, options, lambda: stage.network.cable(victim, False, end),
                      lambda: stage.network.cable(victim, True, end),
                      lambda rank: neighbours if rank == victim else {victim}, options.cable_down)

    return play


def play_partition(stage, victim, options):
    half = stage.nodes // 2
    first = {(victim + i) % stage.nodes for i in range(half)}
    second = set(stage.everyone) - first
    return broken(stage, options, lambda: stage.network.partition([sorted(first), sorted(second)]), stage.network.heal,
                  lambda rank: second if rank in first else first, 0)


# ---- Trainers


def play_trainer(stage, victim, options):
    pids = stage.pids()
    seen = Seen(names={victim})
    stage.stream(options.codec)
    since = time.monotonic()
    stage.kill_trainer(victim)
    expect_named(seen, stage.failures(others_than(stage, [victim])), since, [victim])
    repaired = time.monotonic()
    stage.new_trainer(victim)
    recover(stage, seen, repaired, options)
    stage.check_alive(pids)
    return seen


def play_absent_trainer(stage, victim, options):
    """Kills the victim's trainer while the other trainers wait for it."""
    pids = stage.pids()
    seen = Seen(names={victim})
    others = others_than(stage, [victim])
    stage.begin(others)
    time.sleep(0.5)
    since = time.monotonic()
    stage.kill_trainer(victim)
    expect_named(seen, stage.failures(others), since, [victim])
    repaired = time.monotonic()
    stage.new_trainer(victim)
    recover(stage, seen, repaired, options)
    stage.check_alive(pids)
    return seen


def play_early_trainer(stage, victim, options):
    """Replaces the victim's trainer by two that die before their first operation, and then by one that stays. The other
    trainers get an error at each attempt before that."""
    pids = stage.pids()
    seen = Seen(names={victim})
    stage.stream(options.codec)
    since = time.monotonic()
    stage.kill_trainer(victim)
    expect_named(seen, stage.failures(others_than(stage, [victim])), since, [victim])
    for _ in range(2):
        stage.new_trainer(victim)
        stage.open()
        stage.kill_trainer(victim)
    repaired = time.monotonic()
    stage.new_trainer(victim)
    seen.tries = stage.recover(late=victim)
    seen.recovered = time.monotonic() - repaired
    stage.check_alive(pids)
    return seen


ALL, CABLES = ("veth", "udp", "vhost"), ("veth", "udp")
ROWS = [
    Row("kill", "a daemon is killed, and restarted when all have noticed", ALL, play_kill, short=ALL),
    Row("restart", "a daemon is killed and restarted at once", ALL,
        lambda *args: play_kill(*args, at_once=True)),
    Row("two", "two neighbours are killed", ALL, lambda *args: play_kill(*args, victims=2)),
    Row("every", "all daemons are killed", ALL, lambda stage, *args: play_kill(stage, *args, victims=stage.nodes)),
    Row("stop", "a daemon is stopped (SIGSTOP), and continued when all have noticed", ALL, play_stop),
    Row("hang", "a daemon is stopped, and continued when its own trainer has given it up", ALL, play_hang),
    Row("pause", "a daemon is stopped for 500 ms", ALL, play_pause, pause=True),
    Row("idle-kill", "a daemon is killed while nothing is in flight, then operations begin", ALL, play_idle_kill),
    Row("trainer", "a trainer is killed, and another takes its place", ALL, play_trainer),
    Row("absent-trainer", "a trainer is killed before it begins what the others have begun", ALL,
        play_absent_trainer),
    Row("early-trainer", "a trainer is killed, and two more before their first operation; the next comes a second late",
        ALL, play_early_trainer),
    Row("blink", "a cable is down for 500 ms, at the node", CABLES, play_blink("node"), pause=True),
    Row("blink-switch", "a cable is down for 500 ms, at the switch", CABLES, play_blink("switch"), pause=True),
    Row("cable", "a cable is down for 10 s, at the node", CABLES, play_cable("node"), short=("veth",)),
    Row("cable-switch", "a cable is down for 10 s, at the switch", CABLES, play_cable("switch")),
    Row("partition", "the switch is parted in two", CABLES, play_partition, short=("udp",)),
]
