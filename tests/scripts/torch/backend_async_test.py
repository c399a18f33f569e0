#!/usr/bin/python3
"""Tests of asynchronous operations of the backend "gradlane" of PyTorch, and of leaks."""

import datetime
import gc
import os
import pathlib
import threading

import torch
import torch.distributed as dist

import gradlane
import gradlane.torch
from tests.scripts.torch.backend_case import RANK, WORLD, Case, given, summed


class Async(Case):
    def test_many(self):
        tensors = [given(RANK, 20000 + 100 * i) for i in range(200)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for tensor, work in reversed(list(zip(tensors, works))):
            self.assertTrue(work.wait())
            self.assertTrue(work.is_completed() and work.is_success())
            self.assertSame(tensor, summed(tensor.numel()))

    def test_futures(self):
        tensor = given(RANK, 300001)
        future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
        self.assertSame(future.wait(), summed(300001) * 2)

    def test_operations_in_callbacks(self):
        def again(done):
            return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

        futures = [dist.all_reduce(given(RANK, numel), async_op=True).get_future().then(again)
                   for numel in (500, 300001, 2000, 400000)]
        for future in futures:
            result = future.wait()
            self.assertSame(result, summed(result.numel()) * WORLD)

    def test_dropped_works(self):
        for numel in (10, 300001):
            for _ in range(50):
                dist.all_reduce(given(RANK, numel), async_op=True)
        gc.collect()
        dist.barrier()

    def test_wait_with_timeout(self):
        tensor = given(RANK, 300001)
        dist.all_reduce(tensor, async_op=True).wait(datetime.timedelta(seconds=30))
        self.assertSame(tensor, summed(300001))

    def test_threads_take_turns(self):
        """Any thread may start operations, as long as the order of the calls is the same on all ranks."""
        turn, wrong = [0], []
        changed = threading.Condition()

        def run(number):
            for i in range(number, 40, 4):
                tensor = given(RANK, 1000 * (i + 1))
                with changed:
                    changed.wait_for(lambda: turn[0] == i)
                    work = dist.all_reduce(tensor, async_op=True)
                    turn[0] += 1
                    changed.notify_all()
                work.wait()
                if not torch.equal(tensor, summed(tensor.numel())):
                    wrong.append(i)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((turn, wrong), ([40], []))

    def test_nothing_leaks(self):
        def held():
            maps = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "rw-s" in line]
            return len(os.listdir("/proc/self/fd")), len(maps), threading.active_count()

        def work(most):
            for numel in (10, 3000, most):
                dist.all_reduce(given(RANK, numel))
                gradlane.torch.zeros(numel)
                dist.all_reduce(gradlane.torch.zeros(numel), async_op=True).wait()

        work(300001)
        gc.collect()
        before = held()
        for step in range(170):
            work(300001 if step % 17 == 0 else 5000)
        gc.collect()
        after = held()
        self.assertEqual(after[::2], before[::2])
        # The memory of the latest operation may or may not still be mapped.
        self.assertLessEqual(abs(after[1] - before[1]), 1)
