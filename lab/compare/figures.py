# figures.py - targets of gradlane, compared with what was measured

from lab.compare import plan

MIB = plan.MIB


class Rows:
    """Rows that are found by nodes, rate, MTU, bytes, data and method."""

    def __init__(self, rows):
        self.rows = {self.key(row): row for row in rows}

    @staticmethod
    def key(row):
        return row["nodes"], row["rate"], row["mtu"], row["bytes"], row["data"], row["method"]

    def get(self, nodes, rate, mtu, size, data, method):
        return self.rows.get((nodes, rate, plan.JUMBO if rate == "none" else mtu, size, data, method))


def ratio(rows, place, slow, fast):
    """Returns how many times longer `slow` takes than `fast`: by the medians, least (best of slow / worst of fast), and
    most. Returns None if a row is missing."""
    one, other = rows.get(*place, slow), rows.get(*place, fast)
    if one is None or other is None:
        return None
    return one["median"] / other["median"], one["min"] / other["max"], one["max"] / other["min"]


def speed_up(rows, text, place, method, against, wanted):
    found = ratio(rows, place, against, method)
    measured = None if found is None else f"{found[0]:.2f}x ({found[1]:.2f} to {found[2]:.2f})"
    return {"what": text, "wanted": f"at least {wanted:g}x", "measured": measured,
            "met": None if found is None else found[0] >= wanted}


def saving(rows, text, place, method, against, wanted):
    found = ratio(rows, place, against, method)
    measured = None if found is None else "{:.1f} % ({:.1f} to {:.1f})".format(*(100 - 100 / each for each in found))
    return {"what": text, "wanted": f"at least {wanted:g} % less", "measured": measured,
            "met": None if found is None else 100 - 100 / found[0] >= wanted}


def not_slower(rows, text, place, method, against, wanted):
    found = ratio(rows, place, method, against)
    measured = None if found is None else f"{found[0]:.2f}x its time ({found[1]:.2f} to {found[2]:.2f})"
    return {"what": text, "wanted": f"at most {wanted:g}x", "measured": measured,
            "met": None if found is None else found[0] <= wanted}


def shaped(rows, mtu):
    found = []
    for name, data, wanted in (("Gaussian 0.01", "gauss", 4.6), ("digits gradients", "digits", 14)):
        where = (4, "1gbit", mtu, 16 * MIB, data)
        what = f"4 nodes, 1 Gb/s, MTU {mtu}, 16 MiB {name}, fixed:10"
        found.append(speed_up(rows, f"{what}: faster than Gloo", where, "gradlane fixed:10", "gloo", wanted))
        found.append(saving(rows, f"{what}: time against worker-aggregator", where, "gradlane fixed:10", "aggregator",
                            92))
    return found


def at_most(rows, text, place, method, against, wanted):
    """Returns a figure: CPU seconds of `method` must be at most `wanted` times those of `against`."""
    one, other = rows.get(*place, method), rows.get(*place, against)
    found = None if one is None or other is None else one["cpu_per_gb"] / max(other["cpu_per_gb"], 1e-9)
    return {"what": text, "wanted": f"at most {wanted:g}x", "measured": None if found is None else f"{found:.2f}x",
            "met": None if found is None else found <= wanted}


def share_of(rows, text, place, method, gigabytes, wanted):
    """Returns a figure: busbw must be at least `wanted` percent of a link's rate (`gigabytes` per second)."""
    row = rows.get(*place, method)
    if row is None:
        return {"what": text, "wanted": f"at least {wanted:g} %", "measured": None, "met": None}
    nodes, size = place[0], place[3]
    found = 100 * size / row["median"] / 1e9 * 2 * (nodes - 1) / nodes / gigabytes
    return {"what": text, "wanted": f"at least {wanted:g} %", "measured": f"{found:.1f} %", "met": found >= wanted}


class Faster(Rows):
    """Rows in which "gloo" stands for the faster one of two Gloo methods."""

    def get(self, *place_and_method):
        found = [super(Faster, self).get(*place_and_method[:-1], name)
                 for name in (plan.GLOOS if place_and_method[-1] == "gloo" else place_and_method[-1:])]
        return min((row for row in found if row), key=lambda row: row["median"], default=None)


def sockets(rows, mtu):
    """Returns the figures of ports that use sockets."""
    large = (4, "1gbit", mtu, 16 * MIB, "gauss")
    found = [share_of(rows, "4 nodes, 1 Gb/s, 16 MiB, raw: busbw of the rate", large, "gradlane raw", 0.125, 91),
             at_most(rows, "4 nodes, 1 Gb/s, 16 MiB, raw: CPU time of AF_PACKET's", large, "gradlane raw",
                     "packets raw", 0.4),
             at_most(rows, "4 nodes, 1 Gb/s, 16 MiB, raw: CPU time of Gloo's", large, "gradlane raw", "gloo", 1.3)]
    for nodes, rate, size, wanted in ((4, "5gbit", 16, (1, 2.5)), (2, "5gbit", 16, (1, 2)), (4, "full", 64, (1.3, 2.5))):
        for codec, least in zip(("raw", "fixed:10"), wanted):
            found.append(speed_up(rows, f"{nodes} nodes, {rate}, {size} MiB Gaussian 0.01, {codec}: faster than Gloo",
                                  (nodes, rate, mtu, size * MIB, "gauss"), f"gradlane {codec}", "gloo", least))
    tiny = (2, "full", mtu, plan.TINY, "gauss")
    found.append(not_slower(rows, "2 nodes, cables of no rate, 4 KiB, raw: against Gloo", tiny, "gradlane raw", "gloo",
                            1 / 3))
    return found


def unshaped(rows, mtu):
    found = []
    two, four = (2, "none", mtu, 64 * MIB, "gauss"), (4, "none", mtu, 64 * MIB, "gauss")
    for method, against, wanted in (("raw", "gloo", 2), ("raw", "mpi shm", 1), ("fixed:10", "mpi shm", 2)):
        found.append(speed_up(rows, f"2 nodes, unshaped, 64 MiB, {method}: faster than {plan.LABELS[against]}", two,
                              f"gradlane {method}", against, wanted))
    found.append(speed_up(rows, "4 nodes, unshaped, 64 MiB, raw: faster than Gloo", four, "gradlane raw", "gloo", 1.5))
    for size in (plan.TINY, *plan.SIZES):
        for nodes in (2, 4):
            for method in ("gradlane raw", "backend raw"):
                found.append(not_slower(
                    rows, f"{nodes} nodes, unshaped, {plan.size_text(size)}, {plan.LABELS[method]}: against Gloo",
                    (nodes, "none", mtu, size, "gauss"), method, "gloo", 1.1))
    return found


def strategies(rows, mtu):
    """Returns the figures that compare gradlane's own strategies: direct, ring and aggregator."""
    tiny, large = (4, "1gbit", mtu, plan.TINY, "gauss"), (4, "1gbit", mtu, 16 * MIB, "gauss")
    return [
        not_slower(rows, f"4 nodes, 1 Gb/s, MTU {mtu}, 4 KiB, direct raw: against the ring", tiny, "direct raw",
                   "gradlane raw", 0.6),
        saving(rows, f"4 nodes, 1 Gb/s, MTU {mtu}, 16 MiB Gaussian 0.01, fixed:10: time against gradlane's aggregator",
               large, "gradlane fixed:10", plan.BASELINE, 90),
    ]


def figures(results):
    """Returns all figures. Each has what, wanted, measured (text; None if it is not in these results) and met."""
    rows = Faster(results["rows"])
    found = sockets(rows, results["mtu"]) + shaped(rows, results["mtu"])
    if results["mtu"] != plan.JUMBO:
        found += [each for each in shaped(rows, plan.JUMBO) if each["measured"]]
    found += strategies(rows, results["mtu"])
    if results["mtu"] != plan.JUMBO:
        found += [each for each in strategies(rows, plan.JUMBO) if each["measured"]]
    return found + unshaped(rows, results["mtu"])
