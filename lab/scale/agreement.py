"""agreement.py - how processes of a World agree on members: by the class Agreement, and by a prototype with groups"""

import functools
import importlib.util
import itertools
import json
import pathlib
import sys

from lab.scale.world import LATE, Probe, Process, Sleep, Wait, World, places

LATE_S = 5.0  # time limit of a report, as _REPORT_S of agent.py; a wait exceeds that of the member it waits for
POLL_S, JOIN_POLL_S = 0.005, 0.05  # as in agent.py


def load_module():
    """Returns the module of the class Agreement. An import of its package would need PyTorch."""
    path = pathlib.Path(__file__).resolve().parents[2] / "client/python/gradlane/torch/elastic/agreement.py"
    spec = importlib.util.spec_from_file_location("lab.scale.flat", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


flat = load_module()
Agreement, Create, Get, Phase = flat.Agreement, flat.Create, flat.Get, flat.Phase


# ---- One group


def flat_change(process):
    """Does what agent.py does from the end of an epoch to the next, or from the start to epoch 1."""
    it = process.agreement
    if it.phase is Phase.MEMBER:
        it.report(it.card)
    while it.phase not in (Phase.MEMBER, Phase.EXPELLED, Phase.ENDED):
        before = it.phase, it.epoch, it.id, len(it.reports)
        it.answer((yield it.request()))
        if before == (it.phase, it.epoch, it.id, len(it.reports)):
            if it.phase is Phase.COLLECT:
                it.exclude((yield Probe(tuple(it.awaited), parallel=False)))
            yield Sleep(POLL_S if it.id in it.members else JOIN_POLL_S)
    assert it.id == process.id  # requests are served in the order of processes, so ids are their numbers
    return str(it.members), (tuple(sorted(it.members)),)


def begin_flat(count, request_s):
    """Returns a world with processes that start to agree on epoch 1."""
    world = World(flat_change, request_s)
    world.processes = {number: Process(number) for number in range(1, count + 1)}
    for process in world.processes.values():
        process.agreement = Agreement(f"card of {process.id}", count)
        world.start(process)
    return world


# ---- Groups


def group_change(process):
    """Ends the epoch of a member. Keys, each of which is created once and never changes:

        report/E/G/N  process N of group G starts no operation of epoch E any more
        group/E/G     the members of group G that have reported
        record/E      the members of epoch E - 1 that epoch E has not. All follow the first one.
        copy/E/G      a copy of record/E for group G

    The first living member of a group leads it. The leader of the first group with a living member coordinates.
    Members may disagree about who lives. Then several lead or coordinate, and the first of each key counts. A member
    that the record names is expelled, as in the class Agreement."""
    epoch, groups, own = process.epoch, process.groups, process.id
    mine, gone = places(groups)[own][0], set()
    yield Create(f"report/{epoch}/{mine}/{own}", "")
    copy, limit_s = f"copy/{epoch + 1}/{mine}", LATE_S
    while (leader := next(it for it in groups[mine] if it not in gone)) != own:
        record = yield Wait(copy, leader, limit_s)
        if isinstance(record, str):
            return record, shrink(groups, record)
        if record is LATE and limit_s == LATE_S and (yield Get(f"group/{epoch}/{mine}")) is not None:
            limit_s = 4 * LATE_S  # the leader waits for other leaders, who may be late
        else:
            limit_s = LATE_S
            yield from exclude(leader, record, groups[mine], gone)
    record = (yield Get(f"record/{epoch + 1}")) or (yield from lead(epoch, groups, mine, own, gone))
    yield Create(copy, record)
    return record, shrink(groups, record)


def lead(epoch, groups, mine, own, gone):
    """Collects the reports of a group. Returns the next record."""
    reported = {own}
    for it in groups[mine]:
        if it != own and it not in gone:
            answer = yield Wait(f"report/{epoch}/{mine}/{it}", it, LATE_S)
            if isinstance(answer, str):
                reported.add(it)
            else:
                yield from exclude(it, answer, set(groups[mine]) - reported, gone)
    summaries = {mine: (yield Create(f"group/{epoch}/{mine}", json.dumps(sorted(reported))))}
    for index in range(mine):
        record = yield from ask(f"record/{epoch + 1}", groups[index], gone, 3 * LATE_S)
        if record is not None:
            return record
    for index, group in enumerate(groups):  # this member coordinates
        if index != mine:
            summaries[index] = yield from ask(f"group/{epoch}/{index}", group, gone, 2 * LATE_S)
    stay = set(itertools.chain(*(json.loads(it) for it in summaries.values() if it)))
    return (yield Create(f"record/{epoch + 1}", json.dumps(sorted(set(itertools.chain(*groups)) - stay))))


def ask(key, group, gone, limit_s):
    """Returns the value of a key that the leader of a group creates, or None if all members are gone."""
    for it in group:
        if it not in gone:
            answer = yield Wait(key, it, limit_s)
            if isinstance(answer, str):
                return answer
            yield from exclude(it, answer, group, gone)
    return None


def exclude(process, answer, others, gone):
    """Adds a process to those that this one does not wait for. If it is dead, checks the others, too."""
    gone.add(process)
    if answer is not LATE:
        gone |= yield Probe(tuple(set(others) - gone))


@functools.lru_cache(8)
def shrink(groups, record):
    """Returns the groups without those that a record names. If one has less than half of the members of another, all
    members form as many groups of equal sizes."""
    lost = set(json.loads(record))
    groups = tuple(kept for group in groups if (kept := tuple(it for it in group if it not in lost)))
    if 2 * min(map(len, groups)) < max(map(len, groups)):
        members, count = sorted(itertools.chain(*groups)), len(groups)
        groups = tuple(tuple(members[len(members) * it // count:len(members) * (it + 1) // count]) for it in range(count))
    return groups
