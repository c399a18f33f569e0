"""Defines a row: a test in virtual machines, whose result is one line of a table."""

import dataclasses
import typing

PREFIX = "gl-vm-"  # prefix of folder names; the number of the process that plays the rows follows


@dataclasses.dataclass
class Row:
    """A test in virtual machines. play() gets a Stage, and returns a line for the table.

    The exception kernels.Missing skips the row, and any other exception fails it. `limit` is the number of seconds
    after which the row must have ended. With `root`, it needs namespaces of this machine. With `short`, it belongs to
    the short form too. fetch() first gets what must be downloaded, for which no limit counts.
    """

    name: str
    play: typing.Callable
    limit: int = 240
    root: bool = False
    short: bool = False
    fetch: typing.Callable = lambda: None
