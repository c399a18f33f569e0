#!/usr/bin/python3
"""Tests that the Python package agrees with gradlane.h and meson.build, and keeps its own promises. Needs no daemon."""

import ast
import collections
import enum
import inspect
import pathlib
import pickle
import re
import unittest

import numpy

import gradlane
from gradlane import _codecs, _library, adaptive, errors

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "client/python/gradlane"
HEADER = (ROOT / "client/gradlane.h").read_text()


def enum_of(name):
    """Return the names, without GRADLANE_, and the values of an enum of gradlane.h."""
    body = re.search(rf"typedef enum {name} {{(.*?)}} {name};", HEADER, re.DOTALL)[1]
    return {word: int(value) for word, value in re.findall(r"GRADLANE_(\w+) = (-?\d+)", body)}


def fields_of(name):
    """Return the names of the fields of a struct of gradlane.h, in order."""
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", HEADER, re.DOTALL)[1]
    body = re.sub(r"//[^\n]*", "", body)
    return [re.search(r"(\w+)$", field.strip())[1] for field in body.split(";") if field.strip()]


class Header(unittest.TestCase):
    def same(self, ours, theirs):
        self.assertEqual({member.name: member.value for member in ours}, theirs)

    def test_enums(self):
        self.same(gradlane.Code, enum_of("gradlane_code"))
        causes = {name.removeprefix("CAUSE_"): value for name, value in enum_of("gradlane_cause").items()}
        self.same(gradlane.Cause, causes)
        self.same(_library.Type, enum_of("gradlane_type"))
        self.same(_library.Reduction, enum_of("gradlane_reduction"))
        flags = dict(re.findall(r"#define GRADLANE_CODEC_([A-Z_]+) (\d+)u", HEADER))
        self.same(_library.Capability, {name: int(value) for name, value in flags.items()})

    def test_version(self):
        below = int(re.search(r"define GRADLANE_EXACT_BELOW (\d+)", HEADER)[1])
        self.assertEqual(_library.EXACT_BELOW, below)
        self.assertEqual(_library.API_VERSION, int(re.search(r"define GRADLANE_API_VERSION (\d+)", HEADER)[1]))

    def test_bits(self):
        table = dict(re.findall(r"k(Min|Max)AutoBits = (\d+);", (ROOT / "compress/codec_table.h").read_text()))
        self.assertEqual((adaptive.MIN_BITS, adaptive.MAX_BITS), (int(table["Min"]), int(table["Max"])))

    def test_structs(self):
        for struct, name in ((_library.Options, "options"), (_library.How, "how"), (_library.Figures, "figures"),
                             (_library.CodecInfo, "codec_info")):
            with self.subTest(name):
                self.assertEqual([field[0] for field in struct._fields_], fields_of(f"gradlane_{name}"))


class Codecs(unittest.TestCase):
    """Tests of a daemon's table of codecs whose names this package does not know."""

    def test_by_what_they_can_do(self):
        flags = _library.Capability
        rows = ((b"half", 0, 0, flags(0)), (b"near", 2, 20, flags.ADAPTIVE | flags.FEEDBACK), (b"same", 0, 0, flags.EXACT),
                (b"close", 1, 9, flags.ADAPTIVE))

        class Daemon:
            handle, lib = None, None

            def check(self, code):
                self.code = code

            def gradlane_codecs(self, _):
                return len(rows)

            def gradlane_get_codec(self, _, number, info):
                info = info._obj
                info.word, info.least, info.most, info.flags = rows[number]
                return errors.OK

        daemon = Daemon()
        daemon.lib = daemon
        found = _codecs.of(daemon)
        self.assertEqual(found, ("same", "near", 2, 20))
        bound = gradlane.AdaptiveBound()
        bound._codecs = found
        for magnitude, name in ((0, "same"), (1.0, "near:4"), (7.0, "near:2"), (1e-3, "near:14"), (1e-6, "same")):
            for _ in range(2):
                bound.update(numpy.full(8, magnitude, numpy.float32))
            self.assertEqual(bound.codec(), name)
        rows = ()
        self.assertEqual(_codecs.of(daemon), _codecs.ASSUMED)


class Errors(unittest.TestCase):
    def test_codes(self):
        for code in gradlane.Code:
            error = errors.error(code.value, "why")
            self.assertIs(error.code, code)
            self.assertEqual(str(error), "why")
        unknown = errors.error(-99, "why").code
        self.assertEqual(unknown, -99)
        self.assertEqual(pickle.loads(pickle.dumps(unknown)), -99)
        self.assertEqual((str(unknown), repr(unknown)), ("UNKNOWN_99", "<Code.UNKNOWN_99: -99>"))
        code = errors.bad_argument("").code
        self.assertEqual((str(code), f"{code}", f"{code:d}", "%d" % code), ("BAD_ARGUMENT",) * 2 + ("-1",) * 2)
        for code in gradlane.Code:
            self.assertIn(f"{code} ({code:d})", gradlane.Code.__doc__)
        self.assertIsInstance(errors.error(-5, ""), gradlane.OutOfMemory)

    def test_copies(self):
        for cause in (gradlane.DaemonGone, gradlane.OperationFailed, gradlane.Error):
            copy = pickle.loads(pickle.dumps(cause(gradlane.Code.FAILED, "why", 8)))
            self.assertIs(type(copy), cause)
            self.assertEqual((copy.code, str(copy), f"{copy.cause}"), (gradlane.Code.FAILED, "why", "TIMEOUT"))
        self.assertEqual((errors.error(-4, "", 99).cause, errors.error(-1, "", 8).cause),
                         (gradlane.Cause.OTHER, gradlane.Cause.NONE))


def public(tree):
    """Yield the public classes and functions of a module, and the public methods of these classes.

    Their names do not begin with an underscore.
    """
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


class Sources(unittest.TestCase):
    def modules(self):
        return sorted(PACKAGE.rglob("*.py"))

    def test_all_are_installed(self):
        listed = re.findall(r"'python/gradlane/([\w/.]+)'", (ROOT / "client/meson.build").read_text())
        # Symlinks point to the C header.
        native = [path for folder in ("native", "kernels") for path in (PACKAGE / "torch" / folder).iterdir()
                  if not path.is_symlink()]
        there = [str(path.relative_to(PACKAGE)) for path in [*self.modules(), *native]] + ["py.typed"]
        self.assertEqual(sorted(listed), sorted(there))

    def test_docstrings(self):
        for path in self.modules():
            tree = ast.parse(path.read_text())
            self.assertTrue(ast.get_docstring(tree), path)
            for node in public(tree):
                words = {getattr(word, "id", getattr(word, "attr", "")) for word in node.decorator_list}
                inherited = path.name == "operations.py" and path.parent.name == "torch"
                if not words & {"overload", "property"} and not inherited:
                    self.assertTrue(ast.get_docstring(node), f"{path.name}:{node.lineno}: {node.name}")

    def test_async_of_any_kind(self):
        """Check that `async_` may be a variable, which is neither Literal[True] nor Literal[False]."""
        hints = collections.defaultdict(list)
        nodes = [node for name in ("_context.py", "_direct.py") for node in public(ast.parse((PACKAGE / name).read_text()))]
        for node in nodes:
            for argument in node.args.kwonlyargs if isinstance(node, ast.FunctionDef) and node.decorator_list else ():
                if argument.arg == "async_":
                    hints[node.name].append(ast.unparse(argument.annotation))
        self.assertEqual(set(hints), {
            "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "reduce", "gather", "scatter", "all_to_all"})
        for hint in hints.values():
            self.assertEqual(hint, ["Literal[False]", "Literal[True]", "bool"])

    def test_no_numbers_for_codes(self):
        for path in self.modules():
            for number, line in enumerate(path.read_text().splitlines(), 1):
                self.assertNotRegex(line, r"\bcode\b.* [!=]= -?\d|error\(-\d", f"{path}:{number}")

    def test_hints(self):
        for name in gradlane.__all__:
            thing = getattr(gradlane, name)
            methods = [thing] if inspect.isfunction(thing) else [
                method for word, method in vars(thing).items() if inspect.isfunction(method) and word[0] != "_"]
            for method in methods if not isinstance(thing, enum.EnumMeta) else ():
                self.assertIn("return", method.__annotations__, method)


if __name__ == "__main__":
    unittest.main(verbosity=2)
