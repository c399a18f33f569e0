"""Elastic trainings: nodes die, leave and join, and the result has the bits of a training without failures.

    training = gradlane.torch.elastic(model, optimizer, shards=8, store="tcp://HOST:29400", nodes=2)
    for step in training.steps(1000):
        for shard in step:
            loss = model(*batch(step.number, shard)).mean()
            loss.backward()

See docs/elastic.md.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Iterator, Mapping

import torch

from ... import _arguments, errors
from .agent import Agent
from .agreement import MOST_MEMBERS
from .gradients import Gradients
from .steps import LEFT, Steps
from .store import connect, host_of

_STORE_S = 30.0  # how long the store may not answer while the members change
_MOST_SHARDS = 1024


class Step:
    """A step. Iterate over it: it yields the shards that this process must compute, as ints from 0 to `shards` - 1. The
    step is complete, and the optimizer has run, when the iteration ends."""

    def __init__(self, steps: Steps, until: int) -> None:
        self._steps, self._until = steps, until
        self._number = 0
        self.complete = False

    @property
    def number(self) -> int:
        """The number of the step, from 0 on. It may change until the step is complete, because a process whose state is
        behind takes over the state of the others."""
        return self._number if self.complete else self._steps.step

    def __iter__(self) -> Iterator[int]:
        if self.complete:
            raise errors.bad_argument(f"gradlane: elastic: step {self._number} is complete; iterate over it once")
        for shard in self._steps.run_step(self._until):
            self._number = self._steps.step
            yield shard
        self._number = max(self._number, self._steps.step - 1)
        self.complete = True


class Training:
    """An elastic training, made by elastic(). Use it in one thread."""

    def __init__(self, agent: Agent, steps: Steps) -> None:
        self._agent, self._steps = agent, steps
        atexit.register(self.close)
        self._previous: Any = None  # handler of SIGTERM before this training's
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._leave_at_sigterm)

    @property
    def step(self) -> int:
        """The number of steps that are complete."""
        return self._steps.step

    @property
    def ended(self) -> bool:
        """Whether this process has left the training, after leave() or SIGTERM."""
        return self._steps.ended

    def steps(self, until: int) -> Iterator[Step]:
        """Yields steps until `until` steps are complete on all members, or this process has left.

        The caller must iterate over each step to its end. Raises OperationFailed if the store cannot be reached while
        the members change, a gradient is not finite, or this process computes other bits than the other members.
        """
        _arguments.whole("until", until, 0, 1 << 40)
        while True:
            self._steps.prepare()
            self._steps.finish(until)
            if self._steps.step >= until or self._steps.ended:
                break
            step = Step(self._steps, until)
            yield step
            if not step.complete:
                raise errors.bad_argument("gradlane: elastic: iterate over each step to its end")

    def leave(self) -> None:
        """Makes this process leave after the current step; now, if it waits for others to start or to let it join. The
        others go on. A signal handler may call it."""
        self._steps.leaving = True
        if not self._steps.has_begun:
            self._agent.end_epoch(LEFT, leaving=True)

    def close(self) -> None:
        """Leaves the training now. Python calls it when the process exits."""
        atexit.unregister(self.close)
        self._steps.close()
        self._agent.close()
        self._restore_handler()

    def _leave_at_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Makes this process leave. The second SIGTERM has the effect that it had before, and so has one in a child."""
        if self._process == os.getpid() and not self._steps.leaving and not self._steps.ended:
            print("gradlane: elastic: SIGTERM: this process leaves after its step; a second SIGTERM ends it now",
                  file=sys.stderr, flush=True)
            self.leave()
            return
        self._restore_handler()
        os.kill(os.getpid(), signal.SIGTERM)

    def _restore_handler(self) -> None:
        if self._previous is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._previous)
            self._previous = None


def elastic(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, shards: int, store: str | None = None,
            name: str | None = None, nodes: int | None = None, codec: str | None = None,
            state: Mapping[str, Any] | None = None, seed: int = 0, timeout: float = 1800.0) -> Training:
    """Returns an elastic training of a model on the CPU.

    - shards: number of shards of each step's data, 1 to 1024. It is fixed for the life of the training. Gradients are
      the mean over the shards, as with that many ranks of DistributedDataParallel.
    - store: store in which processes agree on the members: tcp://HOST:PORT, or etcd://HOST:PORT,... None: value of
      GRADLANE_STORE.
    - name: name of the training in the store. None: value of GRADLANE_TRAINING, or "training".
    - nodes: number of processes that start the training. Others join later. None: value of GRADLANE_NODE_COUNT, or 1.
    - codec: None: gradients are rounded about as finely as float32 rounds the largest gradient of the
      parameter. "fixed:rel=B": they are rounded to 2^-B of the largest, and are sent compressed.
    - state: further objects by name, such as a learning rate scheduler. They have state_dict() and load_state_dict(). A
      process that joins takes their state over.
    - seed: seed of random numbers. With the numbers of step and shard, it gives the argument of torch.manual_seed() and
      random.seed() before each shard.
    - timeout: seconds that members wait for each other in one operation, such as for a slow shard.

    SIGTERM makes the process leave after the current step. Raises BadArgument, and OperationFailed if the store cannot
    be reached.
    """
    shards = _arguments.whole("shards", shards, 1, _MOST_SHARDS)
    url = os.environ.get("GRADLANE_STORE", "") if store is None else store
    if not url:
        raise errors.bad_argument("gradlane: elastic: there is no store: set store=, or GRADLANE_STORE, to "
                                  "tcp://HOST:PORT or etcd://HOST:PORT")
    given = os.environ.get("GRADLANE_NODE_COUNT", "1")
    if nodes is None and not (given.isdecimal() and 1 <= int(given) <= MOST_MEMBERS):
        raise errors.bad_argument(f"gradlane: elastic: GRADLANE_NODE_COUNT={given} is not a number from 1 to "
                                  f"{MOST_MEMBERS}")
    founders = _arguments.whole("nodes", int(given) if nodes is None else nodes, 1, MOST_MEMBERS)
    job = os.environ.get("GRADLANE_TRAINING", "training") if name is None else name
    timeout_s = _arguments.seconds("timeout", timeout)
    gradients = Gradients(model, optimizer, state or {}, shards, _parse_codec(codec), seed)
    try:
        agent = Agent(connect(url, job), host_of(url), gradients.kind, founders, timeout_s, _STORE_S)
    except BaseException:
        gradients.close()
        raise
    return Training(agent, Steps(agent, gradients, shards))  # type: ignore[arg-type]


def _parse_codec(codec: str | None) -> int | None:
    """Returns B of "fixed:rel=B", or None if there is no codec."""
    if codec is None:
        return None
    word, _, digits = codec.partition("=")
    if word != "fixed:rel" or not digits.isdecimal():
        raise errors.bad_argument(f"gradlane: elastic: codec {codec!r} is not possible; allowed: None, or fixed:rel=B")
    return int(digits)
