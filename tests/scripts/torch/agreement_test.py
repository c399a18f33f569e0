#!/usr/bin/python3
"""Visits all states of a few processes that agree on members, in small cases. The class Agreement runs; the store is a
model. It executes requests at any time, loses answers, and executes requests that were sent twice or before a crash.

    python3 -m tests.scripts.torch.agreement_test [unittest's arguments]

GRADLANE_THOROUGH=1 takes larger cases.

A state has the fields of each process's Agreement, the keys of the store, the requests that the store will execute
late, and the faults that may still happen. A process does nothing between a request and its answer, so the model takes
both at once: others could not see the difference.
"""

import copy
import gc
import json
import os
import time
import unittest
from typing import NamedTuple

from gradlane.torch.elastic.agreement import Agreement, Create, Phase

THOROUGH = "GRADLANE_THOROUGH" in os.environ
CRASHED = -1  # in place of the number of a process's state
STOPPED = (Phase.EXPELLED, Phase.ENDED)


class Violation(Exception):
    """A property does not hold."""


class Put(NamedTuple):
    """Overwrites a key. Only faulty versions of Agreement ask for it."""

    key: str
    value: str


# Faults that may still happen: a number with three bits for each kind.
KINDS = ("crashes",
         "failures",  # a member ends its epoch, and no other has
         "suspicions",  # a member excludes another one that runs
         "leaves",
         "losses",  # answers of the store that are lost
         "late")  # requests that are executed a second time, or after the end of the process
ONE = {kind: 1 << 3 * index for index, kind in enumerate(KINDS)}
CRASH, LATE = ONE["crashes"], ONE["late"]


class Process:
    """A state of one process: its Agreement, and the latest epoch that it has ended. It never changes."""

    def __init__(self, agreement, reported):
        self.agreement, self.reported = agreement, reported
        self.request = agreement.request()
        self.fields = freeze(agreement)
        check(self.request == agreement.request() and self.fields == freeze(agreement), "a repeated request differs")
        self.phase, self.id, self.epoch = agreement.phase, agreement.id, agreement.epoch
        self.members, self.awaited = frozenset(agreement.members), agreement.awaited

    def change(self, event, *arguments):
        """Returns a copy in which the event, a function of Agreement, has happened."""
        new = copy.copy(self.agreement)
        for name, value in vars(new).items():
            if isinstance(value, dict):
                setattr(new, name, dict(value))
        event(new, *arguments)
        return Process(new, self.epoch if event.__name__ == "report" else self.reported)


def freeze(agreement):
    return tuple(tuple(value.items()) if isinstance(value, dict) else value for value in vars(agreement).values())


def check(holds, text):
    if not holds:
        raise Violation(text)


class Search:
    """All states that some processes can reach.

    processes: number of processes, of which `founders` start the training. faults: how many of each kind may happen.
    founded: whether the search starts when all founders are members. every: whether it also visits the states that
    _is_alone() finds needless. kind: the class that runs in place of Agreement.

    A state is a tuple: the number of each process's state, the number of the store's contents, the numbers of the
    states of processes whose requests are executed late, and the faults that are left.
    """

    def __init__(self, processes, founders, founded=False, every=False, kind=Agreement, **faults):
        self.count, self.founders, self.every, self.kind = processes, founders, every, kind
        self.processes, self._process_numbers = [], {}
        self.stores, self._store_numbers = [], {}
        self._owners, self._latest, self._members = [], [], []  # by store; the last two are of the latest record
        self._stopped = {CRASHED}  # numbers of the states in which a process does not run
        self._steps, self._changes, self._moves, self._fair, self._checked = {}, {}, {}, {}, set()
        own = tuple(self._add(Process(kind(f"{it}", founders), 0)) for it in range(processes))
        self.first = *own, self._add_store({}), (), sum(ONE[it] * number for it, number in faults.items())
        while founded and any(self.processes[it].phase is not Phase.MEMBER for it in self.first[:founders]):
            self.first = self._run_fairly(self.first, range(founders))

    def run(self):
        """Visits all states. Returns their number. Raises Violation."""
        parents = {self.first: None}
        waiting = [self.first]
        good = set()
        state = self.first
        try:
            for state in waiting:
                self._check(state)
                for new in self._successors(state):
                    if new not in parents:
                        parents[new] = state
                        waiting.append(new)
            for state in waiting:
                self._check_end(state, good)
        except Violation as violation:
            raise Violation(f"{violation}, after:\n{self._trace(parents, state)}") from None
        return len(parents)

    # ---- States of one process, and contents of the store

    def _add(self, process):
        """Returns the process's number."""
        key = process.fields, process.reported
        if key not in self._process_numbers:
            self._process_numbers[key] = len(self.processes)
            if process.phase in STOPPED:
                self._stopped.add(len(self.processes))
            self.processes.append(process)
        return self._process_numbers[key]

    def _add_store(self, contents):
        """Returns the number of the contents of a store."""
        key = frozenset(contents.items())
        if key not in self._store_numbers:
            self._store_numbers[key] = len(self.stores)
            self.stores.append(contents)
            # A process's first card is its index.
            self._owners.append({int(name[5:]): int(card) for name, card in contents.items() if name[:5] == "join/"})
            latest = max([int(name[7:]) for name in contents if name[:7] == "record/"], default=0)
            self._latest.append(latest)
            self._members.append([int(it) for it in json.loads(contents.get(f"record/{latest}", "{}"))])
        return self._store_numbers[key]

    def _change(self, number, event, *arguments):
        """Returns the number of the process's state after the event."""
        key = number, event, arguments
        if key not in self._changes:
            self._changes[key] = self._add(self.processes[number].change(event, *arguments))
        return self._changes[key]

    def _step(self, number, store):
        """Executes the request of a process. Returns its state and the store afterwards."""
        key = number, store
        if key not in self._steps:
            request, contents = self.processes[number].request, self.stores[store]
            if isinstance(request, Put) or isinstance(request, Create) and request.key not in contents:
                contents = {**contents, request.key: request.value}
                self._check_write(self.processes[number], request, self.stores[store])
            self._steps[key] = (self._change(number, self.kind.answer, contents.get(request.key)),
                                self._add_store(contents))
        return self._steps[key]

    # ---- Transitions

    def _successors(self, state):
        """Returns the states that can follow."""
        count = self.count
        store, late, faults = state[count:]
        own = state[:count]
        found = []
        for number in late:
            if self._is_later(number, store):
                continue
            rest = list(late)
            rest.remove(number)
            written = self._step(number, store)[1]
            found.append((*own, written, self._drop(rest, written), faults))
        gone = self._gone(state)
        for index, number in enumerate(own):
            if gone >> index & 1:
                continue
            before, behind = state[:index], state[index + 1:count]
            moves = self._moves.get((number, store, gone))
            if moves is None:
                moves = self._moves[number, store, gone] = list(self._list_moves(index, number, store, gone))
            if not self.every and self._is_alone(number, store, faults):
                return [(*before, moves[0][0], *behind, store, late, faults)]
            for after, written, cost in moves:
                if not cost or faults & 7 * cost:
                    left = self._drop(late, written) if late and written != store else late
                    found.append((*before, after, *behind, written, left, faults - cost))
            if faults & 7 * LATE and self._step(number, store)[1] != store:
                found.append((*own, store, tuple(sorted((*late, number))), faults - LATE))
        return found

    def _list_moves(self, index, number, store, gone):
        """Yields what a process can do: its state and the store afterwards, and the fault that it is, or 0."""
        process = self.processes[number]
        if not self._is_later(number, store):
            after, written = self._step(number, store)
            yield after, written, 0
            if written != store:
                yield number, written, ONE["losses"]
        yield CRASHED, store, CRASH
        for event, arguments, cost in self._list_events(process, index, store, gone):
            yield self._change(number, event, *arguments), store, cost

    def _is_alone(self, number, store, faults):
        """Returns whether it is enough to look at the process's request as the next event of all. It reads a key that
        exists, so nobody else sees a difference, and what else may happen can as well happen afterwards."""
        process = self.processes[number]
        key = process.request.key
        if key not in self.stores[store] or process.id not in process.members and faults & 7 * ONE["leaves"]:
            return False
        if process.phase is Phase.MEMBER:
            return not process.agreement.called
        return process.phase in (Phase.JOIN, Phase.START, Phase.FOLLOW, Phase.PROPOSE) or (
            process.phase is Phase.COLLECT and key[:6] == "record")

    def _is_later(self, number, store):
        """Returns whether a process would create its join/N before those before it. All start in the same way, so it is
        enough to look at cases in which they create these in the order of their indices."""
        process, owners = self.processes[number], self._owners[store]
        return (process.phase is Phase.JOIN and process.id not in owners
                and process.agreement.card != f"{len(owners)}")

    def _list_events(self, process, index, store, gone):
        """Yields the events that may happen at a process: function, arguments, and the fault that it is, or 0."""
        contents, owners = self.stores[store], self._owners[store]
        if process.phase is Phase.MEMBER:
            epoch, joining = process.epoch, process.agreement.joining
            card = f"{index} of epoch {epoch + 1}"
            expected = process.agreement.called or any(
                gone >> owners[it] & 1 or f"report/{epoch}/{it}" in contents for it in process.members)
            yield self.kind.report, (card,), 0 if expected else ONE["failures"]
            for settled in (False, True):
                yield self.kind.report, (card, False, settled, False), ONE["failures"]  # daemons have not connected
            yield self.kind.report, (card, True), ONE["leaves"]
            for it, owner in owners.items():
                if it in joining:
                    if gone >> owner & 1:
                        yield self.kind.forget, (it,), 0
                elif not gone >> owner & 1 and it not in process.agreement.known:
                    yield self.kind.admit, (it, f"{owner}"), 0
        elif process.phase in (Phase.CALL, Phase.COLLECT):
            for it in process.awaited:
                yield self.kind.exclude, ((it,),), 0 if gone >> owners[it] & 1 else ONE["suspicions"]
        if process.id not in process.members:
            yield self.kind.withdraw, (), ONE["leaves"]

    def _drop(self, late, store):
        """Returns the late requests without those that cannot have an effect any more."""
        contents = self.stores[store]
        return tuple(it for it in late if not isinstance(self.processes[it].request, Create)
                     or self.processes[it].request.key not in contents)

    def _gone(self, state):
        """Returns a bit for each process that has stopped, so that others find that it does not live."""
        gone = 0
        for index in range(self.count):
            if state[index] in self._stopped:
                gone |= 1 << index
        return gone

    # ---- Properties

    def _check_write(self, process, request, before):
        """Checks a write to the store."""
        name, value = request.key, request.value
        check(before.get(name, value) == value, f"{name} changes")
        kind, _, epoch = name.partition("/")
        if kind != "record" or int(epoch) == 1:
            return
        epoch = int(epoch) - 1
        new = {int(it) for it in json.loads(value)}
        old = {int(it) for it in json.loads(before[f"record/{epoch}"])}
        check(not new or new & old, "no member of the new epoch was one of the previous epoch")
        reports = {it: json.loads(before[f"report/{epoch}/{it}"]) for it in old if f"report/{epoch}/{it}" in before}
        # If no daemons have connected, those that are not settled are dropped if others stay.
        dropped = {it for it, report in reports.items() if not report[2]} - process.agreement.excluded
        if any(report[3] for report in reports.values() if not report[1]) or not new - dropped:
            dropped = set()
        for it in old - process.agreement.excluded - dropped:
            check(it in reports and reports[it][1] or it in new, f"process {it} is lost: {process.id} has not excluded it")
        staying = [dict(reports[it][4]) for it in new & old]
        check(all(it in joining for it in new - old for joining in staying), "a process joins that not all have admitted")
        if new:
            check(new >= set.intersection(*map(set, staying)), "a process is lost that all have admitted")

    def _check(self, state):
        """Checks each process of a state against the store."""
        store = state[self.count]
        for index, number in enumerate(state[:self.count]):
            if number != CRASHED and (number, store) not in self._checked:
                self._checked.add((number, store))
                self._check_process(self.processes[number], index, self.stores[store])

    def _check_process(self, process, index, contents):
        is_member = process.id in process.members
        if process.phase not in (Phase.JOIN, Phase.ENDED):
            check(contents[f"join/{process.id}"] == str(index), f"two processes have id {process.id}")
        if process.epoch > 0:
            record = json.loads(contents[f"record/{process.epoch}"])
            check({str(it): card for it, card in process.agreement.members.items()} == record,
                  f"epoch {process.epoch} has two memberships")
        if process.phase is Phase.MEMBER:
            check(is_member, "a process is a member, and is not in the record")
            check(process.epoch > process.reported and f"report/{process.epoch}/{process.id}" not in contents,
                  "a process is a member of an epoch that it has ended")
        if process.phase is Phase.EXPELLED:
            check(not is_member, "a member is expelled")
        if process.phase is Phase.ENDED:
            check(process.agreement.leaving or not is_member, "a member has ended, and has not left")

    # ---- Progress

    def _run_fairly(self, state, indices):
        """Returns the state after each of these processes has done what it does next if there are no more faults."""
        *own, store, late, faults = state
        gone = self._gone(state)
        for index in indices:
            if not gone >> index & 1:
                key = own[index], store, gone, self._have_admitted(own, store, gone)
                if key not in self._fair:
                    self._fair[key] = self._find_fair_move(index, *key)
                own[index], written = self._fair[key]
                if written != store:
                    store, late = written, self._drop(late, written)
                if own[index] in self._stopped:
                    gone |= 1 << index
        return *own, store, late, faults

    def _have_admitted(self, own, store, gone):
        """Returns whether all members of the latest epoch have admitted the same process, so that they end the epoch."""
        owners = self._owners[store]
        members = [self.processes[own[owners[it]]] for it in self._members[store] if not gone >> owners[it] & 1]
        return (all(it.phase is Phase.MEMBER and it.epoch == self._latest[store] for it in members) and bool(
            members and set.intersection(*(set(it.agreement.joining) for it in members))))

    def _find_fair_move(self, index, number, store, gone, ends):
        process, owners = self.processes[number], self._owners[store]
        agreement = process.agreement
        # A member does not know that others have reported, unless it is called. It knows whether others run.
        reports = ends or agreement.called or any(gone >> owners[it] & 1 for it in agreement.members)
        for event, arguments, cost in self._list_events(process, index, store, gone):
            if reports if event is self.kind.report else not cost:
                return self._change(number, event, *arguments), store
        return self._step(number, store)

    def _check_end(self, state, good):
        """Checks that all processes reach the latest epoch, or stop, if each runs in turn. good: states that do."""
        state = *state[:self.count + 1], (), 0
        path = set()
        while state not in good and state not in path:
            path.add(state)
            if self._is_end(state):
                break
            state = self._run_fairly(state, range(self.count))
        else:
            check(state in good, f"the processes wait for ever in\n{self._text(state)}\n")
        good.update(path)

    def _is_end(self, state):
        """Returns whether every process is a member of the latest epoch or has stopped, or waits for processes that do
        not exist."""
        store, gone = state[self.count], self._gone(state)
        contents, owners, latest = self.stores[store], self._owners[store], self._latest[store]
        living = [self.processes[number] for number in state[:self.count] if number not in self._stopped]
        if latest == 0:
            missing = any(it + 1 not in owners for it in range(self.founders))
            return not living or missing and all(it.phase in (Phase.START, Phase.FOLLOW) for it in living)
        members = self._members[store]
        if any(it.epoch != latest for it in living):
            return False
        if members and all(gone >> owners[it] & 1 for it in members):  # nobody can let a process in any more
            return all(it.phase is Phase.FOLLOW and it.id not in it.agreement.known for it in living)
        return (all(it.phase is Phase.MEMBER and not it.agreement.called and not it.agreement.joining for it in living)
                and f"ended/{latest}" not in contents and not any(gone >> owners[it] & 1 for it in members))

    # ---- Text

    def _trace(self, parents, state):
        states = []
        while state is not None:
            states.append(state)
            state = parents[state]
        return "\n".join(map(self._text, reversed(states)))

    def _text(self, state):
        *own, store, late, _ = state
        parts = []
        for number in own:
            process = None if number == CRASHED else self.processes[number]
            parts.append("crashed" if process is None else f"{process.phase.name} {process.id} epoch {process.epoch}")
        contents = self.stores[store]
        records = "".join(f" {it}={contents[it]}" for it in contents if it[:6] == "record")
        others = " ".join(sorted(it for it in contents if it[:6] != "record"))
        missing = f", late {[self.processes[it].request.key for it in late]}" if late else ""
        return f"  {'; '.join(parts)}{missing};{records} {others}"


# ---- Faulty versions of Agreement: with each, one property does not hold


class Overwrites(Agreement):
    """The last record counts, not the first."""

    def request(self):
        request = super().request()
        return Put(*request) if self.phase is Phase.PROPOSE else request


class Hasty(Agreement):
    """Proposes a record before all members have reported."""

    def answer(self, value):
        super().answer(value)
        if self.phase is Phase.COLLECT:
            self.phase = Phase.PROPOSE


class Trusting(Agreement):
    """Believes that it has the first id that it asks for."""

    def answer(self, value):
        super().answer(self.card if self.phase is Phase.JOIN else value)


class Stubborn(Agreement):
    """Goes on in its epoch after it has reported."""

    def answer(self, value):
        super().answer(value)
        if self.phase is Phase.CALL:
            self.phase = Phase.MEMBER


class Local(Agreement):
    """Believes in the record that it has proposed."""

    def answer(self, value):
        super().answer(self.request().value if self.phase is Phase.PROPOSE else value)


class Heirs(Agreement):
    """Continues the training with processes that join, after all members have left."""

    def request(self):
        if self.phase is Phase.PROPOSE and all(it.leaving for it in self.reports.values()):
            return Create(f"record/{self.epoch + 1}", json.dumps(self.joining))
        return super().request()


class Silent(Agreement):
    """Does not call the others."""

    def answer(self, value):
        super().answer(value)
        if self.phase is Phase.CALL:
            self._collect()


class Patient(Agreement):
    """Waits for the reports of excluded members, too."""

    def exclude(self, members):
        pass


class Eager(Agreement):
    """Is a member of each epoch that it has seen, and does not look for a newer record."""

    def answer(self, value):
        super().answer(value)
        if self.phase is Phase.FOLLOW and self.epoch > 0:
            self.phase = Phase.MEMBER


class Forgetful(Agreement):
    """Lets nobody in."""

    def answer(self, value):
        super().answer(value)
        self.reports = {it: report._replace(joining=()) for it, report in self.reports.items()}


class Generous(Agreement):
    """Lets in each process that it has admitted itself."""

    def answer(self, value):
        super().answer(value)
        own = tuple(self.joining.items())
        self.reports = {it: report._replace(joining=own) for it, report in self.reports.items()}


class Properties(unittest.TestCase):
    def setUp(self):
        gc.disable()  # it would look at all states again and again
        self.addCleanup(gc.enable)

    def search(self, *arguments, **faults):
        start = time.monotonic()
        count = Search(*arguments, **faults).run()
        print(f"{count} states in {time.monotonic() - start:.1f} s", flush=True)

    def test_start(self):
        self.search(3, 3, crashes=2, losses=1, late=1)

    def test_crashes(self):
        self.search(3, 3, True, crashes=2, suspicions=2, late=1)

    def test_failures(self):
        self.search(3, 3, True, failures=1, suspicions=1)

    def test_leaves(self):
        self.search(3, 3, True, crashes=1, leaves=1)

    def test_joiner(self):
        self.search(3, 2, True, crashes=1, failures=1, losses=1)
        self.search(3, 2, True, crashes=1, leaves=1, suspicions=1)

    def test_four(self):
        self.search(4, 3, crashes=1)

    @unittest.skipUnless(THOROUGH, "takes minutes")
    def test_more_faults(self):
        self.search(3, 3, every=True, crashes=1, losses=1, late=1)
        self.search(3, 3, True, crashes=1, failures=1, suspicions=1)
        self.search(3, 3, True, crashes=2, suspicions=2, losses=2, late=2)
        self.search(3, 2, True, failures=1, leaves=1, suspicions=1)

    @unittest.skipUnless(THOROUGH, "takes minutes")
    def test_four_founders(self):
        self.search(4, 4, True, crashes=1)

    def test_faulty_versions(self):
        for kind, text, arguments, faults in (
            (Overwrites, "record/2 changes", (2, 2, True), {"suspicions": 1, "failures": 1}),
            (Hasty, "is lost", (2, 2, True), {"failures": 1}),
            (Trusting, "two processes have id 1", (2, 2), {}),
            (Stubborn, "a member of an epoch that it has ended", (2, 2, True), {"failures": 1}),
            (Local, "epoch 2 has two memberships", (2, 2, True), {"failures": 1, "suspicions": 1}),
            (Heirs, "no member of the new epoch was one of the previous", (2, 1, True), {"leaves": 1}),
            (Silent, "wait for ever", (2, 2, True), {"failures": 1}),
            (Patient, "wait for ever", (2, 2, True), {"crashes": 1}),
            (Forgetful, "a process is lost that all have admitted", (3, 2, True), {"failures": 1}),
            (Generous, "joins that not all have admitted", (3, 2, True), {"failures": 1}),
            (Eager, "is a member, and is not in the record", (2, 1), {}),
        ):
            with self.subTest(kind.__name__):
                Search(*arguments, **faults).run()
                with self.assertRaisesRegex(Violation, text):
                    Search(*arguments, kind=kind, **faults).run()


if __name__ == "__main__":
    unittest.main(verbosity=2)
