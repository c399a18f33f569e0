#!/usr/bin/python3
"""Trains a classifier of handwritten digits, as one of the trainers of `gradlane run`.

The network is like that of the INCEPTIONN paper (Li et al., MICRO 2018): 5 layers, 64-500-500-500-500-10 neurons. The
data are 1797 digits from UCI (docs/demo.md), images of 8x8 pixels; 80 % of them are for training. All trainers start
with the same weights. In each step, each trainer computes gradients of its own share of the batch. gradlane averages
them, so that all trainers make the same update. All weights must have the same bits on all ranks at the end.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import time
import warnings

# There are at least as many trainers as cores, so each uses one thread.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import gradlane

LAYERS = (64, 500, 500, 500, 500, 10)
PARAMETERS = sum(inputs * outputs + outputs for inputs, outputs in zip(LAYERS, LAYERS[1:]))


def read_digits():
    """Returns all images, float32 of (1797, 64) from 0 to 1, and their labels, int64 of (1797,)."""
    rows = np.loadtxt(pathlib.Path(__file__).with_name("digits.csv.gz"), dtype=np.int64, delimiter=",")
    return (rows[:, :64] / 16).astype(np.float32), rows[:, 64]


def load_digits(seed):
    """Returns images and labels for training, then those for the test: a random 80 % and the other 20 %."""
    images, labels = read_digits()
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order], labels[order]
    cut = len(labels) * 4 // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def layers_of(flat):
    """Returns weights and biases of each layer, as views of one array of all parameters."""
    layers, at = [], 0
    for inputs, outputs in zip(LAYERS, LAYERS[1:]):
        weights = flat[at : at + inputs * outputs].reshape(inputs, outputs)
        at += weights.size
        layers.append((weights, flat[at : at + outputs]))
        at += outputs
    return layers


def initialize(flat, seed):
    """Initializes the parameters (He et al., 2015): normal with variance 2 / inputs; biases are 0."""
    random = np.random.default_rng(seed)
    for weights, _ in layers_of(flat):
        weights[:] = random.standard_normal(weights.shape) * np.sqrt(2 / len(weights))


def forward(layers, images):
    """Returns the input of each layer, and then the output of the last one."""
    values = [images]
    for weights, biases in layers:
        out = values[-1] @ weights + biases
        values.append(out if len(values) == len(layers) else np.maximum(out, 0))
    return values


def backward(layers, gradients, images, labels):
    """Fills in the gradients of the mean cross-entropy of a batch, and returns that loss."""
    values = forward(layers, images)
    rows = np.arange(len(labels))
    exponents = values[-1] - values[-1].max(axis=1, keepdims=True)
    share = np.exp(exponents)
    share /= share.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(share[rows, labels], 1e-30)).mean()

    delta = share
    delta[rows, labels] -= 1
    delta /= len(labels)
    for layer in reversed(range(len(layers))):
        weights_gradient, biases_gradient = gradients[layer]
        np.matmul(values[layer].T, delta, out=weights_gradient)
        delta.sum(axis=0, out=biases_gradient)
        if layer > 0:
            delta = (delta @ layers[layer][0].T) * (values[layer] > 0)
    return float(loss)


class Replica:
    """The model on this trainer, and the state of its training."""

    def __init__(self, gl, args):
        self.gl, self.args = gl, args
        self.weights = gl.zeros(PARAMETERS, np.float32)
        self.gradients = gl.zeros(PARAMETERS, np.float32)
        self.codec, self.residual = args.codec, None
        bound = gradlane.AdaptiveBound.parse(args.codec)
        if bound is not None:  # AdaptiveBound keeps a residual of its own
            self.codec = gradlane.AdaptiveBound(bound.bits, error_feedback=args.feedback)
        elif args.feedback:
            self.residual = gl.zeros(PARAMETERS, np.float32)
        self.velocity = np.zeros(PARAMETERS, np.float32)
        self.change = np.empty(PARAMETERS, np.float32)
        self.layers = layers_of(self.weights)
        self.exchange_seconds = []
        if gl.rank == 0:
            initialize(self.weights, args.seed)
        gl.broadcast(self.weights, root=0, codec="raw")

    def step(self, images, labels, rate):
        loss = backward(self.layers, layers_of(self.gradients), images, labels)
        self.gl.barrier()  # waiting for slower trainers does not count as exchange
        start = time.perf_counter()
        self.gl.all_reduce(self.gradients, average=True, codec=self.codec, residual=self.residual)
        self.exchange_seconds.append(time.perf_counter() - start)

        self.velocity *= np.float32(self.args.momentum)
        self.velocity += self.gradients
        np.multiply(self.velocity, np.float32(rate), out=self.change)
        self.weights -= self.change
        return loss

    def test_accuracy(self, images, labels):
        """Returns the accuracy in percent. Each trainer tests its share."""
        mine = slice(self.gl.rank, None, self.gl.world)
        found = forward(self.layers, images[mine])[-1].argmax(axis=1)
        correct = self.gl.zeros(1, np.int64)
        correct[0] = np.count_nonzero(found == labels[mine])
        self.gl.all_reduce(correct)
        return 100 * int(correct[0]) / len(labels)


def print_report(state):
    """Prints a report as a line for people."""
    print(
        f"epoch {state['epoch']:3} of {state['epochs']}: loss {state['loss']:.4f}, "
        f"test accuracy {state['test_accuracy']:5.2f} %, sent {state['bytes'] / 1e6:6.1f} MB "
        f"(ratio {state['ratio']:4.1f}), exchange {state['exchange_ms']:.1f} ms per step",
        flush=True,
    )


def all_gathered(gl, values):
    """Returns the values of all ranks, one row for each rank."""
    rows = gl.zeros((gl.world, len(values)), values.dtype)
    rows[gl.rank] = values
    return gl.all_gather(rows)


def train(gl, args):
    """Trains, and returns the replica and a dictionary of results for the report."""
    images, labels, test_images, test_labels = load_digits(args.split_seed)
    replica = Replica(gl, args)
    global_batch = gl.world * args.batch
    steps_per_epoch = len(labels) // global_batch
    if steps_per_epoch == 0:
        sys.exit(f"digits.py: --batch {args.batch} on {gl.world} ranks is more than the {len(labels)} training images")
    # Gradient bytes that each rank sends in a step if a ring does not compress them.
    plain_bytes = 2 * (gl.world - 1) / gl.world * PARAMETERS * 4

    gl.barrier()
    sent_before = gl.figures().data_bytes
    start = time.perf_counter()
    testing, history = 0.0, []
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
        rate = args.rate * (1 + np.cos(np.pi * epoch / args.epochs)) / 2
        losses = []
        for step in range(steps_per_epoch):
            first = step * global_batch + gl.rank * args.batch
            mine = order[first : first + args.batch]
            losses.append(replica.step(images[mine], labels[mine], rate))
        if (epoch + 1) % args.report == 0 or epoch + 1 == args.epochs:
            trained = time.perf_counter()
            accuracy = replica.test_accuracy(test_images, test_labels)
            sent = gl.figures().data_bytes - sent_before
            state = {
                "epoch": epoch + 1,
                "epochs": args.epochs,
                "loss": float(np.mean(losses)),
                "test_accuracy": accuracy,
                "bytes": sent,
                "ratio": plain_bytes * (epoch + 1) * steps_per_epoch / sent if sent else 0,
                "exchange_ms": 1e3 * float(np.median(replica.exchange_seconds)),
                "seconds": trained - start - testing,
            }
            history.append(state)
            if gl.rank == 0:
                print(json.dumps(state), flush=True) if args.lines else print_report(state)
            testing += time.perf_counter() - trained
    seconds = time.perf_counter() - start - testing
    gl.barrier()
    figures = gl.figures()
    sent = all_gathered(gl, np.array([figures.data_bytes - sent_before], np.int64))
    dropped = all_gathered(gl, np.array([figures.lossy_share]))
    return replica, {
        "test_accuracy": accuracy,
        "train_loss": float(np.mean(losses)),
        "steps": args.epochs * steps_per_epoch,
        "gradient_bytes": float(sent.mean()),
        "plain_bytes": plain_bytes * args.epochs * steps_per_epoch,
        "exchange_ms_median": 1e3 * float(np.median(replica.exchange_seconds)),
        "exchange_ms_mean": 1e3 * float(np.mean(replica.exchange_seconds)),
        "seconds": seconds,
        "norm_dropped": float(dropped.mean()),
        "history": history,
    }


def parse_arguments():
    def number(kind, least):
        def parse(text):
            value = kind(text)
            if value < least:
                raise argparse.ArgumentTypeError(f"{text} is below {least}")
            return value

        return parse

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--codec", default="fixed:10", help="codec of the gradients; also fixed:adaptive:BITS (%(default)s)")
    parser.add_argument("--feedback", action="store_true", help="add the rounding error of each step to the next one")
    parser.add_argument("--epochs", type=number(int, 1), default=50, help="(%(default)s)")
    parser.add_argument("--batch", type=number(int, 1), default=32, help="images per trainer and step (%(default)s)")
    parser.add_argument("--rate", type=number(float, 0), default=0.05, help="learning rate at the start (%(default)s)")
    parser.add_argument("--momentum", type=number(float, 0), default=0.9, help="(%(default)s)")
    parser.add_argument("--seed", type=number(int, 0), default=1, help="seed of weights and batches (%(default)s)")
    parser.add_argument("--split-seed", type=number(int, 0), default=3, help="seed that chooses the test images (%(default)s)")
    parser.add_argument("--report", type=number(int, 1), default=5, help="epochs between printed lines (%(default)s)")
    parser.add_argument("--lines", action="store_true", help="rank 0 prints reports as lines of JSON")
    parser.add_argument("--json", metavar="FILE", help="file that rank 0 writes the results to")
    return parser.parse_args()


def main():
    args = parse_arguments()
    gl = gradlane.open()
    if gl.rank > 0 or args.lines:  # one rank warns for all; with --lines, norm_dropped of the results says it
        warnings.simplefilter("ignore", gradlane.LossWarning)
    replica, result = train(gl, args)

    own = hashlib.sha256(replica.weights.tobytes()).digest()
    hashes = [bytes(row).hex() for row in all_gathered(gl, np.frombuffer(own, np.uint8))]
    identical = len(set(hashes)) == 1
    if gl.rank == 0:
        same = "the same on all ranks" if identical else "DIFFERENT: " + " ".join(text[:16] for text in hashes)
        if not args.lines:
            print(f"trained for {result['seconds']:.1f} s; SHA-256 of the weights {hashes[0][:16]}..., {same}", flush=True)
        if args.json:
            about = {"codec": args.codec, "feedback": args.feedback, "world": gl.world, "parameters": PARAMETERS}
            about |= {"epochs": args.epochs, "batch": args.batch, "seed": args.seed}
            ratio = result["plain_bytes"] / result["gradient_bytes"] if result["gradient_bytes"] else None
            about |= result | {"plain_ratio": ratio, "identical": identical, "hashes": hashes}
            pathlib.Path(args.json).write_text(json.dumps(about, indent=1) + "\n")
    gl.close()
    return 0 if identical else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except gradlane.Error as error:
        sys.exit(f"digits.py: rank {os.environ.get('RANK', '?')}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
