#!/usr/bin/python3
"""A trainer that does what lines of JSON on its standard input say, and answers with lines of JSON. reliability runs
it.

    {"do": "open"}                                        connects                      -> opened, failed
    {"do": "stream", "seed", "count", "codec", "tag"}     all-reduces until one fails,  -> step (each), failed
                                                          or until "stop" has reached      or stopped
                                                          all ranks
    {"do": "stop"}                                        in a stream: all ranks end with the same step
    {"do": "resume", "tag"}                               calls resume() of the library -> resumed, failed
    {"do": "all_reduce", "seed", "count", "codec", "tag"} runs one all-reduce           -> reduced, failed
    {"do": "recover", as all_reduce; "delay", "resume"}   runs one as a trainer on its  -> reduced, failed
                                                          own: open, resume, retry
    {"do": "close"}                                       disconnects                   -> closed

Two to four operations of a stream are in flight, so that a fault meets one. Times are those of time.monotonic(), which
is one clock for all processes of a machine. Every result is compared with what the ranks' data must give.
"""

import collections
import hashlib
import json
import os
import select
import sys
import time

import gradlane
import numpy

AHEAD = (2, 3, 4)  # operations in flight; the same number on all ranks, because all of them finish these when they stop
PATIENCE = 180  # seconds, after which a wait counts as hung
# number that a rank adds to its first element to ask for a stop; without it, sums of first elements stay below it
FLAG = 2048


class Inbox:
    """Commands on the standard input. sys.stdin is not used, because select() does not see its buffer."""

    def __init__(self):
        self._rest = b""
        self._lines = collections.deque()

    def get(self, wait=True):
        """Returns the next command, or None if there is none and `wait` is not set. Ends the program at the end of the
        input."""
        while not self._lines:
            if not wait and not select.select([0], [], [], 0)[0]:
                return None
            more = os.read(0, 65536)
            if not more:
                sys.exit(0)
            *lines, self._rest = (self._rest + more).split(b"\n")
            self._lines.extend(lines)
        return json.loads(self._lines.popleft())


def tell(event, **fields):
    print(json.dumps({"event": event, "at": time.monotonic(), **fields}), flush=True)


def error_fields(error):
    return {"kind": type(error).__name__, "text": str(error)}


class Data:
    """Data of all ranks, in steps: small multiples of 1/64, so that neither fp32 nor fixed:10 rounds their sums."""

    STEPS = 16

    def __init__(self, rank, world, seed, count):
        def of(each):
            values = numpy.random.default_rng([seed, each]).integers(-512, 512, count).astype(numpy.float32) / 64
            values[:1] = 0  # for FLAG
            return values

        self.world = world
        self.mine = of(rank)
        self.sum = sum((of(each) for each in range(world)), numpy.zeros(count, numpy.float32))

    def fill(self, array, step, flag=False):
        """Fills the array for a step. Steps in a row differ, so that leftovers of one would be seen in the next."""
        numpy.add(self.mine, step % self.STEPS, out=array)
        array[:1] += FLAG if flag else 0

    def wrong(self, array, step):
        """Returns the number of wrong elements. The first element may have flags added."""
        difference = array - self.sum - self.world * (step % self.STEPS)
        if difference.size and difference[0] % FLAG == 0:
            difference[0] = 0
        return int(numpy.count_nonzero(difference))


class Puppet:
    def __init__(self):
        self.inbox = Inbox()
        self.gl = None

    def run(self):
        while True:
            command = self.inbox.get()
            getattr(self, command.pop("do"))(**command)

    def open(self):
        self.close(quiet=True)
        try:
            self.gl = gradlane.open(timeout=PATIENCE)
            tell("opened", rank=self.gl.rank, world=self.gl.world)
        except gradlane.Error as error:
            tell("failed", at_first=time.monotonic(), errors=[error_fields(error)], steps=0, wrong=0)

    def close(self, quiet=False):
        if self.gl is not None:
            self.gl.close()
            self.gl = None
        if not quiet:
            tell("closed")

    def stop(self):
        """Does nothing, because the stream that it should stop has failed in the meantime."""

    def resume(self, tag):
        try:
            self.gl.resume(tag)
            tell("resumed")
        except gradlane.Error as error:
            tell("failed", at_first=time.monotonic(), errors=[error_fields(error)], steps=0, wrong=0)

    def all_reduce(self, seed, count, codec, tag=None):
        begin = time.monotonic()
        try:
            data = Data(self.gl.rank, self.gl.world, seed, count)
            array = self.gl.zeros(count)
            data.fill(array, seed)
            begin = time.monotonic()
            self.gl.all_reduce(array, codec=codec, tag=tag, async_=True).wait(PATIENCE)
            digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
            tell("reduced", digest=digest, wrong=data.wrong(array, seed), elapsed=time.monotonic() - begin)
        except (gradlane.Error, TimeoutError) as error:
            tell("failed", at_first=time.monotonic(), errors=[error_fields(error)], steps=0, wrong=0,
                 elapsed=time.monotonic() - begin)

    def recover(self, seed, count, codec, tag, delay=0, resume=True, patience=PATIENCE):
        """Runs the loop of docs/client.md, without knowing where other ranks are. Without `resume`, it gives the
        operation `tag` itself."""
        time.sleep(delay)
        begin = time.monotonic()
        told = []
        while True:
            try:
                if self.gl is None:
                    self.gl = gradlane.open(timeout=PATIENCE)
                if resume:
                    self.gl.resume(tag)
                data = Data(self.gl.rank, self.gl.world, seed, count)
                array = self.gl.zeros(count)
                data.fill(array, seed)
                self.gl.all_reduce(array, codec=codec, tag=None if resume else tag, async_=True).wait(PATIENCE)
                digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
                return tell("reduced", digest=digest, wrong=data.wrong(array, seed), told=told,
                            elapsed=time.monotonic() - begin)
            except (gradlane.Error, TimeoutError) as error:
                told.append({"after": time.monotonic() - begin, **error_fields(error)})
                if isinstance(error, gradlane.DaemonGone):
                    self.close(quiet=True)
                if time.monotonic() - begin > patience:
                    return tell("failed", at_first=time.monotonic(), errors=[told[-1]], told=told, steps=0, wrong=0,
                                elapsed=time.monotonic() - begin)

    def stream(self, seed, count, codec, tag=None):
        data = Data(self.gl.rank, self.gl.world, seed, count)
        ahead = AHEAD[seed % len(AHEAD)]
        arrays = [self.gl.zeros(count) for _ in range(ahead)]
        pending = collections.deque()
        digest = hashlib.sha256()
        begun, step, wrong, pause, asked, stopping = 0, 0, 0, 0.0, False, False
        last = time.monotonic()
        try:
            while pending or not stopping:
                while len(pending) < ahead and not stopping:
                    asked = asked or (self.inbox.get(wait=False) or {}).get("do") == "stop"
                    data.fill(arrays[begun % ahead], begun, asked)
                    pending.append(self.gl.all_reduce(arrays[begun % ahead], codec=codec, async_=True,
                                                      tag=None if tag is None else tag + begun))
                    begun += 1
                pending[0].wait(PATIENCE)
                pending.popleft()
                pause, last = max(pause, time.monotonic() - last), time.monotonic()
                array = arrays[step % ahead]
                digest.update(array.tobytes())
                wrong += data.wrong(array, step)
                stopping = stopping or array[0] >= FLAG / 2
                step += 1
                tell("step", step=step)
            tell("stopped", steps=step, wrong=wrong, digest=digest.hexdigest()[:16], pause=pause)
        except (gradlane.Error, TimeoutError) as error:
            at_first = time.monotonic()
            tell("failed", at_first=at_first, steps=step, wrong=wrong, digest=digest.hexdigest()[:16],
                 errors=[error_fields(error), *self.errors_of(list(pending)[1:])])

    def errors_of(self, requests):
        errors = []
        for request in requests:
            try:
                request.wait(PATIENCE)
            except (gradlane.Error, TimeoutError) as error:
                errors.append(error_fields(error))
        return errors


if __name__ == "__main__":
    Puppet().run()
