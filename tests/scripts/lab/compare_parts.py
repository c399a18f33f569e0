"""Tests the parts of lab/compare.sh without a run: checks, figures, tables, and estimates of time. compare_test.py runs
it."""

import argparse
import contextlib
import copy
import os
import tempfile
import unittest
import unittest.mock

MIB = 1 << 20


class PartsTest(unittest.TestCase):
    """Tests that the parts accept right results and reject wrong ones."""

    def test_wrong_values_are_counted(self):
        from lab.compare import checks
        from lab.compare import data
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            values = [np.full(64, 0.25, np.float32), np.full(64, -0.5, np.float32)]
            for rank in range(2):
                values[rank].tofile(data.path(folder, "gauss", rank))
            reference = checks.Reference(folder, "gauss", 2, 64)
            total = values[0] + values[1]
            self.assertEqual(reference.check(total, "raw", average=False), (0, 0.0))
            self.assertEqual(reference.check(total / 2, "raw", average=True), (0, 0.0))
            self.assertEqual(reference.check(total / 2, "raw", average=False)[0], 64)
            total[3] += 0.003
            total[5] = np.nan
            self.assertEqual(reference.check(total, "fixed:10", average=False)[0], 2)
            total[5] = -0.25
            self.assertEqual(reference.check(total, "fixed:10", average=False)[0], 1)
            self.assertEqual(reference.check(total, "fixed:9", average=False)[0], 0)
            self.assertEqual(reference.check(total, "bf16", average=False)[0], 0)
            self.assertEqual(reference.check(total, "raw", average=False)[0], 1)

    def row(self, method, median, **place):
        return {"nodes": 4, "rate": "1gbit", "mtu": 1500, "bytes": 16 * MIB, "data": "gauss", "method": method,
                "median": median, "min": median / 2, "max": median * 2, "cpu_per_gb": 1, **place}

    @staticmethod
    def wanted():
        """Returns all targets as (place, our method, the other method, factor). The other method must take at least
        `factor` times as long as ours."""
        found = []
        for mtu in (1500, 9000):
            for data, times in (("gauss", 4.6), ("digits", 14)):
                place = {"mtu": mtu, "data": data}
                found += [(place, "gradlane fixed:10", "gloo", times), (place, "gradlane fixed:10", "aggregator", 12.5)]
        for nodes, rate, size, least in ((4, "5gbit", 16, (1, 2.5)), (2, "5gbit", 16, (1, 2)),
                                         (4, "full", 64, (1.3, 2.5))):
            place = {"nodes": nodes, "rate": rate, "bytes": size * MIB}
            found += [(place, f"gradlane {codec}", "gloo", times) for codec, times in zip(("raw", "fixed:10"), least)]
        found += [({"nodes": 2, "rate": "full", "bytes": 4 << 10}, "gradlane raw", "gloo", 3),
                  ({"bytes": 4 << 10}, "direct raw", "gradlane raw", 1 / 0.6),
                  *(({"mtu": mtu}, "gradlane fixed:10", "aggregator:0 raw", 10) for mtu in (1500, 9000))]
        for nodes, ours, other, times in (
                (2, "gradlane raw", "gloo", 2), (2, "gradlane raw", "mpi shm", 1),
                (2, "gradlane fixed:10", "mpi shm", 2), (4, "gradlane raw", "gloo", 1.5)):
            found.append(({"nodes": nodes, "rate": "none", "mtu": 9000, "bytes": 64 * MIB}, ours, other, times))
        for size in (4 << 10, 64 << 10, MIB, 16 * MIB, 64 * MIB):
            for nodes in (2, 4):
                place = {"nodes": nodes, "rate": "none", "mtu": 9000, "bytes": size}
                found += [(place, ours, "gloo", 1 / 1.1) for ours in ("gradlane raw", "backend raw")]
        return found

    def test_figures_are_met_or_missed(self):
        """Tests each figure with only its two rows. It is met just above its limit, and missed just below it."""
        from lab.compare import figures

        reached = set()
        for place, ours, other, times in self.wanted():
            for factor, verdict in ((1.001, True), (0.999, False)):
                rows = [self.row(ours, 1, **place), self.row(other, times * factor, **place)]
                found = {each["what"]: each for each in figures.figures({"rows": rows, "mtu": 1500})
                         if each["met"] is not None and "x" in each["wanted"] and "CPU" not in each["what"]
                         or "% less" in each["wanted"] and each["met"] is not None}
                limits = [each for each in self.wanted() if each[:3] == (place, ours, other)]
                self.assertEqual(len(found), len(limits), (place, ours, other, found))
                verdicts = sorted(each["met"] for each in found.values())
                # Two figures may use the same two rows. Then each of them has its own limit.
                self.assertEqual(verdicts, sorted(factor * times >= limit[3] for limit in limits), (place, ours, other))
                self.assertIn(verdict, verdicts)
                reached.update(found)
        everything = {each["what"] for each in figures.figures({"rows": [], "mtu": 1500})
                      if "busbw" not in each["what"] and "CPU" not in each["what"]}
        self.assertEqual(len(everything), 7 + 4 + 2 + 4 + 20)
        self.assertEqual(everything - reached, set())
        self.assertEqual(len(reached), len(self.wanted()))

    def results(self, rows, **others):
        return {"rows": rows, "mtu": 1500, "quick": False, "jobs": [], "notes": [], "data": {}, "seconds": 60,
                "about": {"cores": 2, "cpu": "some", "kernel": "6", "torch": "1", "python": "3"}, **others}

    def whole_run(self):
        """Returns the results of a run that measured everything."""
        from lab.compare import plan

        return self.results([
            self.row(method, 1.0, nodes=job.nodes, rate=job.rate, mtu=job.mtu, bytes=point.size, data=point.data,
                     samples=[1.0] * 7, wrong=0, same_on_all_ranks=True)
            for job in plan.jobs(False, 1500, {}) for point in job.points for method in point.methods])

    def test_only_whole_results_are_fit_for_the_page(self):
        from lab.compare import report

        self.assertEqual(report.unfit(self.whole_run()), [])

        def without_a_row(results):
            results["rows"].pop()

        def wrong(results):
            results["rows"][3]["wrong"] = 1

        def different(results):
            results["rows"][3]["same_on_all_ranks"] = False

        def few(results):
            results["rows"][3]["samples"].pop()

        for change, text in ((without_a_row, "1 of"), (wrong, "1 results are wrong"),
                             (different, "1 results are wrong"), (few, "6 samples"),
                             (lambda results: results.update(failed=True), "failed"),
                             (lambda results: results.update(quick=True), "--quick"),
                             (lambda results: results.update(mtu=9000), "9000")):
            results = copy.deepcopy(self.whole_run())
            change(results)
            reasons = report.unfit(results)
            self.assertEqual(len(reasons), 1, reasons)
            self.assertIn(text, reasons[0])

    def test_report_says_what_it_is_worth(self):
        from lab.compare import tables

        quiet, busy = {"idle_cores": 0.1}, {"idle_cores": 0.9}
        self.assertEqual(tables.warnings(self.results([], jobs=[quiet, {}])), [])
        self.assertIn("not quiet", "".join(tables.warnings(self.results([], jobs=[quiet, busy]))))
        self.assertIn("--quick", "".join(tables.warnings(self.results([], quick=True))))
        self.assertTrue(tables.whole(self.results([], jobs=[busy]), lambda name: None).startswith("**WARNING"))
        alone, gloo = self.row("gradlane raw", 1.0), self.row("gloo", 2.0)
        for rows in ([], [alone], [gloo]):
            self.assertIn("nothing to compare", tables.lost(self.results(rows)))
        self.assertEqual(tables.lost(self.results([alone, gloo])), "Nowhere in these results.")
        self.assertIn("Gloo", tables.lost(self.results([alone, self.row("gloo", 0.5)])))

    def test_what_is_left_of_the_time(self):
        from lab.compare import main
        from lab.compare import plan

        jobs = plan.jobs(False, 1500, {})
        progress = main.Progress(jobs, plan.FULL)
        for job in jobs:
            before = progress.left
            progress.begin(job)
            for point in job.points[: None if job is jobs[0] else 1]:  # other jobs fail after their first point
                progress.point(job, point)
            progress.end()
            self.assertAlmostEqual(before - progress.left, sum(progress.parts_of(job)))
        self.assertAlmostEqual(progress.left, 0)

    def test_jobs_have_an_environment_of_their_own(self):
        from lab.compare import main

        strange = {"GLOO_SOCKET_IFNAME": "eth9", "OMPI_MCA_btl": "self", "GRADLANE_SOCKET": "/a", "GRADLANED": "/b"}
        with unittest.mock.patch.dict(os.environ, strange):
            found = main.environment()
        self.assertEqual([name for name in strange if name in found], ["GRADLANED"])
        self.assertIn("PATH", found)

    def test_data_that_do_not_fit_are_said_to(self):
        from lab.compare import main
        from lab.compare import plan

        jobs = plan.jobs(True, 1500, {})
        change = unittest.mock.patch.object
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            with change(main, "machine"):
                run = main.Run(argparse.Namespace(quick=True, samples=None, minutes=1, mtu=1500, out=folder), jobs)
            for broken in (change(main, "SHM", f"{folder}/none"),
                           change(main.data, "write", side_effect=OSError("1024 requested and 0 written"))):
                with broken, self.assertRaisesRegex(main.Refused, "MiB are needed"):
                    run.make_data(stack)
        self.assertEqual(main.data.room(jobs), 5 * MIB)  # 1 MiB each: gauss and digits of two ranks, and one result

    def test_what_is_slower_is_marked(self):
        from lab.compare import tables

        times = {"gradlane raw": 3.0, "gradlane bf16": 1.5, "gradlane fixed:10": 0.5, "gloo": 2.0, "mpi tcp": 1.0}
        rows = {name: self.row(name, time) for name, time in times.items()}
        self.assertEqual(tables.losses(rows, rows["gradlane raw"]), ["gloo", "mpi tcp"])
        self.assertEqual(tables.losses(rows, rows["gradlane bf16"]), ["mpi tcp"])
        self.assertEqual(tables.losses(rows, rows["gradlane fixed:10"]), [])
        self.assertEqual(tables.losses(rows, rows["gloo"]), [])
        self.assertIn("slower", tables.speed_cell(rows, rows["gradlane raw"]))
        self.assertAlmostEqual(tables.busbw(rows["gloo"]), 16 * MIB / 2 / 1e9 * 1.5)

    def test_strategies_are_where_they_are_wanted(self):
        from lab.compare import plan
        from lab.compare import tables

        for job in plan.jobs(False, 1500, {}):
            there = {(point.size, point.data) for point in job.points if set(plan.STRATEGIES) <= set(point.methods)}
            some = {(point.size, point.data) for point in job.points if set(plan.STRATEGIES) & set(point.methods)}
            self.assertEqual(there, some)
            wanted = {"gauss"} if (job.rate, job.link) == ("1gbit", "udp") else set()
            self.assertEqual({data for _, data in there}, wanted, job)
            self.assertEqual(plan.strategies_of(job), ["ring", "direct", "aggregator:0"] if there else ["ring"])
            if (job.nodes, job.rate, job.mtu, job.link) == (4, "1gbit", 1500, "udp"):
                self.assertLessEqual({(4 << 10, "gauss"), (16 * MIB, "gauss")}, there)
        alone = plan.jobs(False, 1500, plan.parse_filter(["method=direct raw", "size=4K"]))
        self.assertEqual([(job.nodes, job.rate, len(job.points)) for job in alone], [(4, "1gbit", 1), (2, "1gbit", 1)])
        self.assertEqual(plan.strategies_of(alone[0]), ["ring", "direct"])
        # The aggregator is gradlane's baseline. It is never the best other method, and it is never marked as slower.
        rows = {name: self.row(name, time) for name, time in (("gloo", 2.0), ("aggregator:0 raw", 1.0))}
        self.assertEqual(tables.best_other(rows)["method"], "gloo")
        rows["aggregator:0 raw"]["median"] = 3.0
        self.assertEqual(tables.losses(rows, rows["aggregator:0 raw"]), [])

    def test_what_needs_sockets_is_measured_on_them(self):
        from lab.compare import plan

        for job in plan.jobs(False, 1500, {}):
            self.assertIn(job.link, ("vhost",) if job.rate == "none" else ("udp", "veth"))
            for point in job.points:
                self.assertEqual({name.startswith("packets") for name in point.methods}, {job.link == "veth"}, job)

    def test_every_method_has_a_name_and_a_look(self):
        from lab.compare import plan
        from lab.compare import plots

        self.assertEqual(set(plan.METHODS), set(plan.LABELS))
        self.assertEqual(set(plan.METHODS), set(plots.LOOKS))

    def test_the_faster_gloo_counts(self):
        from lab.compare import figures
        from lab.compare import tables

        rows = {name: self.row(name, time) for name, time in (("gradlane raw", 1.5), ("gloo", 2.0), ("gloo 2", 1.0))}
        self.assertEqual(tables.gloo(rows), "gloo 2")
        self.assertEqual(tables.losses(rows, rows["gradlane raw"]), ["gloo 2"])
        self.assertEqual(tables.gloo({}), None)
        faster = figures.Faster(rows.values())
        self.assertEqual(faster.get(4, "1gbit", 1500, 16 * MIB, "gauss", "gloo")["median"], 1.0)

    def test_shares_and_cpu_time(self):
        from lab.compare import figures

        def met(rows):
            found = figures.figures({"rows": rows, "mtu": 1500})
            return {each["what"]: each["met"] for each in found if "rate" in each["what"] or "CPU" in each["what"]}

        least = 16 * MIB / 1e9 * 1.5 / 0.125
        share, packets, gloo = list(met([]))[:3]
        self.assertEqual(set(met([]).values()), {None})
        for busy, others, verdict in ((0.39, 0.31, True), (0.41, 0.31, False), (0.39, 0.29, False)):
            found = met([self.row("gradlane raw", least / 0.915, cpu_per_gb=busy), self.row("packets raw", 1),
                         self.row("gloo", 1, cpu_per_gb=others)])
            self.assertEqual([found[share], found[packets] and found[gloo]], [True, verdict])
        self.assertFalse(met([self.row("gradlane raw", least / 0.905)])[share])

    def test_open_mpi_is_needed_for_its_methods_only(self):
        from lab.compare import main
        from lab.compare import plan

        with unittest.mock.patch.object(main.shutil, "which", return_value=None):
            self.assertEqual(main.missing_mpi(plan.jobs(False, 1500, {})), "mpirun")
            self.assertIsNone(main.missing_mpi(plan.jobs(False, 1500, plan.parse_filter(["method=gloo,gradlane raw"]))))
        with unittest.mock.patch.object(main.importlib.util, "find_spec", return_value=None):
            self.assertIn(main.missing_mpi(plan.jobs(False, 1500, {})), ("mpirun", "mpi4py"))

    def test_bad_filters_are_refused(self):
        from lab.compare import plan

        for only in ("rate=2gbit", "method=nccl", "size=12", "colour=red", "nodes"):
            self.assertRaises(ValueError, plan.parse_filter, [only])
