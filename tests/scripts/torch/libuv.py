"""Leaves out tests that start torchrun where PyTorch has no libuv, as Debian's."""

import os
import unittest

IS_MISSING = os.environ.get("USE_LIBUV") == "0"
needs_torchrun = unittest.skipIf(IS_MISSING, "USE_LIBUV=0, and torchrun's own store always uses libuv")
