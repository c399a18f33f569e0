# plan.py - the jobs of lab/compare.sh, the points of each, and estimates of their time

import dataclasses

KIB, MIB = 1024, 1024 * 1024

# lab/scalability.sh uses these strategies, and this rate and RTT for simulated ports.
AGGREGATOR, RING, DIRECT = "aggregator:0", "ring", "direct"
GBPS, RTT = 10, "50us"

NODES = (4, 2)
# Rates of links. full: the same links without a shaper; none: shared memory and loopback.
RATES = ("1gbit", "5gbit", "full", "none")
SIZES = (64 * KIB, MIB, 16 * MIB, 64 * MIB)
TINY = 4 * KIB  # measures latency, at all rates but 5gbit
REAL = 16 * MIB  # the size for which gradients of a training are used, too
MTU, JUMBO = 1500, 9000  # MTUs of links with a rate; the first one is the default
QUIET = 0.3  # cores that may be busy with other work; above that, times are not reliable
FOOTPRINT = 64 * MIB  # bytes; limit for all tensors of a sample, unless one tensor is larger
MOST_OPERATIONS = 256

# Methods, in the order of tables. Methods of "gradlane" have tensors in shared memory. "backend" is the PyTorch backend
# with ordinary tensors. "direct" and "aggregator:0" are strategies of gradlane, with tensors in shared memory, too.
# "packets" uses gradlane's ports of AF_PACKET; its other methods use sockets on links. "gloo 2" is Gloo of another
# PyTorch.
METHODS = (
    "gradlane raw", "gradlane bf16", "gradlane fixed:10", "gradlane fixed:adaptive", "gradlane inceptionn:10",
    "backend raw", "backend fixed:10", "direct raw", "packets raw", "packets fixed:10", "aggregator:0 raw",
    "gloo", "gloo 2", "gloo fp16", "aggregator", "mpi tcp", "mpi ring", "mpi shm",
)
LABELS = {
    "gradlane raw": "gradlane raw", "gradlane bf16": "gradlane bf16", "gradlane fixed:10": "gradlane fixed:10",
    "gradlane fixed:adaptive": "gradlane fixed:adaptive", "gradlane inceptionn:10": "gradlane inceptionn:10",
    "backend raw": "PyTorch backend raw", "backend fixed:10": "PyTorch backend fixed:10",
    "direct raw": "gradlane direct raw", "aggregator:0 raw": "gradlane aggregator raw",
    "packets raw": "gradlane raw, AF_PACKET", "packets fixed:10": "gradlane fixed:10, AF_PACKET", "gloo": "Gloo",
    "gloo 2": "Gloo of the other PyTorch", "gloo fp16": "Gloo, fp16 hook", "aggregator": "worker-aggregator",
    "mpi tcp": "Open MPI, TCP", "mpi ring": "Open MPI, TCP, its ring", "mpi shm": "Open MPI, shared memory",
}
STRATEGIES = ("direct raw", "aggregator:0 raw")  # measured only on links of STRATEGIES_RATE, and compared with the ring
STRATEGIES_RATE = "1gbit"
BASELINE = "aggregator:0 raw"  # gradlane's, but only a baseline for comparison
OURS = tuple(name for name in METHODS if name.split()[0] in ("gradlane", "backend", "direct", "packets"))
GLOOS = ("gloo", "gloo 2")


@dataclasses.dataclass
class Point:
    """The size of a tensor, its data, and the methods that all-reduce it."""

    size: int
    data: str
    methods: list


@dataclasses.dataclass
class Job:
    """One run of `gradlane run`."""

    nodes: int
    rate: str
    mtu: int
    points: list
    link: str  # option --link of `gradlane run`: vhost, udp or veth

    def name(self):
        where = "unshaped" if self.rate == "none" else f"{self.rate}, MTU {self.mtu}, {self.link}"
        return f"{self.nodes} nodes, {where}"


@dataclasses.dataclass
class Effort:
    """The number of samples of a point: as many as `seconds` allow, but between `least` and `most`."""

    least: int
    most: int
    seconds: float
    sample: float  # least seconds of a sample; a sample of short operations has several of them


# A sample must be long compared with the 2 ms of data that a shaper passes at once after a pause. Gradients of a
# training compress so well that a sample needs several operations to be that long. The samples of all other methods
# then take longer, so such points get REAL_MORE times as many seconds.
REAL_MORE = 4
FULL = Effort(least=7, most=21, seconds=14.0, sample=0.05)
QUICK = Effort(least=2, most=2, seconds=1.0, sample=0.004)


def size_text(size):
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB"


def parse_size(text):
    units = {"k": KIB, "kib": KIB, "m": MIB, "mib": MIB}
    digits = text.rstrip("KMkmiIbB ")
    unit = text[len(digits):].strip().lower()
    if not digits.isdigit() or unit not in units:
        raise ValueError(f"size {text!r}: must be such as 64K, 16M")
    return int(digits) * units[unit]


def parse_filter(texts):
    """Parses --only nodes=4 rate=1gbit,none size=16M "method=gloo,gradlane fixed:10" data=gauss. Returns the values
    that are kept, by key. Raises ValueError."""
    kept = {}
    for text in texts:
        key, mark, values = text.partition("=")
        if not mark or key not in ("nodes", "rate", "size", "method", "data", "mtu"):
            raise ValueError(f"--only {text!r}: must be nodes=, rate=, size=, data=, mtu= or method=, followed by "
                             "values with commas")
        parsers = {"nodes": int, "mtu": int, "size": parse_size}
        parse = parsers.get(key, str.strip)
        kept.setdefault(key, set()).update(parse(value) for value in values.split(","))
    unknown = kept.get("method", set()) - set(METHODS)
    if unknown:
        raise ValueError(f"--only method={','.join(sorted(unknown))}: unknown; there are: {', '.join(METHODS)}")
    if kept.get("rate", set()) - set(RATES):
        raise ValueError(f"--only rate=: must be some of {', '.join(RATES)}")
    return kept


def wants(kept, key, value):
    return key not in kept or value in kept[key]


def methods_for(rate, link, kept):
    left_out = {"mpi ring" if rate == "none" else "mpi shm"}
    if rate != STRATEGIES_RATE:
        left_out.update(STRATEGIES)
    packets = [name for name in METHODS if name.startswith("packets")]
    chosen = packets if link == "veth" else [name for name in METHODS if name not in packets]
    return [name for name in chosen if wants(kept, "method", name) and name not in left_out]


def methods_at(methods, size, data):
    """Returns the methods of a point. The slow aggregator and direct run only with Gaussian data of at most REAL bytes.
    """
    return methods if data == "gauss" and size <= REAL else [name for name in methods if name not in STRATEGIES]


def strategies_of(job):
    """Returns the strategies that the job's daemons must allow. The first is for methods that name none."""
    named = [name.split()[0] for name in STRATEGIES if any(name in point.methods for point in job.points)]
    return ["ring", *named]


def points_for(rate, link, sizes, real, kept):
    wanted = [(size, "gauss") for size in sizes] + [(size, "digits") for size in real]
    methods = methods_for(rate, link, kept)
    points = [Point(size, data, methods_at(methods, size, data)) for size, data in wanted
              if wants(kept, "size", size) and wants(kept, "data", data)]
    return [point for point in points if point.methods]


def links_for(rate):
    return ("vhost",) if rate == "none" else ("udp", "veth")


def jobs(quick, mtu, kept):
    """Returns all jobs, those that matter most first."""
    if quick:
        rows = [(2, rate, mtu, (64 * KIB, MIB), (MIB,)) for rate in ("1gbit", "none")]
    else:
        rows = []
        for rate in ("1gbit", "none", "5gbit", "full"):
            sizes = SIZES if rate == "5gbit" else (TINY, *SIZES)
            rows += [(nodes, rate, mtu, sizes, (REAL,)) for nodes in NODES]
        if mtu != JUMBO:
            rows.insert(1, (4, "1gbit", JUMBO, (REAL,), (REAL,)))
    found = []
    for nodes, rate, job_mtu, sizes, real, link in [(*row, link) for row in rows for link in links_for(row[1])]:
        points = points_for(rate, link, sizes, real, kept)
        job = Job(nodes, rate, job_mtu if rate != "none" else JUMBO, points, link)
        if job.points and all(wants(kept, *pair) for pair in (("nodes", nodes), ("rate", rate), ("mtu", job.mtu))):
            found.append(job)
    return found


def guess_seconds(job, point, effort):
    """Estimates the seconds of a point, for the time that remains. Includes checks and the first, untimed samples."""
    slow = {"1gbit": 0.08e9, "5gbit": 0.2e9, "full": 0.3e9, "none": 1.0e9}[job.rate]  # bytes/s of tensor, in the mean over methods
    size = max(point.size, MIB)
    around = 2 * (job.nodes - 1) / job.nodes * size / slow * len(point.methods)
    seconds = effort.seconds * (1 if point.data == "gauss" else REAL_MORE)
    rounds = min(effort.most, max(effort.least, seconds / max(around, 1e-3)))
    return around * (rounds + 2) + 0.3 * len(point.methods) * point.size / (64 * MIB) * job.nodes


def guess_start(job):
    """Estimates the seconds in which daemons, PyTorch and Open MPI start."""
    return 4.0 + 2.5 * job.nodes
