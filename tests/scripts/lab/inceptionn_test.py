#!/usr/bin/python3
"""Tests lab/inceptionn: its codes against the golden vectors, its figures, and times from a trace. Needs NumPy; without
it, it is skipped (exit status 77)."""

import importlib.util
import sys
import unittest

from lab.inceptionn import gradients, systems, trace
from tests.scripts.fixtures.paths import ROOT

SKIPPED = 77


def golden(name):
    """Returns the floats of all encode cases of a golden file, and what they decode to."""
    import numpy

    words, kind = {"in": [], "out": []}, ""
    for line in (ROOT / "tests" / "compress" / "golden" / f"{name}.txt").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(" ")
        if key == "case":
            kind = rest.split()[0]
        elif key in words and kind == "encode":
            words[key] += [int(word, 16) for word in rest.split()]
    return (numpy.array(words[key], numpy.uint32).view(numpy.float32) for key in ("in", "out"))


class Codes(unittest.TestCase):
    def test_golden_vectors(self):
        import numpy

        from lab.inceptionn import codes

        for name, bits, code in (("inceptionn-6", 6, codes.bounded), ("inceptionn-10", 10, codes.bounded),
                                 ("inceptionn-6-literal", 6, codes.literal), ("inceptionn-10-literal", 10, codes.literal)):
            values, wanted = golden(name)
            self.assertGreater(len(values), 200)
            with numpy.errstate(over="ignore", invalid="ignore"):
                numpy.testing.assert_array_equal(code(values, bits), wanted, name)

    def test_figures(self):
        """Checks the figures of four values, one for each tag with B = 10."""
        import numpy

        from lab.inceptionn import codes

        found = codes.figures_of(numpy.array([0, 0.75 / 1024, 1.5 / 1024, 0.5, -3], numpy.float32))
        self.assertEqual(found["tags"]["10"], [0.4, 0.2, 0.2, 0.2])
        self.assertEqual(found["zeros"], 0.2)
        self.assertEqual(found["histogram"][-11 - codes.LEAST], 0.2)
        ours, literal = (found["loss"]["10"][code] for code in gradients.CODES)
        self.assertEqual((ours["zeroed"], ours["zeroed_of_class"], ours["error"]), (0.25, 0, 0.75))
        self.assertEqual((literal["zeroed"], literal["zeroed_of_class"], literal["error"]), (0.5, 1, 1.5))

    def test_the_literal_code_breaks_the_bound(self):
        from lab.inceptionn import codes

        found = codes.losses(codes.log_uniform())
        for bits in ("6", "8", "10"):
            self.assertLess(found[bits]["inceptionn:B"]["error"], 1)
        literal = [found[bits]["inceptionn:B,literal"] for bits in ("6", "8", "10")]
        self.assertEqual([round(each["error"], 1) for each in literal], [1, 2, 8])
        self.assertEqual([each["zeroed_of_class"] for each in literal], [0, 0.25, 0.6])


class Systems(unittest.TestCase):
    @staticmethod
    def operation(node, number, size, add, **more):
        args = {"number": number, "bytes": size, "encode_us": 1.0, "add_us": add, "decode_us": 2.0, **more}
        return {"cat": "operation", "pid": node, "args": args}

    def test_times_of_steps(self):
        """Checks that operations make steps by their bytes, from any one on. Cut operations and gaps are left out."""
        sizes = [30, 30, 40]
        events = [{"cat": "wait", "pid": 0, "args": {}},
                  self.operation(0, 4, 30, 1000.0, began_before_the_trace=True)]
        events += [self.operation(0, number, sizes[number % 3], 10.0 * number) for number in range(5, 12)]
        events += [self.operation(1, number, sizes[number % 3], 1.0) for number in (0, 1, 3, 4, 5)]
        found = trace.codec_times({"traceEvents": events}, 100)
        self.assertEqual(found["add_us"], {"0": [180.0, 270.0], "1": [3.0]})
        self.assertEqual(found["encode_us"], {"0": [3.0, 3.0], "1": [3.0]})

    def test_split(self):
        run = {"step_ms": [20, 10, 30], "computing_ms": [5, 6, 7], "add_us": {"0": [1000, 3000], "1": [500]}}
        self.assertEqual(systems.split(run), {"step": 20, "computing": 6, "exchanging": 14, "adding": 2})
        slow = {**run, "step_ms": [41]}
        samples = {"conv/WA": [slow], "conv/ring+C": [run, run]}
        row = systems.table("conv")(samples).splitlines()[-1]
        self.assertIn("| ring+C | `ring`, `fixed:10` | 20.0 |", row)
        self.assertTrue(row.endswith("| 6.00 | 14.00 | 2.00 | 2.50 | 2.05 |"), row)
        self.assertEqual(list(systems.drawn(samples)), ["conv"])

    def test_batches(self):
        everything = {key for batch in systems.batches({}) for key in batch.keys}
        self.assertEqual(len(everything), len(systems.MODELS) * len(systems.SYSTEMS))
        done = {key: [{}] * systems.RUNS for key in everything if key != "conv/WA"}
        self.assertEqual([batch.keys for batch in systems.batches(done)], [("conv/WA",)])


if __name__ == "__main__":
    if importlib.util.find_spec("numpy") is None:
        print("skipped: there is no NumPy")
        sys.exit(SKIPPED)
    unittest.main()
