#!/usr/bin/python3
"""Tests the steps of an elastic training under random failures. The time is virtual, and no daemons are needed.

Each schedule runs the product's Training, Steps, Agent and Agreement of up to 16 processes. The store, the rings and
the model are simulated. Processes crash, stop and go on, are suspected although they live, leave and join. Operations
complete on some members and fail on others. Every process that completes the training must have the state of a
training without failures.

The user's code of each process runs in a thread, but only one thread runs at a time, so a seed always gives the same
schedule. STEPS_SEED=N runs only schedule N, and prints its events. STEPS_TIMES=N runs N schedules.
"""

import atexit
import collections
import hashlib
import heapq
import itertools
import json
import os
import random
import threading
import time
import types
import unittest
import unittest.mock

from gradlane import errors
from gradlane.torch.elastic import agent as agent_module
from gradlane.torch.elastic import training as training_module
from gradlane.torch.elastic.agreement import Phase
from gradlane.torch.elastic.ring import Card
from gradlane.torch.elastic.steps import ATTEMPTS, RingFailed, Steps, TransferFailed
from gradlane.torch.elastic.store import StoreFailed

THOROUGH = os.environ.get("GRADLANE_THOROUGH") == "1"
TIMES = int(os.environ.get("STEPS_TIMES", "10000" if THOROUGH else "300"))
SEED = os.environ.get("STEPS_SEED")

# seconds of virtual time
PEER_S = 0.3  # after a member has died, operations fail within this time
TIMEOUT_S = 3.0  # time limit of an operation
REPORT_S = 5.0  # _REPORT_S of the agent; shorter in some schedules, so that slow members are expelled
CONNECT_S = 2.0  # time limit for the daemons of an epoch to connect
LOOK_S = 0.1  # _LOOK_S of the agent
DISTURBED_S = 12.0  # nothing fails after this time
ADMIT_S = 30.0  # a process waits no longer for its admission when nothing fails; a pause takes 15 s of that
LIMIT_S = 300.0  # a process that still runs at this time hangs


class Killed(BaseException):
    """The process has crashed."""


def mix(*parts):
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest(), "little")


# ---- Model


def contribution(value, scale, step, shard):
    return mix("contribution", value, scale, step, shard)


def scale_needed(value, step, shard):
    return mix("needed", value, step, shard) % 4 if shard % 3 == 0 else 0


def next_state(value, scale, total):
    return mix("state", value, scale, total), mix("scale", scale, total) % 4 + 1


def undisturbed(value, scale, shards, steps):
    """Returns the values after each step of a training on one process."""
    values = [value]
    for step in range(steps):
        scale = max(scale, *(scale_needed(value, step, shard) for shard in range(shards)))
        total = sum(contribution(value, scale, step, shard) for shard in range(shards))
        value, scale = next_state(value, scale, total)
        values.append(value)
    return values


class IntegerModel:
    """A model whose state is a number, the hash of all before it. Each contribution depends on the state.

    The scale stands for the exponents of Gradients. If it is below what a shard needs, check() makes it larger and
    refuses the attempt.
    """

    def __init__(self, process, shards, value, wrong):
        self.process, self.shards, self.wrong = process, shards, wrong
        self.value, self.scale, self.done = value, 1, 0
        self.computes = None
        self.transfer, self.sent, self.kept, self.own_scale = None, [], [], None
        self.start_step()

    def start_step(self):
        self.total, self.counts, self.needed = 0, 0, 0

    def start_shard(self, step, shard):
        self.process.expect(step == self.done, f"computes a shard of step {step}, its state is that of {self.done}")
        self.computes = (self.value, self.scale, step, shard)

    def add_shard(self, shard, counts, hashed):
        number = contribution(*self.computes) + self.wrong
        if counts:
            self.total += number
            self.counts += 1 << 8 * shard
            self.needed = max(self.needed, scale_needed(self.value, self.done, shard))
        return number if hashed else 0

    def magnitudes(self):
        return [self.needed]

    def check(self, magnitudes):
        needed = max(row[0] for row in magnitudes)
        fits = needed <= self.scale
        self.scale = max(self.scale, needed)
        return fits

    def sum(self, ring):
        own = self.total, self.counts
        self.result = ring.sum(own[0]), ring.sum(own[1])

    def state_hash(self, step):
        self.process.expect(step in (self.done, None), f"is in step {step} with the state of step {self.done}")
        return self.value % (1 << 62)

    def apply(self, step):
        self.apply_result(self.scale, *self.result)

    def apply_result(self, scale, total, counts):
        self.process.expect(counts == sum(1 << 8 * shard for shard in range(self.shards)),
                            f"step {self.done}: shards are missing, or count twice: {counts:x}")
        world = self.process.world
        if not self.wrong:
            self.process.expect(world.values.setdefault(self.done, self.value) == self.value,
                                f"step {self.done} begins with another state")
        self.value, self.scale = next_state(self.value, scale, total)
        self.value += self.wrong
        self.done += 1
        if not self.wrong:
            self.process.expect(world.values.setdefault(self.done, self.value) == self.value,
                                f"step {self.done - 1} has another result")
        world.log(self.process, f"has completed step {self.done - 1}")

    def send_state(self, ring, source, takes):
        own = [self.value, self.scale, self.done] if ring.index == source else []
        size = ring.gather([len(own)])[source][0]
        state = ring.broadcast(own, source)
        assert len(state) == size
        if takes:
            self.load(state)

    def load(self, state):
        self.process.expect(state[2] >= self.done or not self.process.steps._is_proven,
                            f"goes back from step {self.done} to {state[2]}")
        self.process.newest = min(self.process.newest, state[2])
        self.value, self.scale, self.done = state
        world = self.process.world
        self.process.expect(world.values.get(self.done, self.value) == self.value, "takes over a wrong state")
        world.log(self.process, f"has taken over the state of step {self.done}")

    def start_transfers(self, ring, sources):
        rows = ring.gather([self.value, self.scale, self.done])
        if ring.index in sources:
            source = sources[ring.index]
            self.own_scale, self.scale = self.scale, rows[source][1]
            self.transfer = ring.shared.transfer(ring.index, source)
            self.transfer.state = rows[source]
            world = self.process.world
            world.after(world.delay_below(world.transfer_s), None, self.transfer.arrive)
        self.sent = [ring.shared.transfer(taker, ring.index) for taker, it in sources.items() if it == ring.index]

    def follow(self, step):
        self.kept.append((step, self.scale, *self.result))
        self.scale = next_state(0, self.scale, self.result[0])[1]

    def close(self):
        pass

    def catch_up(self, ring, wait, begin):
        transfer = self.transfer
        while (wait or len(self.kept) > 4) and not transfer.arrived and not transfer.failed:
            if ring.failed:
                raise RingFailed(ring.failed)
            self.process.block(0.05)
        if transfer.failed:
            raise TransferFailed("the state has not arrived")
        if not transfer.arrived:
            return False
        scale = self.scale
        self.load(transfer.state)
        for step, scale_then, total, counts in self.kept:
            self.process.expect(step == self.done, f"has kept step {step} for the state of step {self.done}")
            begin(step)
            self.process.expect(self.process.steps.step == step, "has another step in hooks")
            self.apply_result(scale_then, total, counts)
        self.scale, self.own_scale = scale, None
        self.end_transfers()
        self.start_step()
        return True

    def end_transfers(self):
        for it in self.sent:
            it.fail()
        self.transfer, self.sent, self.kept = None, [], []
        if self.own_scale is not None:
            self.scale, self.own_scale = self.own_scale, None


# ---- Rings


class Operation:
    def __init__(self, kind):
        self.kind = kind
        self.values = {}
        self.done = set()


class Transfer:
    """A state on its way."""

    def __init__(self):
        self.state = None
        self.arrived = self.failed = False

    def arrive(self):
        self.arrived = not self.failed

    def fail(self):
        self.failed = not self.arrived


class Epoch:
    """State that the rings of the members of an epoch share."""

    def __init__(self, world, epoch, members):
        self.world, self.epoch, self.members = world, epoch, members
        self.rings = {}
        self.started = set()
        self.operations = []
        self.transfers = {}
        self.broken = False

    def transfer(self, taker, source):
        return self.transfers.setdefault((taker, source), Transfer())

    def give_up(self, index):
        """Makes the operations of the others fail, within some time, because this member is gone."""
        self.broken = True
        for ring in list(self.rings.values()):
            if ring.index != index:
                self.fail_soon(ring, PEER_S)

    def fail_soon(self, ring, limit):
        self.world.after(self.world.delay_below(limit), None, lambda: ring.fail("another member is gone"))


class SimulatedRing:
    def __init__(self, shared, index, process):
        self.shared, self.index, self.process = shared, index, process
        self.epoch, self.size, self.secured = shared.epoch, len(shared.members), process.world.secured
        self.failed = ""
        self.count = 0
        self.pending = None
        self.began = process.world.now
        shared.rings[index] = self
        shared.started.add(index)
        if shared.broken:
            shared.fail_soon(self, PEER_S)

    def is_ready(self):
        """Nobody notices here that a member has died before it started its daemon."""
        if self.failed:
            raise RingFailed(self.failed)
        world = self.process.world
        if self.size > 1 and world.blocked in self.shared.members:
            if world.now > self.began + CONNECT_S:
                raise RingFailed("the daemons have not connected")
            return False
        return len(self.shared.started) == self.size

    def gather(self, own):
        row = [int(it) for it in own]
        assert all(-1 << 63 <= it < 1 << 63 for it in row), row
        values = self.run(("gather", len(row)), row)
        return [list(values[index]) for index in range(self.size)]

    def sum(self, own):
        return sum(self.run(("sum",), own).values())

    def broadcast(self, own, source):
        return list(self.run(("broadcast", source), own)[source])

    def abort(self, reason):
        if not self.failed or self.index in self.shared.rings:
            self.shared.rings.pop(self.index, None)
            self.shared.give_up(self.index)
        self.fail(reason)

    def fail(self, reason):
        """Makes the pending operation and all others fail."""
        self.failed = self.failed or reason
        if self.pending is not None and self.size > 1:
            self.process.wake_soon(self.pending)

    def run(self, kind, value):
        if self.failed:
            raise RingFailed(self.failed)
        if self.size == 1:
            return {0: value}
        shared, world, process = self.shared, self.process.world, self.process
        if self.count == len(shared.operations):
            shared.operations.append(Operation(kind))
        operation = shared.operations[self.count]
        process.expect(operation.kind == kind, f"epoch {self.epoch}: calls {kind}, and others {operation.kind}")
        self.count += 1
        operation.values[self.index] = value
        if len(operation.values) == self.size:
            world.operation_runs(shared, operation)
        self.pending = process.token
        end = world.now + TIMEOUT_S
        while not self.failed and self.index not in operation.done:
            self.pending = process.token
            if not process.block(end - world.now) and world.now >= end:
                self.failed = self.failed or "timeout"
        self.pending = None
        if self.index not in operation.done:
            raise RingFailed(self.failed)
        return operation.values


# ---- Processes


class SimulatedPorts:
    """The ports of the process that the world makes or runs now."""

    def __init__(self, host, kind):
        self.process = WORLD.current

    def make_card(self):
        world = self.process.world
        return json.dumps(Card("", "", f"host{self.process.number}", 0, 0, self.process.number, "", str(next(world.nonces))))

    def release(self):
        pass

    def accept(self):
        pass

    def close(self):
        pass


class SimulatedCondition:
    def __init__(self):
        self.process = WORLD.current
        self.waits = None  # token of the thread of the user

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        return None

    def wait(self, timeout):
        if self.process.world.in_user_code:
            self.waits = self.process.token
            self.process.block(20 * timeout)  # rarely, because each time costs real time
            self.waits = None
        else:
            self.process.world.spent += timeout
            self.process.agent_waits = True

    def notify_all(self):
        if self.waits is not None:
            self.process.wake_soon(self.waits)
        if self.process.world.in_user_code and self.process.agent_waits:
            self.process.run_agent_soon()


class SimulatedThread:
    """The thread of an agent. The world runs one iteration of its loop at a time, and adds the times that it sleeps."""

    def __init__(self, target, name, daemon):
        self.process = WORLD.current

    def start(self):
        self.process.run_agent_soon()

    def join(self, timeout):
        end = self.process.world.now + timeout
        while not self.process.agent_ended and self.process.world.now < end:
            self.process.block(0.02)


class SimulatedStore:
    def __init__(self, process):
        self.process, self.world = process, process.world

    def get(self, key):
        self.before(None)
        return self.world.store.get(key)

    def create(self, key, value):
        self.before(lambda: self.world.create(key, value))
        return self.world.create(key, value)

    def before(self, request):
        """Delays the request, or loses it or its answer. A lost request may be executed much later."""
        world, chance = self.world, self.world.chance
        world.spent += world.delay_below(1.0 if chance.random() < world.slow else 0.03)
        if world.now < world.disturbed_s and chance.random() < world.lossy:
            fate = chance.random()
            if request is not None and fate < 0.5:
                request()
            elif request is not None and fate < 0.7:
                world.after(chance.random() * 3, None, request)
            raise StoreFailed("the answer is lost")


class SimulatedAgent(agent_module.Agent):
    def _say(self, text):
        WORLD.log(WORLD.current, text)

    def _is_alive(self, card):
        process = WORLD.processes[agent_module.parse_card(card).probe_port]
        if process.lives and WORLD.now < WORLD.disturbed_s and process is not WORLD.immune and (
                WORLD.chance.random() < WORLD.suspicious):
            WORLD.log(WORLD.current, f"suspects process {process.number}")
            process.disturbed = True
            return False
        return process.lives


class Process:
    """A process with two threads: one runs the user's code, the other one is that of the agent."""

    def __init__(self, world, number, wrong):
        self.world, self.number, self.wrong = world, number, wrong
        self.lives = True
        self.stopped_until, self.began = 0.0, world.now
        self.disturbed = False  # whether it was stopped or suspected
        self.outcome = None
        self.error = ""
        self.newest = 0  # number of completed steps
        self.token = 0
        self.killed = False
        self.timed_out = False
        self.agent_ended = self.agent_waits = False
        self.agent_runs = 0  # number of the next run of the agent; earlier ones are cancelled
        self.baton = threading.Lock()
        self.baton.acquire()
        self.waits_for_baton = True  # False: its thread ends without it
        world.current = self
        self.model = IntegerModel(self, world.shards, mix("initial", world.seed, number), wrong)
        self.agent = SimulatedAgent(SimulatedStore(self), "", "", world.founders, TIMEOUT_S, 1000.0)
        self.steps = world.steps_class(self.agent, self.model, world.shards)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        world.after(world.delay_below(0.1), self, lambda: world.switch(self))

    @property
    def runs(self):
        """Whether it has neither died nor ended."""
        return self.lives and self.outcome is None

    @property
    def has_state(self):
        steps = self.steps
        return steps._version >= 0 and (steps._own_version is None or steps._own_version >= 0) and not steps._is_doubtful

    def expect(self, good, text):
        if not good:
            self.world.problems.append(f"{self.world.now:.3f} process {self.number}: {text}")

    # ---- The thread of the user's code

    def run(self):
        self.baton.acquire()
        try:
            self.train()
        except Killed:
            pass
        except Exception as reason:
            self.world.problems.append(f"{self.world.now:.3f} process {self.number}: {reason!r}")
        self.waits_for_baton = False
        self.world.baton.release()

    def train(self):
        if self.killed:
            return
        world = self.world
        training = training_module.Training(self.agent, self.steps)
        atexit.unregister(training.close)
        try:
            for until in world.ends_of_parts:
                self.train_until(training, until)
            outcome = "left" if training.ended else "completed"
        except errors.OperationFailed as reason:
            self.error = str(reason)
            outcome = "refused" if "other bits" in self.error else "failed"
            world.log(self, self.error)
            if "this training has ended" in self.error:
                world.check_end(self)
                if self.agent._agreement.id not in self.agent._agreement.known and self.number != world.blocked:
                    waited = world.now - max(self.began, self.stopped_until, world.disturbed_s)
                    self.expect(waited < ADMIT_S, f"was not admitted in {waited:.1f} s")
            elif "all processes that had the state" in self.error:
                self.expect(not world.members_with_state(self.agent._latest.epoch), "there are members with the state")
        self.outcome = outcome
        self.state = self.model.value, self.model.done
        training.close()
        world.log(self, f"{self.outcome}, {self.model.done} steps")
        world.ends(self)

    def train_until(self, training, until):
        world = self.world
        for step in training.steps(until):
            for shard in step:
                number = training.step
                self.expect(self.newest <= number < until, f"computes a shard of step {number} of {until} after "
                            f"{self.newest} steps")
                self.newest = max(self.newest, number)
                world.shard_runs(self)
                self.block(world.delay_below(world.shard_s))
            self.expect(training.step >= self.newest, f"step {training.step} after {self.newest}")
            self.newest = max(self.newest, training.step)

    def block(self, limit):
        """Waits for at most this time, and returns whether it was woken up."""
        token = self.token
        self.timed_out = False
        self.world.after(limit, self, lambda: self.wake(token, True))
        self.world.baton.release()
        self.baton.acquire()
        if self.killed:
            raise Killed
        return not self.timed_out

    def wake(self, token, timed_out=False):
        if token == self.token and self.lives:
            self.token += 1
            self.timed_out = timed_out
            self.world.switch(self)

    def wake_soon(self, token):
        self.world.after(self.world.delay_below(0.005), self, lambda: self.wake(token))

    # ---- The thread of the agent

    def run_agent_soon(self):
        self.run_agent_in(self.world.delay_below(0.005))

    def run_agent_in(self, delay):
        self.agent_runs += 1
        number = self.agent_runs
        self.world.after(delay, self, lambda: self.run_agent(number))

    def run_agent(self, number):
        """Runs one iteration of the loop of Agent._run(), or what comes after the loop."""
        if number != self.agent_runs or not self.lives or self.agent_ended:
            return
        world = self.world
        world.current, world.spent, self.agent_waits = self, 0.0, False
        agent = self.agent
        if agent._agreement.phase is not Phase.ENDED:
            try:
                agent._step()
                self.run_agent_in(world.spent + world.delay_below(0.002))
                return
            except errors.OperationFailed as reason:
                agent._step = unittest.mock.Mock(side_effect=reason)
            except Exception as reason:
                world.problems.append(f"{world.now:.3f} process {self.number}: agent: {reason!r}")
                agent._step = unittest.mock.Mock(side_effect=reason)
        self.agent_ended = True
        agent._run()


# ---- World


class World:
    """A schedule. All that happens follows from the seed."""

    def __init__(self, seed, steps_class=Steps, most=8, calm=False, wrong=None, until=None,
                 founders_leave=False, firewall=False):
        global WORLD
        WORLD = self
        self.seed, self.steps_class = seed, steps_class
        self.chance = chance = random.Random(seed)
        self.now, self.spent = 0.0, 0.0
        self.events, self.numbers, self.nonces = [], itertools.count(), itertools.count()
        self.baton = threading.Lock()
        self.baton.acquire()
        self.in_user_code = False
        self.current = None
        self.store = {}
        self.epochs = {}
        self.processes = []
        self.values = {}  # state before each step
        self.problems = []
        self.trace = []
        self.shards = chance.choice([1, 2, 3, 5, 8, 8, 12, 40])
        self.shard_s = chance.choice([0.01, 0.1, 0.5])
        self.until = chance.choice([1, 2, 4, 8, 8, 8, 16])
        self.ends_of_parts = [self.until]  # the user calls steps() with each of these
        if chance.random() < 0.03:  # a long one, so that processes that wait are seen
            self.until, self.shard_s, self.shards = 60, 0.5, 3
            self.ends_of_parts = [60]
        elif until is not None:
            self.until, self.ends_of_parts, self.shard_s, self.shards = until, [until], 1.0, 4
        elif chance.random() < 0.3:
            self.ends_of_parts.insert(0, chance.randint(0, self.until))
        self.founders = chance.randint(1, chance.choice([2, 4, most]))
        self.joiners = chance.randint(0, chance.choice([1, 3, most])) if not calm else 1
        self.joiners = min(self.joiners, most - self.founders)
        self.disturbed_s = 0.0 if calm else DISTURBED_S
        self.wrong = (chance.random() < 0.25) if wrong is None else wrong
        self.lossy = chance.choice([0, 0, 0.1, 0.3])
        self.slow = chance.choice([0, 0, 0.02]) if not self.wrong else 0
        self.suspicious = chance.choice([0, 0, 0.05, 0.3])
        self.breaks = chance.choice([0, 0.02, 0.1, 0.3])  # how often an operation fails on some members
        self.acts = chance.choice([0, 0.02, 0.1, 0.2])  # how often a member crashes or stops during an operation
        self.budget = 0 if calm else chance.choice([0, 2, 4, 8, 16, 32])  # of failures
        self.gathers = 1.0  # weight of these; there are fewer other operations
        self.report_s = REPORT_S if self.wrong or calm else chance.choice([0.3, 1.0, REPORT_S])
        if not calm and not self.wrong and chance.random() < 0.2:  # many are expelled and come back in the same step
            self.founders = chance.randint(3, most)
            self.joiners = min(self.joiners, most - self.founders)
            self.budget, self.breaks, self.gathers, self.suspicious, self.report_s = 60, 0.25, 0.1, 0.1, 1.0
            self.acts, self.shard_s, self.until, self.ends_of_parts, self.lossy = 0.01, 0.2, 4, [4], 0.0
        self.secured = chance.random() < 0.2
        self.transfer_s = chance.choice([0.01, 0.5, 4.0])
        self.all_may_die = chance.random() < 0.05 and not self.wrong
        self.founders_leave = founders_leave
        self.blocked = self.founders if firewall else None  # the daemon of this process connects to no other
        self.immune = None  # it never fails, nor leaves, so that others can prove their arithmetic

    # ---- Events

    def delay_below(self, limit):
        """Returns a random time. Short ones are likelier."""
        return self.chance.random() ** 3 * limit

    def after(self, delay, process, function):
        """Calls the function at this time, or later if the process is stopped then."""
        heapq.heappush(self.events, (self.now + delay, next(self.numbers), process, function))

    def switch(self, process):
        """Runs the user's code of a process until it blocks."""
        self.current, self.in_user_code = process, True
        process.baton.release()
        self.baton.acquire()
        self.in_user_code = False

    def log(self, process, text):
        self.trace.append((self.now, process.number, text))
        if SEED is not None:
            print(f"{self.now:8.3f} process {process.number:2}: {text}", flush=True)

    # ---- What the simulated parts call

    def create(self, key, value):
        return self.store.setdefault(key, value)

    def start_ring(self, epoch, cards, index, timeout_s, exchange_keys):
        process = self.current
        self.spent += self.delay_below(0.2)
        if len(cards) > 1 and self.spend(self.breaks):
            raise RingFailed("no daemon, for now")
        key = (epoch, tuple(cards))
        if key not in self.epochs:
            self.epochs[key] = Epoch(self, epoch, [card.probe_port for card in cards])
        return SimulatedRing(self.epochs[key], index, process)

    def spend(self, probability):
        if self.budget > 0 and self.now < self.disturbed_s and self.chance.random() < probability:
            self.budget -= 1
            return True
        return False

    def operation_runs(self, shared, operation):
        """All members have called an operation. It completes at another time on each, or fails on some."""
        chance = self.chance
        weight = self.gathers if operation.kind[0] == "gather" else 3
        length = chance.choice([0.001, 0.02, 0.2])
        for ring in list(shared.rings.values()):
            self.after(self.delay_below(length), None, lambda ring=ring: self.complete(ring, operation))
        if self.spend(self.breaks * weight):
            some = [ring for ring in shared.rings.values() if chance.random() < 0.5]
            self.log(self.current, f"{operation.kind} fails on positions {[ring.index for ring in some]}")
            for ring in some:
                self.after(self.delay_below(length), None, lambda ring=ring: ring.fail("injected"))
        if self.spend(self.acts * weight):
            self.act_soon(self.processes[chance.choice(shared.members)], length)

    def complete(self, ring, operation):
        if not ring.failed and ring.process.lives:
            operation.done.add(ring.index)
            if ring.pending is not None:
                ring.process.wake_soon(ring.pending)

    def shard_runs(self, process):
        if self.spend(self.acts):
            self.act_soon(process, self.shard_s)

    # ---- Failures

    def act_soon(self, process, limit):
        act = self.chance.choice([self.crash, self.crash, self.stop, self.leave])
        self.after(self.delay_below(limit), None, lambda: act(process))

    def act_now(self, number, act):
        if number < len(self.processes):
            act(self.processes[number])

    def may_fail(self, process):
        first = not any(it.has_state for it in self.processes)
        others = [it for it in self.processes if it.runs and it is not process and (
            it.has_state or first and it.number < self.founders)]
        return process.runs and process is not self.immune and (bool(others) or self.all_may_die)

    def crash(self, process):
        if self.may_fail(process):
            self.log(process, "crashes")
            self.ends(process)

    def ends(self, process):
        process.lives = False
        for transfer in process.model.sent:
            transfer.fail()
        for epoch in self.epochs.values():
            if process.number in epoch.members:
                epoch.give_up(epoch.members.index(process.number))

    def stop(self, process):
        if process.runs and process is not self.immune:
            process.stopped_until = self.now + self.chance.choice([0.2, 1.0, 3.0, 12.0]) * self.chance.random()
            process.disturbed = True
            self.log(process, f"stops until {process.stopped_until:.3f}")

    def leave(self, process):
        if self.may_fail(process):
            self.log(process, "will leave")
            process.steps.leaving = True

    def join_later(self, wrong):
        if wrong and "record/1" not in self.store:  # otherwise it might become a founder
            self.after(0.1, None, lambda: self.join_later(wrong))
        elif len(self.processes) < 16:
            self.join(wrong)

    def join(self, wrong):
        self.processes.append(Process(self, len(self.processes), wrong))
        self.log(self.processes[-1], "computes other bits" if wrong else "starts")

    # ---- The schedule

    def run(self):
        patches = {
            "time": types.SimpleNamespace(monotonic=lambda: self.now + 1, sleep=self.sleep),
            "threading": types.SimpleNamespace(Condition=SimulatedCondition, Thread=SimulatedThread),
            "Ports": SimulatedPorts, "start_ring": self.start_ring, "_REPORT_S": self.report_s, "_LOOK_S": LOOK_S,
        }
        with unittest.mock.patch.multiple(agent_module, **patches):
            self.plan()
            while self.events and self.now < LIMIT_S and not self.problems:
                self.now, _, process, function = heapq.heappop(self.events)
                if process is not None and process.stopped_until > self.now:
                    self.after(process.stopped_until - self.now, process, function)
                elif process is None or process.lives:
                    function()
                if self.count_events() > 400_000:
                    self.problems.append("too many events")
                if not any(it.runs for it in self.processes) and self.now > self.last_join:
                    break
            self.check()
            for process in self.processes:
                process.killed = True
                process.lives = False
                if process.waits_for_baton:
                    self.switch(process)
                process.thread.join()
        return self

    def count_events(self):
        return next(self.numbers)

    def sleep(self, seconds):
        self.spent += seconds

    def plan(self):
        chance = self.chance
        for number in range(self.founders):
            self.join(0)
            if self.founders_leave:
                self.after(chance.random() * 30, None, lambda number=number: self.leave(self.processes[number]))
        if self.wrong:
            self.immune = None if self.founders_leave else self.processes[0]
        self.last_join = 0.0
        for number in range(self.joiners):
            time_s = chance.choice([0.2, 2.0, 8.0]) * chance.random()
            wrong = int(self.wrong and (number == 0 or chance.random() < 0.5))
            for _ in range(chance.choice([1, 1, 2])):
                self.after(time_s, None, lambda wrong=wrong: self.join_later(wrong))
            self.last_join = max(self.last_join, time_s)
        if self.disturbed_s > 0:
            for _ in range(chance.choice([0, 0, 1, 2, 5])):
                act = chance.choice([self.crash, self.stop, self.stop, self.leave])
                number = chance.randrange(self.founders + self.joiners)
                time_s = chance.random() * chance.choice([0.5, 3, 10])
                self.after(time_s, None, lambda number=number, act=act: self.act_now(number, act))

    def records(self):
        """Returns the processes that are members, for each epoch from 0 on."""
        found = [[]]
        while f"record/{len(found)}" in self.store:
            cards = json.loads(self.store[f"record/{len(found)}"]).values()
            found.append([self.processes[Card(*json.loads(card)).probe_port] for card in cards])
        return found

    def members_with_state(self, epoch):
        return [it.number for it in self.records()[epoch] if it.runs and not it.steps.ended and it.has_state]

    def check(self):
        if self.values:
            right = undisturbed(self.values[0], 1, self.shards, self.until)
            for step, value in self.values.items():
                if value != right[step]:
                    self.problems.append(f"step {step - 1} has a wrong result")
        for process in self.processes:
            if process.outcome == "completed":
                process.expect(self.values and process.state == (right[self.until], self.until),
                               "has a wrong state at its end")
            process.expect(process.outcome != "refused" or process.wrong, "is refused")
        if self.problems:
            return
        hanging = [it for it in self.processes if it.runs]
        members = [it for it in self.records()[-1] if it.runs]
        if hanging and (members or "record/1" not in self.store and len(self.processes) >= self.founders and all(
                it.lives for it in self.processes)):
            self.problems += [f"process {it.number} hangs: {it.agent._agreement.phase}, id {it.agent._agreement.id}, epoch "
                              f"{it.agent._agreement.epoch}, step {it.steps.step}" for it in hanging]

    def check_end(self, process):
        """The training may only have ended if each process has died, left, or seemed to be dead."""
        records = self.records()
        absent = {it for now, later in zip(records, records[1:-1]) for it in now if it not in later}
        living = [it.number for it in records[-2] if it.runs and not it.steps.ended and not it.disturbed and (
            it not in absent)]
        process.expect(records[-1] == [] and (not living or self.report_s < 1),
                       f"the training has ended, but processes {living} live")


WORLD = None  # the world that runs


def describe(world):
    lines = [f"{now:8.3f} process {number:2}: {text}" for now, number, text in world.trace[-60:]]
    return "\n".join([f"STEPS_SEED={world.seed}", *world.problems, *lines])


class KeepsShards(Steps):
    """An expelled member keeps its shards."""

    def _start_epoch(self, ring):
        if self._version > 0:
            self._id = ring.id
        super()._start_epoch(ring)


class KeepsSums(Steps):
    """Shards are dropped, but not their sum."""

    def _drop_shards(self):
        self._held = frozenset()


class Trusted(Steps):
    """Nobody proves its arithmetic."""

    def _encode_row(self):
        return [self._version, True, *super()._encode_row()[2:]]


class NeverBehind(Steps):
    """A refused attempt does not count, so members of different attempts seem to be equal."""

    def _start_attempt(self, ring):
        self._version -= self._version % ATTEMPTS
        super()._start_attempt(ring)


class ForgetsTrials(Steps):
    """Processes that have joined in a step that had begun do not prove their arithmetic in the next one."""

    def _start_attempt(self, ring):
        super()._start_attempt(ring)
        self._trial = []


class FollowersCompute(Steps):
    """Members compute shards while their state is on its way."""

    def _assign(self, ring, held, may):
        follows, self._follows = self._follows, [False] * ring.size
        super()._assign(ring, held, may)
        self._follows = follows


class KeepsVersion(Steps):
    """A member whose state has not arrived has its version."""

    def _end_epoch(self, reason, leaving=False):
        self._own_version = None
        super()._end_epoch(reason, leaving)


class LeavesFollowers(Steps):
    """The last member with the state leaves while others wait for it."""

    def _change_members(self, leaves, waits):
        self._follows = [False] * len(self._follows)
        return super()._change_members(leaves, waits)


class LeavesUnproven(Steps):
    """The last proven member leaves while others have not proved their arithmetic, and their states count."""

    def _encode_row(self):
        self._is_doubtful = False
        return super()._encode_row()

    def _change_members(self, leaves, waits):
        proven, self._proven = self._proven, [True] * len(leaves)
        changed = super()._change_members(leaves, waits)
        self._proven = proven
        return changed


class Schedules(unittest.TestCase):
    def test_schedules(self):
        first = int(SEED or os.environ.get("STEPS_FIRST", "1"))
        seeds = range(first, first + (1 if SEED is not None else TIMES))
        print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
        began, counts = time.monotonic(), collections.Counter()
        for seed in seeds:
            world = World(seed, most=16 if seed % 4 == 0 else 6).run()
            self.assertEqual(world.problems, [], describe(world))
            counts.update(it.outcome or ("waits" if it.lives else "crashed") for it in world.processes)
            counts.update(epochs=len(world.records()) - 1, expelled=sum("expelled" in it for _, _, it in world.trace),
                          steps=max(world.values, default=0))
        print(f"{len(seeds)} schedules, {time.monotonic() - began:.0f} s: {dict(sorted(counts.items()))}", flush=True)
        if len(seeds) >= 300:
            for event in "completed", "crashed", "expelled", "left", "refused":
                self.assertGreater(counts[event], len(seeds) // 30, event)

    def test_undisturbed(self):
        for seed in range(1, 20):
            world = World(seed, calm=True, wrong=False).run()
            self.assertEqual(world.problems, [], describe(world))
            outcomes = [it.outcome for it in world.processes]
            self.assertEqual(outcomes[:world.founders], ["completed"] * world.founders)

    def test_other_bits(self):
        for seed in range(1, 20):
            world = World(seed, calm=True, wrong=True, until=50).run()
            self.assertEqual(world.problems, [], describe(world))
            for process in world.processes:
                self.assertEqual(process.outcome, "refused" if process.wrong else "completed", describe(world))

    def test_founders_leave(self):
        """A process that computes other bits is never left alone with the training."""
        outcomes = collections.Counter()
        for seed in range(1, 40):
            world = World(seed, calm=True, wrong=True, until=30, founders_leave=True).run()
            self.assertEqual(world.problems, [], describe(world))
            outcomes.update(process.outcome for process in world.processes if process.wrong)
            self.assertEqual([it.outcome for it in world.processes if it.wrong and it.outcome == "completed"], [])
        self.assertGreater(outcomes["refused"], 5)

    def test_firewall(self):
        """A process whose daemon connects to no other does not stop them, even if one of them dies meanwhile."""
        met = 0
        for seed in range(1, 40):
            world = World(seed, most=6, calm=True, wrong=False, until=30, firewall=True)
            world.budget = 0
            if world.founders > 1:
                world.after(random.Random(seed).random() * 20, None, lambda world=world: world.act_now(0, world.crash))
            world.run()
            self.assertEqual(world.problems, [], describe(world))
            self.assertEqual({it.outcome for it in world.processes[:world.founders] if it.lives or it.outcome},
                             {"completed"}, describe(world))
            records = world.records()
            met += sum(world.blocked in [it.number for it in one] for one in records)
            self.assertFalse(any(world.blocked in [it.number for it in one] and world.blocked in [
                it.number for it in other] for one, other in zip(records, records[1:]) if len(one) > 1), describe(world))
        self.assertGreater(met, 10)

    def test_same_seed(self):
        for seed in range(1, 10):
            self.assertEqual(World(seed).run().trace, World(seed).run().trace)


class Expelled(unittest.TestCase):
    """A member that was expelled while it was alone, and joins again. Another one may have been alone meanwhile."""

    def rows(self, steps_completed):
        """Returns the first row of each epoch: one with id 1, the next one with id 2."""
        rows = []

        def gather(own):
            rows.append([int(it) for it in own])
            return [rows[-1]]

        ring = types.SimpleNamespace(index=0, size=1, id=1, founder=True, gather=gather, sum=lambda own: own)
        membership = types.SimpleNamespace(ring=lambda: ring, end_epoch=lambda *reason: None, waiting=lambda: 0,
                                           settle=lambda process: None)
        model = unittest.mock.Mock(**{"magnitudes.return_value": [], "add_shard.return_value": 0,
                                      "state_hash.return_value": 0})
        steps = Steps(membership, model, 1)
        for _ in range(steps_completed):
            list(steps.run_step(steps_completed))
        steps.finish(steps_completed)
        first = rows[0]
        steps._end_epoch("expelled")
        ring.id, ring.founder = 2, False
        rows.clear()
        list(steps.run_step(steps_completed + 1))
        return first, rows[0]

    def test_proves_again(self):
        (version, proven, _, held), (later, proven_later, _, held_later) = self.rows(3)
        self.assertLess(version, 0)
        self.assertEqual((proven, held), (0, 0))
        self.assertEqual((later // ATTEMPTS, proven_later, held_later), (3, 0, 0))


class Faults(unittest.TestCase):
    """The schedules find faults."""

    def check(self, steps_class, **options):
        for seed in range(1, 500):
            world = World(seed, steps_class, most=6, **options).run()
            if world.problems:
                print(f"{steps_class.__name__}: seed {seed}: {world.problems[0]}", flush=True)
                return
        self.fail(f"{steps_class.__doc__} No schedule has found it.")

    def test_keeps_shards(self):
        self.check(KeepsShards)

    def test_keeps_sums(self):
        self.check(KeepsSums)

    def test_trusted(self):
        self.check(Trusted)

    def test_never_behind(self):
        self.check(NeverBehind)

    def test_forgets_trials(self):
        self.check(ForgetsTrials)

    def test_followers_compute(self):
        self.check(FollowersCompute)

    def test_keeps_version(self):
        self.check(KeepsVersion)

    def test_leaves_followers(self):
        self.check(LeavesFollowers)

    def test_leaves_unproven(self):
        self.check(LeavesUnproven, calm=True, wrong=True, until=30, founders_leave=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
