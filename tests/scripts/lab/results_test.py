#!/usr/bin/python3
"""Tests lab/results: spans of pages, measured numbers outside spans, stale samples, noisy samples, plots and the runner;
and the figures of experiments, from samples that are made up."""

import argparse
import contextlib
import dataclasses
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

from lab.exchanges import experiment as exchanges
from lab.exchanges import setups as exchange_setups
from lab.exchanges import tables as exchange_tables
from lab.plan import known
from lab.results import experiment, front, machine, pages, reproduce, store, texts
from lab.results.store import Sample, Store, sources_hash
from lab.steps import setups, tables

MACHINE = {"cpu": "CPU", "cores": 2, "kernel": "6", "torch": "2", "python": "3"}
QUIET = {"before": 0.0, "steal": 0.0, "others": 0.0}
CONTEXT = reproduce.Context(pathlib.Path("/bin/false"), None)


def an_experiment(**more):
    fields = {"name": "trial", "title": "a trial", "sources": ("lab/results/store.py",),
              "batches": lambda samples: [experiment.Batch((key,), 1, key) for key in "ab" if key not in samples],
              "measure": lambda batch, context: iter([(batch.argument, 7, "true")]),
              "figures": {"sum": lambda samples: str(sum(sum(runs) for runs in samples.values())),
                          "table": lambda samples: "| a |\n|---|\n| 1 |"}}
    return experiment.Experiment(**{**fields, **more})


def a_sample(trial, key="a", values=1, **more):
    fields = {"key": key, "values": values, "when": "2026-11-27T12:00:00", "commit": "c", "hash": trial.hash,
              "machine": MACHINE, "command": "true", "load": QUIET}
    return Sample(**{**fields, **more})


class Stores(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def store(self, **more):
        return Store(an_experiment(**more), self.folder)

    def test_samples_are_read_as_written(self):
        trial = self.store()
        for key in "ba":
            trial.add(a_sample(trial, key))
        again = self.store()
        self.assertEqual([each.key for each in again.samples], ["a", "b"])
        self.assertEqual(again.samples[0].machine, MACHINE)
        self.assertEqual(again.values(), {"a": [1], "b": [1]})

    def test_other_code_makes_samples_stale(self):
        trial = self.store()
        trial.add(a_sample(trial, hash="before"))
        self.assertEqual(len(trial.stale()), 1)
        self.assertEqual(trial.values(fresh=True), {})
        self.assertIn("Stale: 1 of 1", trial.about())
        self.assertEqual(pages.figure_text(trial, "sum"), "1 (stale)")
        trial.add(a_sample(trial, values=2))
        self.assertEqual(trial.values(), {"a": [2]}, "the stale sample is dropped")
        self.assertNotIn("Stale", trial.about())

    def test_hash_is_of_code_without_comments(self):
        root = self.folder / "root"
        root.mkdir()
        file = root / "a.py"
        hashes = []
        for text in ("x = 1\n", "x = 1  # a comment\n", "x = 2\n"):
            file.write_text(text)
            store.sources_hash.cache_clear()
            store.digest.cache_clear()
            with unittest.mock.patch.object(store, "ROOT", root):
                hashes.append(sources_hash(("*.py",)))
        store.sources_hash.cache_clear()
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])
        with self.assertRaisesRegex(ValueError, "no file matches"):
            sources_hash(("there-is-no-such-file",))

    def test_runner_measures_what_is_missing_and_discards_noise(self):
        loads = [{**QUIET, "steal": 0.5}, QUIET, QUIET]
        watch = types.SimpleNamespace(before=0, load=lambda: loads.pop(0), note=None)
        trial = self.store()
        trial.add(a_sample(trial, "b"))
        args = argparse.Namespace(minutes=None, keep_stale=False, again=False)
        with unittest.mock.patch.object(reproduce, "wait_until_quiet", lambda end: watch), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(reproduce.run(args, [trial], CONTEXT), 0)
        self.assertIn("discarded", said.getvalue())
        self.assertEqual(trial.values(), {"a": [7], "b": [1]})
        self.assertEqual(loads, [QUIET], "a was measured twice, b not at all")

    def test_runner_gives_up_a_batch_that_fails(self):
        def measure(batch, context):
            yield from ()
            raise RuntimeError("it failed")

        trial = self.store(measure=measure)
        args = argparse.Namespace(minutes=None, keep_stale=False, again=False)
        watch = types.SimpleNamespace(before=0, load=lambda: QUIET, note=None)
        with unittest.mock.patch.object(reproduce, "wait_until_quiet", lambda end: watch), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(reproduce.run(args, [trial], CONTEXT), 2)
        self.assertEqual(said.getvalue().count("it failed"), 2 * reproduce.MOST_TRIES)

    def test_spans_are_filled(self):
        trial = self.store()
        trial.add(a_sample(trial))
        text = "It is <!-- result trial.sum -->old<!-- end --> and\n<!-- result trial.table -->\n<!-- end -->\n"
        fresh = pages.filled(text, {"trial": trial})
        self.assertEqual(fresh, "It is <!-- result trial.sum -->1<!-- end --> and\n<!-- result trial.table -->\n| a |\n|---|\n"
                                "| 1 |\n<!-- end -->\n")
        self.assertEqual(pages.filled(fresh, {"trial": trial}), fresh)
        example = "    an example: <!-- result trial.sum -->old<!-- end -->\n"
        self.assertEqual(pages.filled(example, {"trial": trial}), example)
        alone = "\n<!-- result trial.sum -->old<!-- end -->\n"
        self.assertEqual(pages.filled(alone, {"trial": trial}), "\n<!-- result trial.sum -->\n1\n<!-- end -->\n")
        self.assertEqual(list(pages.broken_marks(alone)), [])
        for broken in ("a\n<!-- result trial.sum -->1<!-- end --> is it\n", "\nIt is <!-- result\ntrial.sum -->1<!-- end -->.\n",
                       "a <!-- result trial.sum -->1<!-- end --> b\nand <!-- end -->\n"):
            self.assertEqual([number for number, _ in pages.broken_marks(broken)][:1], [2])
        with self.assertRaises(KeyError):
            pages.filled("<!-- result trial.mean --><!-- end -->", {"trial": trial})

    def test_plots_that_are_out_of_date_are_found(self):
        # the smallest PNG: a header, and the end
        png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + 17 * b"\0" + b"\0\0\0\0IEND\xaeB`\x82"
        name = "plot.png"
        plot = experiment.Plot(lambda samples: samples["a"], lambda data, path: path.write_bytes(png))
        trial = self.store(plots={name: plot})
        trial.add(a_sample(trial))
        with unittest.mock.patch.object(pages, "ROOT", self.folder):
            (path, _, data), = pages.stale_plots({"trial": trial})
            pages.draw(path, plot, data)
            self.assertEqual(list(pages.stale_plots({"trial": trial})), [])
            trial.add(a_sample(trial, values=3))
            self.assertEqual(len(list(pages.stale_plots({"trial": trial}))), 1)

    def test_source_files_that_are_out_of_date_are_found(self):
        trial = self.store()
        files = {"table.inc": ("trial", lambda samples: f"{samples}\n")}
        with unittest.mock.patch.object(pages, "ROOT", self.folder):
            (path, text), = pages.stale_files({"trial": trial}, files)
            path.write_text(text)
            self.assertEqual((path, text), (self.folder / "table.inc", "{}\n"))
            self.assertEqual(list(pages.stale_files({"trial": trial}, files)), [])
            trial.add(a_sample(trial))
            self.assertEqual(list(pages.stale_files({"trial": trial}, files)), [(path, "{'a': [1]}\n")])


class Numbers(unittest.TestCase):
    def test_measured_numbers_are_found_outside_spans_and_code(self):
        text = ("It is 2.5 times as fast, 1.8x, <!-- result a.b -->3.0x<!-- end -->, at 14 GB/s.\n"
                "    a command prints 2.0x\n```\n4 times faster\n```\nA limit of 10 s and a link of 1 Gb/s are none.\n"
                "It takes 20 ms instead of 40.\n")
        self.assertEqual([found for _, found in pages.loose_numbers(text)],
                         ["2.5 times as", "1.8x", "14 GB/s", "20 ms instead of"])

    def test_a_page_with_such_a_number_is_a_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "README.md").write_text("It is <!-- result a.b -->3.0x<!-- end --> as fast.\n\nOr 4 times as fast.\n")
            (root / "docs" / "a.md").write_text("Write `0x10`.\n")
            with unittest.mock.patch.object(pages, "ROOT", root):
                self.assertEqual(pages.check_numbers(), ["README.md:3: '4 times as' is a measured number outside a span"])


class Machines(unittest.TestCase):
    def test_noise_is_refused(self):
        self.assertTrue(machine.is_quiet(QUIET))
        self.assertFalse(machine.is_quiet({**QUIET, "before": machine.QUIET + 0.1}))
        self.assertFalse(machine.is_quiet({**QUIET, "steal": machine.MOST_STEAL + 0.01}))
        self.assertFalse(machine.is_quiet({**QUIET, "others": machine.QUIET}))

    def test_the_worst_window_counts(self):
        """10 s of which another program uses 1 s, 2 s that are too short for a window, and 3 s without anything."""
        clock, foreign = [0.0], [0.0]
        with unittest.mock.patch.multiple(machine, busy_cores=lambda: 0.1, _times=lambda: (2 * clock[0], 0.0, 0.0),
                                          _foreign_seconds=lambda: {1: foreign[0]}), \
                unittest.mock.patch.object(machine.time, "monotonic", lambda: clock[0]):
            watch = machine.Watch()
            for seconds, used in ((10, 1), (2, 2)):
                clock[0], foreign[0] = clock[0] + seconds, foreign[0] + used
                watch.note()
            clock[0] += 3
            self.assertEqual(watch.load(), {"before": 0.1, "steal": 0.0, "others": 0.4})
            clock[0] += 1
            self.assertEqual(watch.load()["others"], 0.0)

    def test_time_of_children_is_not_of_others(self):
        burn = "import time\nwhile time.process_time() < 0.3: pass"
        ours = machine._foreign_seconds()
        self.assertNotIn(os.getpid(), ours)
        # A child of a process that nobody started here would count; one of this process does not.
        with subprocess.Popen([sys.executable, "-c", burn]) as child:
            self.assertNotIn(child.pid, machine._foreign_seconds())


class Steps(unittest.TestCase):
    """Tests the tables of steps with two cells: in the first one each codec is twice as fast as Gloo, and the predictions
    are right; in the other one each is 5 % slower, and the predictions say half of that time."""

    @staticmethod
    def samples():
        names = [method.name for method in setups.METHODS]
        fast = {name: [50.0, 50.0] for name in names} | {setups.GLOO: [100.0, 100.0]}
        slow = {name: [105.0, 105.0] for name in names} | {setups.GLOO: [100.0, 100.0]}
        held = [cell for cell in setups.CELLS if cell.held_out and cell.nodes == 2][:2]
        return {held[0].key: [run_of(fast, 1)], held[1].key: [run_of(slow, 0.5)]}

    def test_errors(self):
        table = tables.error_table(self.samples()).splitlines()
        count = sum(method.predicted for method in setups.METHODS)
        self.assertEqual(table[2], f"| with a calibration, a core per node | {2 * count} | 25 % | 50 % | 0.75 |")

    def test_verdicts_count_clear_differences_only(self):
        found = list(tables.verdicts(self.samples()))
        self.assertEqual({right for *_, right in found}, {True})
        self.assertEqual(len(found), sum(method.predicted and method.name in setups.CODECS for method in setups.METHODS))
        low, high = tables.wilson(19, 20)
        self.assertAlmostEqual(low, 0.764, 3)
        self.assertAlmostEqual(high, 0.991, 3)

    def test_errors_for_the_planner(self):
        count = 2 * sum(method.predicted for method in setups.METHODS)
        self.assertEqual(known.errors(self.samples()),
                         f"{{true, 1, 0.25, 0.5, {count}}},\n{{false, 1, 0.25, 0.5, {count}}},\n")

    def test_wins(self):
        rows = tables.win_table(self.samples()).splitlines()
        self.assertEqual(rows[-1], "| `topk:1%+fixed:10` | 2 | 1 | 1 | 0 | 0 | 2 | 0 |")
        self.assertEqual(tables.FIGURES["wins-fixed-adaptive"](self.samples()), "1 of 2 (slower in 0)")
        self.assertEqual(tables.FIGURES["wins-fixed-adaptive"]({}), "not measured")
        self.assertEqual(tables.set_ups(self.samples()), str(2 * len(setups.COMPARED)))
        for name, figure in tables.FIGURES.items():
            self.assertTrue(figure(self.samples()), name)

    def test_halves_are_balanced(self):
        self.assertEqual(sum(cell.held_out for cell in setups.CELLS), len(setups.CELLS) // 2)
        self.assertGreaterEqual(len(setups.CELLS) * len(setups.COMPARED), 200)

    def test_close_cells_run_three_times(self):
        from lab.steps import experiment as steps

        fast, slow = self.samples().items()
        cell = setups.BY_KEY[fast[0]]
        self.assertEqual(steps.wanted(cell, fast[1]), [])
        self.assertEqual(steps.wanted(cell, []), [method.name for method in setups.METHODS])
        self.assertEqual(steps.wanted(cell, slow[1]), [setups.GLOO, *setups.COMPARED])
        self.assertEqual(steps.wanted(cell, 3 * slow[1]), [])


def run_of(ms, factor):
    guesses = {name: factor * each[0] for name, each in ms.items() if setups.BY_NAME[name].predicted}
    return {"ms": ms, "profile": {"forward_ms": 10, "backward_ms": 20}, "predicted": {"calibrated": guesses, "usual": guesses}}


class Known(unittest.TestCase):
    """Tests the tables that the planner is built with."""

    def test_rings(self):
        links = [{"from": 0, "to": 1, "latency_us": 40, "gbps": 1.2}, {"from": 1, "to": 0, "latency_us": 50, "gbps": 0.8}]
        exchange = {"library": "gloo", "codec": "fp32", "points": [{"bytes": 65536, "us": 700, "busy_us": 300.25}]}
        found = {"port": "udp", "cores": 1, "links": links, "exchanges": [exchange]}
        older = {**found, "exchanges": [{**exchange, "library": "nccl"}]}
        samples = {setups.RINGS[0]: [{"json": older}, {"json": found}], setups.RINGS[1]: [{"json": {**found, "exchanges": []}}]}
        self.assertEqual(known.rings(samples), '{"udp", 1, {2, {0, 1, 5e-05, 1e+08}, '
                                               '{\n {"gloo", "fp32", {{65536, 0.0007, 0.0003003}}}}}},\n')
        self.assertEqual(known.rings({}), "")

    def test_effects(self):
        def training(*losses):
            return [{"loss": losses, "accuracy": losses, "identical": True}]

        samples = {"gpt/1/Gloo": training(3, 2, 1), "gpt/2/Gloo": training(3, 1, 1), "gpt/1/onebit": training(3, 2, 1),
                   "gpt/2/onebit": training(3, 3, 2), "gpt/1/onebit; rate 0.5": training(1, 1, 1),
                   "gpt/1/Gloo, bf16": training(3, 1, 1), "conv/1/onebit": training(50, 60, 70)}
        self.assertEqual(known.accuracy_rows()["signsgd; rate 0.00390625"], "signsgd")
        self.assertEqual(known.effects(samples), '{"gpt", "gloo bf16", 0.6667, 0, 1, 1},\n{"gpt", "onebit", 1, 50, 1, 2},\n')


class Exchanges(unittest.TestCase):
    """Tests the tables of exchanges: with 2 ranks each method is twice as fast as Gloo; with 4 ranks, 64 MiB and `raw`
    the runs differ, and Open MPI is the fastest."""

    @staticmethod
    def samples():
        fast = {method: [49.0, 50.0, 90.0] for method in exchange_setups.METHODS} | {exchange_setups.GLOO: [100.0] * 3}
        runs = [fast | {"raw": [us], exchange_setups.OPEN_MPI: [10.0]} for us in (80.0, 125.0, 160.0)]
        return {"2 ranks, 4 KiB": [fast], "4 ranks, 64 MiB": runs}

    def test_speeds(self):
        rows = exchange_tables.FIGURES["speeds"](self.samples()).splitlines()
        raw = rows[0].split(" | ").index("`raw`")
        self.assertEqual(rows[2].split(" | ")[raw], "2.00")
        self.assertEqual(rows[3].split(" | ")[raw], "**0.62 to 1.2**")

    def test_losing_cases(self):
        table = exchange_tables.FIGURES["losing"](self.samples())
        self.assertIn("| `raw` | 1 | 0 | 1 | 0.62 to 1.2 (4 ranks, 64 MiB) |", table)
        self.assertIn("| `signsgd` | 2 | 0 | 0 | 2.00 (2 ranks, 4 KiB) |", table)

    def test_short_figures(self):
        for name, text in (("raw-2-ranks-4-KiB", "2.00"), ("topk-1-fixed-10-4-ranks-64-MiB", "2.00"),
                           ("raw-beaten-by-open-mpi", "1 of 2"), ("raw-4-ranks-4-KiB", "not measured")):
            self.assertEqual(exchange_tables.FIGURES[name](self.samples()), text)
        for name, figure in exchange_tables.FIGURES.items():
            self.assertIsNotNone(pages.SPAN.fullmatch(f"<!-- result exchanges.{name} --><!-- end -->"))
            self.assertTrue(figure({}), name)

    def test_each_key_is_measured_three_times(self):
        batches = exchanges.batches(self.samples())
        self.assertEqual(len(batches), 3 * len(exchange_setups.KEYS) - 4)
        self.assertEqual({batch.argument[1] for batch in batches[:len(exchange_setups.KEYS) - 2]}, {0})

    def test_exchanges_of_calibrations(self):
        points = [{"bytes": 65536.0, "us": 300.0, "busy_us": 1.0}, {"bytes": 1048576.0, "us": 1000.0, "busy_us": 1.0}]
        exchanges = [{"library": library, "codec": codec, "points": [each | {"us": each["us"] * factor} for each in points]}
                     for library, codec, factor in (("gloo", "fp32", 1), ("gloo", "bf16", 2), ("gradlane", "raw", 0.5))]
        rings = exchange_tables.rings_of_calibrations({"2 nodes, 1gbit": [{"json": {"exchanges": exchanges}}]})
        self.assertIn("| 2 nodes, 1gbit | 1 MiB | 1.00 ms | **0.50** | 2.00 |",
                      exchange_tables.speed_table(rings))
        self.assertIn("| `gloo bf16` | 0 | 0 | 2 | 0.50 (2 nodes, 1gbit, 64 KiB) |", exchange_tables.losing_table(rings))
        self.assertEqual(exchange_tables.record(rings, "raw"), "2 of 2, at worst 2.00 (2 nodes, 1gbit, 64 KiB)")
        self.assertEqual(exchange_tables.record(rings, "int8"), "not measured")

    def test_plot(self):
        data = exchange_tables.plot_data(self.samples())
        self.assertEqual(data["4 ranks"]["raw"], [[1 << 26, 0.8]])


class Front(unittest.TestCase):
    def combined(self, loss):
        cell = next(cell for cell in setups.CELLS if (cell.nodes, cell.model, cell.batch) == (4, "gpt", 1))
        run = {"ms": {method.name: [100.0] for method in setups.METHODS} | {"fixed:adaptive": [50.0]}}
        return {"steps": {cell.key: [run]},
                "accuracy": {"gpt/1/Gloo": [{"loss": [3.0, 2.5, 2.0, 1.0], "identical": True}],
                             "gpt/1/fixed:adaptive": [{"loss": loss, "identical": True}]}}

    def test_time_to_the_same_loss(self):
        # The loss is reached within the second epoch, after 1.99 epochs, and by Gloo after 3.99.
        (gbps, (value,)), = front.speed_ups(self.combined([2.0, 1.0, 1.0, 1.0]), "fixed:adaptive", 4)
        self.assertEqual(gbps, 0.2)
        self.assertAlmostEqual(value, 2 * 3.99 / 1.99)
        self.assertEqual(front.headline(self.combined([2.0, 1.0, 1.0, 1.0])),
                         "gradlane fixed:adaptive 4.01; gradlane raw (exact) 1.00 (at 0.2 Gb/s)")
        self.assertEqual(front.reached(self.combined([2.0, 1.0, 1.0, 1.0])), ["raw", "fixed:adaptive"])

    def test_a_loss_that_is_not_reached_has_no_speed_up(self):
        samples = self.combined([3.0, 2.5, 2.0, 1.5])
        self.assertEqual(front.speed_ups(samples, "fixed:adaptive", 4), [])
        self.assertEqual(front.row_of("fixed:adaptive", 4)(samples), "not reached")
        self.assertIn("`fixed:adaptive`", front.not_reached(samples))


class Texts(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([texts.ratio_text(each) for each in ([1.32], [1.3, 1.32, 1.4], [0.7, 1.2])],
                         ["1.32", "1.32", "0.7 to 1.2"])
        self.assertEqual([texts.time_text(us) for us in (4.321, 99.96, 123, 999.6, 14700, 2.5e6, 1.5e9)],
                         ["4.32 us", "100 us", "123 us", "1.00 ms", "14.7 ms", "2.50 s", "1.50e+03 s"])


class Everything(unittest.TestCase):
    def test_experiments_agree_with_their_files(self):
        for name, each in experiment.experiments().items():
            self.assertEqual(name, each.name)
            self.assertTrue(dataclasses.is_dataclass(each))
            self.assertTrue(sources_hash(each.sources))
            Store(each).values()


if __name__ == "__main__":
    unittest.main()
