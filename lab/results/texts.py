"""texts.py - how numbers are written in tables and spans"""

import re
import statistics

DIFFERS = 1.15  # runs that differ by more are given as a range
COUNTS = 1.1  # a difference of speed that counts


def ratio_text(found):
    """Returns "1.32", the median of the ratios of several runs, or, if they differ much, "1.2 to 1.5"."""
    if max(found) > DIFFERS * min(found):
        return " to ".join(f"{each:.2g}" if each < 99.5 else f"{each:.0f}" for each in (min(found), max(found)))
    return f"{statistics.median(found):.2f}"


def counts(ratios):
    """Returns how many ratios of speed are (faster, about the same, slower), by more than 10 % or less."""
    faster, slower = sum(each > COUNTS for each in ratios), sum(each < 1 / COUNTS for each in ratios)
    return faster, len(ratios) - faster - slower, slower


def range_text(values, digits):
    """Returns the median of several runs, or, if they differ much, "1.2 to 1.5"."""
    if max(values) > DIFFERS * min(values):
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"
    return f"{statistics.median(values):.{digits}f}"


def time_text(us):
    """Returns microseconds with three digits and a unit."""
    for unit, factor in (("us", 1), ("ms", 1e3), ("s", 1e6)):
        if us < 999.5 * factor or unit == "s":
            return f"{us / factor:#.3g}".removesuffix(".") + f" {unit}"
    return ""


def size_text(count):
    """Returns a number of bytes, which is whole KiB, with a unit."""
    kib = int(count) >> 10
    return f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"


def slug(text):
    """Returns a text as a name of a figure."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text)
