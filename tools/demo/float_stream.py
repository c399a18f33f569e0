#!/usr/bin/python3
"""Sends float32 values over TCP, or receives and checks them. It stands for any ordinary program.

    float_stream.py receive --port 5000
    float_stream.py send 10.77.0.2 --port 5000 --tos 0x28 --seconds 5

It knows nothing of gradlane. The only difference is one setsockopt(): IP_TOS, if --tos is given. Both sides make the
same values from --data and --seed, 8 MiB of them. The sender sends these again and again, so the receiver knows the
exact values. It reports how many values came, and the largest error of them.
"""

import argparse
import json
import resource
import socket
import sys
import time

import numpy as np

CYCLE = 1 << 21  # floats, 8 MiB
PIECE = 1 << 16  # floats that are checked at once: 256 KiB, which a cache holds
DATA = "laplace-1e-3"


def values(name, seed):
    """Returns the floats of one cycle, little-endian, for laplace-SCALE, gauss-SIGMA, uniform-MOST or zero."""
    kind, _, scale = name.partition("-")
    draw = np.random.default_rng(seed)
    try:
        size = float(scale) if kind != "zero" else 0.0
        made = {"laplace": lambda: draw.laplace(0, size, CYCLE), "gauss": lambda: draw.normal(0, size, CYCLE),
                "uniform": lambda: draw.uniform(-size, size, CYCLE), "zero": lambda: np.zeros(CYCLE)}[kind]()
    except (KeyError, ValueError):
        raise SystemExit(f"float_stream.py: --data {name}: must be like laplace-1e-3, gauss-0.01, uniform-1, or zero") from None
    return made.astype("<f4")


def number(text):
    """Parses a number such as 0.001 or 2^-10."""
    base, hat, power = text.partition("^")
    return float(base) ** float(power) if hat else float(text)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# ---- Receiver


class Checker:
    """Compares received floats with the sent ones, in order and in aligned pieces."""

    def __init__(self, sent):
        self.sent = sent
        self.count = 0
        self.non_zero = 0
        self.worst = 0.0
        self.difference = np.empty(PIECE, "<f4")

    def check(self, got):
        done = 0
        while done < got.size:
            at = self.count % CYCLE
            take = min(got.size - done, CYCLE - at, PIECE)
            difference = self.difference[:take]
            np.subtract(got[done:done + take], self.sent[at:at + take], out=difference)
            worst = max(-float(difference.min()), float(difference.max()))
            # NaN compares as false with everything, so it has a test of its own.
            self.worst = worst if worst > self.worst or worst != worst else self.worst
            self.non_zero += int(np.count_nonzero(got[done:done + take]))
            self.count += take
            done += take


def goodput(samples):
    """Returns two speeds in bytes per second: of all bytes, and of the half in the middle. `samples` has (time, bytes
    so far)."""
    (first, before), (last, total) = samples[0], samples[-1]
    whole = (total - before) / (last - first) if last > first else 0.0
    lower = next(sample for sample in samples if sample[1] >= total * 0.25)
    upper = next(sample for sample in samples if sample[1] >= total * 0.75)
    middle = (upper[1] - lower[1]) / (upper[0] - lower[0]) if upper[0] > lower[0] else whole
    return whole, middle


def receive_one(connection, args, sent):
    """Receives and checks one connection. Returns the result, and sends it to the sender as a line of JSON."""
    checker = Checker(sent)
    buffer = np.empty(PIECE, "<f4")
    memory = memoryview(buffer).cast("B")
    samples, filled, total = [], 0, 0
    cpu = cpu_seconds()
    while got := connection.recv_into(memory[filled:]):
        filled += got
        total += got
        samples.append((time.monotonic(), total))
        if filled == len(memory):
            checker.check(buffer)
            filled = 0
    checker.check(buffer[:filled // 4])
    whole, middle = goodput(samples) if samples else (0.0, 0.0)
    result = {"floats": checker.count, "bytes": total, "worst_error": checker.worst, "bound": args.bound,
              "non_zero": checker.non_zero / max(1, checker.count),
              "right": bool(checker.worst <= args.bound and total == checker.count * 4),
              "seconds": samples[-1][0] - samples[0][0] if samples else 0.0, "goodput": whole,
              "goodput_middle": middle, "cpu_seconds": cpu_seconds() - cpu}
    connection.sendall((json.dumps(result) + "\n").encode())
    return result


def receive(args):
    sent = values(args.data, args.seed)
    with socket.create_server((args.bind, args.port), backlog=8) as server:
        print(f"float_stream.py: listening on port {args.port}", file=sys.stderr, flush=True)
        while True:
            connection, peer = server.accept()
            with connection:
                result = receive_one(connection, args, sent)
            show({"from": peer[0], **result}, args)
            if args.once:
                return 0 if result["right"] else 1


# ---- Sender


def send(args):
    sent = values(args.data, args.seed)
    data = memoryview(sent).cast("B")
    most = args.floats * 4 if args.floats else None
    with socket.create_connection((args.host, args.port), timeout=args.patience) as connection:
        if args.tos:
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, args.tos)  # this is all that a program needs to do
        cpu, start, total = cpu_seconds(), time.monotonic(), 0
        while total < most if most else time.monotonic() - start < args.seconds:
            at = total % len(data)
            piece = data[at:at + min(args.piece, len(data) - at, most - total if most else args.piece)]
            connection.sendall(piece)
            total += len(piece)
        connection.shutdown(socket.SHUT_WR)
        cpu = cpu_seconds() - cpu
        with connection.makefile() as answer:
            line = answer.readline()
    if not line:
        print("float_stream.py: the receiver ended before it sent its result", file=sys.stderr)
        return 1
    result = json.loads(line)
    result["right"] = result["right"] and result["floats"] * 4 == total
    show({"tos": args.tos, "sent_floats": total // 4, "sender_cpu_seconds": cpu, **result}, args)
    return 0 if result["right"] else 1


def show(result, args):
    if args.json:
        print(json.dumps(result), flush=True)
        return
    print(f"{result['floats']} floats in {result['seconds']:.2f} s: {result['goodput'] * 8e-6:.1f} Mb/s, "
          f"{result['goodput_middle'] * 8e-6:.1f} Mb/s in the middle; worst error {result['worst_error']:.3g}, "
          f"{100 * result['non_zero']:.0f} % are not 0"
          f"{'' if result['right'] else ' - NOT RIGHT'}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--port", type=int, default=5000)
    common.add_argument("--data", default=DATA, help=f"laplace-SCALE, gauss-SIGMA, uniform-MOST, zero ({DATA})")
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--json", action="store_true", help="one line of JSON per stream")
    does = parser.add_subparsers(dest="does", required=True)
    receiver = does.add_parser("receive", parents=[common], help="receive streams, one after the other")
    receiver.add_argument("--bind", default="", metavar="ADDRESS")
    receiver.add_argument("--bound", type=number, default=2.0**-10,
                          help="largest error that is allowed (2^-10); 0: none")
    receiver.add_argument("--once", action="store_true", help="end after one stream; exit status 1 if it arrived wrong")
    sender = does.add_parser("send", parents=[common], help="send one stream; exit status 1 if it arrived wrong")
    sender.add_argument("host")
    sender.add_argument("--tos", type=lambda text: int(text, 0), default=0, help="ToS byte; 0x28: accelerators may compress")
    sender.add_argument("--seconds", type=float, default=5.0)
    sender.add_argument("--floats", type=int, help="number of floats, in place of --seconds")
    sender.add_argument("--piece", type=int, default=1 << 20, help="bytes for each call of sendall() (1 MiB)")
    sender.add_argument("--patience", type=float, default=60.0, help="time limit of a call in seconds")
    return parser.parse_args()


def main():
    args = parse()
    try:
        return receive(args) if args.does == "receive" else send(args)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"float_stream.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
