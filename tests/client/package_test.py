#!/usr/bin/python3
"""The Python package against what it must agree with: gradlane.h, meson.build, its own promises. Needs no daemon."""

import ast
import enum
import inspect
import pathlib
import pickle
import re
import unittest

import gradlane
from gradlane import _library, errors

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "client/python/gradlane"
HEADER = (ROOT / "client/gradlane.h").read_text()


def enum_of(name):
    """Names, without GRADLANE_, and values of an enum of gradlane.h."""
    body = re.search(rf"typedef enum {name} {{(.*?)}} {name};", HEADER, re.DOTALL)[1]
    return {word: int(value) for word, value in re.findall(r"GRADLANE_(\w+) = (-?\d+)", body)}


def fields_of(name):
    """Names of a struct of gradlane.h, in order."""
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", HEADER, re.DOTALL)[1]
    body = re.sub(r"//[^\n]*", "", body)
    return [re.search(r"(\w+)$", field.strip())[1] for field in body.split(";") if field.strip()]


class Header(unittest.TestCase):
    def same(self, ours, theirs):
        self.assertEqual({member.name: member.value for member in ours}, theirs)

    def test_enums(self):
        self.same(gradlane.Code, enum_of("gradlane_code"))
        self.same(_library.Type, enum_of("gradlane_type"))
        flags = dict(re.findall(r"#define GRADLANE_CODEC_([A-Z_]+) (\d+)u", HEADER))
        self.same(_library.Capability, {name: int(value) for name, value in flags.items()})

    def test_version(self):
        self.assertEqual(_library.API_VERSION, int(re.search(r"define GRADLANE_API_VERSION (\d+)", HEADER)[1]))

    def test_structs(self):
        for struct, name in ((_library.Options, "options"), (_library.How, "how"), (_library.Figures, "figures"),
                             (_library.CodecInfo, "codec_info")):
            with self.subTest(name):
                self.assertEqual([field[0] for field in struct._fields_], fields_of(f"gradlane_{name}"))


class Errors(unittest.TestCase):
    def test_codes(self):
        for code in gradlane.Code:
            error = errors.error(code.value, "why")
            self.assertIs(error.code, code)
            self.assertEqual(str(error), "why")
        self.assertEqual(errors.error(-99, "why").code, -99)
        self.assertIsInstance(errors.error(-5, ""), gradlane.OutOfMemory)

    def test_copies(self):
        for cause in (gradlane.DaemonGone, gradlane.OperationFailed, gradlane.Error):
            copy = pickle.loads(pickle.dumps(cause(gradlane.Code.FAILED, "why")))
            self.assertIs(type(copy), cause)
            self.assertEqual((copy.code, str(copy)), (gradlane.Code.FAILED, "why"))


def public(tree):
    """Of a module: its classes and functions, and those of its classes, whose names begin with no underscore."""
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
        there = [str(path.relative_to(PACKAGE)) for path in self.modules()] + ["py.typed"]
        self.assertEqual(sorted(listed), sorted(there))

    def test_one_version(self):
        meson = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
        self.assertIn(f'\nversion = "{meson}"', (PACKAGE.parent / "pyproject.toml").read_text())

    def test_docstrings(self):
        for path in self.modules():
            tree = ast.parse(path.read_text())
            self.assertTrue(ast.get_docstring(tree), path)
            for node in public(tree):
                words = {getattr(word, "id", getattr(word, "attr", "")) for word in node.decorator_list}
                inherited = path.name == "operations.py" and path.parent.name == "torch"
                if not words & {"overload", "property"} and not inherited:
                    self.assertTrue(ast.get_docstring(node), f"{path.name}:{node.lineno}: {node.name}")

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
    unittest.main()
