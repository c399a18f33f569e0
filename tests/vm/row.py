"""What a row is."""

import dataclasses
import typing

PREFIX = "gl-vm-"  # of folders, with the number of the process that plays rows behind it


@dataclasses.dataclass
class Row:
    """play: is given a Stage, and returns a line for the table; whatever it raises has failed the row, except for
    kernels.Missing, which skips it. limit: seconds, by which all of it has ended. root: needs namespaces of this machine.
    short: belongs to the short form, too. fetch: gets what must be downloaded first, for which no limit counts."""

    name: str
    play: typing.Callable
    limit: int = 240
    root: bool = False
    short: bool = False
    fetch: typing.Callable = lambda: None
