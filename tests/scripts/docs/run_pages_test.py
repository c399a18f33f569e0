#!/usr/bin/python3
"""Tests dev/run_pages.py with pages whose commands succeed, fail and hang: run_pages_test.py. Needs root."""

import argparse
import os
import pathlib
import sys
import tempfile
import time
import unittest
import unittest.mock

from tests.scripts.fixtures.networks import need_root
from tests.scripts.fixtures.paths import ROOT

sys.path.insert(0, str(ROOT / "dev"))
import run_pages  # noqa: E402

PAGE = """# A page

```sh
cat >left-over <<'END'
x
END
(while echo alive >>"$HOME/../../alive"; do sleep 0.1; done) &
until [ -e "$HOME/../../alive" ]; do sleep 0.1; done
name=value
```

1. An item:

   ```sh
   test $name = value
   echo "this is line $LINENO"
   false | true
   echo not reached
   ```

<!-- skip: a reason -->
```sh skip
exit 1
```

```sh skip
exit 1
```
"""


class Pages(unittest.TestCase):
    def run_page(self, text, seconds=60.0):
        args = argparse.Namespace(seconds=seconds, verbose=False, build=ROOT / "build", pytorch=ROOT / "build-pytorch")
        return run_pages.run_page("page.md", text, args)

    def test_blocks(self):
        blocks = list(run_pages.blocks(PAGE))
        self.assertEqual([block.line for block in blocks], [4, 15, 23, 27])
        self.assertEqual([block.runs for block in blocks], [True, True, False, False])
        self.assertEqual([block.reason for block in blocks], ["", "", "a reason", ""])
        self.assertEqual([bool(block.fault) for block in blocks], [False, False, False, True])

    def test_failure(self):
        need_root(self)
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(tempfile, "tempdir", folder):
            fault, _ = self.run_page(PAGE)
            self.assertIn("page.md:17: exit status 1", fault)
            self.assertIn("this is line 16", fault)
            self.assertNotIn("not reached", fault)
            self.assertFalse((ROOT / "left-over").exists())
            alive = pathlib.Path(folder) / "alive"
            size = alive.stat().st_size
            time.sleep(0.5)
            self.assertEqual(alive.stat().st_size, size, "a process has outlived its page")
            self.assertEqual(os.listdir(folder), ["alive"])

    def test_success(self):
        need_root(self)
        self.assertEqual(self.run_page("# A page\n\n```sh\ntrue\n```\n"), (None, 1))

    def test_hanging(self):
        need_root(self)
        fault, _ = self.run_page("# A page\n\n```sh\nsleep 1000\n```\n", 5.0)
        self.assertEqual(fault, "page.md:4: still runs after 5 s: sleep 1000")


if __name__ == "__main__":
    unittest.main(verbosity=2)
