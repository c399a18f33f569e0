# data.py - contents of tensors: normal values, or gradients of the digits classifier while it is trained

import os
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIGMA = 0.01
WORKERS = 4
BATCH = 32  # images per worker and step; BATCH, RATE and MOMENTUM are those of the demo
RATE, MOMENTUM, SEED, SPLIT_SEED = 0.05, 0.9, 1, 3
# training step whose gradients are used: 8 epochs of 11; they compress a little less than those of all 50 epochs of the
# demo
STEP = 88


def path(folder, data, rank):
    return pathlib.Path(folder) / f"{data}-{rank}.f32"


def source(folder, data, rank, numel):
    """Returns the first `numel` values of a rank's data, memory-mapped. Changes stay private to the caller."""
    return np.memmap(path(folder, data, rank), np.float32, "c", shape=(numel,))


def write_gauss(folder, numel, ranks):
    for rank in range(ranks):
        values = np.random.default_rng((SEED, rank)).standard_normal(numel, np.float32)
        values *= np.float32(SIGMA)
        values.tofile(path(folder, "gauss", rank))


def digits_gradients(steps):
    """Returns the gradients of each of four workers after `steps` steps of training, before they are averaged. The
    training is SGD with momentum, without a codec."""
    from tools.demo import digits

    images, labels, _, _ = digits.load_digits(SPLIT_SEED)
    weights = np.zeros(digits.PARAMETERS, np.float32)
    digits.initialize(weights, SEED)
    gradients = np.zeros((WORKERS, digits.PARAMETERS), np.float32)
    velocity = np.zeros(digits.PARAMETERS, np.float32)
    per_epoch = len(labels) // (WORKERS * BATCH)
    for step in range(steps + 1):
        epoch, within = divmod(step, per_epoch)
        order = np.random.default_rng((SEED, epoch)).permutation(len(labels))
        for worker in range(WORKERS):
            first = within * WORKERS * BATCH + worker * BATCH
            mine = order[first : first + BATCH]
            layers = digits.layers_of(gradients[worker])
            digits.backward(digits.layers_of(weights), layers, images[mine], labels[mine])
        velocity *= np.float32(MOMENTUM)
        velocity += gradients.mean(axis=0)
        weights -= np.float32(RATE) * velocity
    return gradients


def write_digits(folder, numel, ranks, steps):
    """Writes gradients, repeated until they fill a tensor. Returns facts about them for the report."""
    gradients = digits_gradients(steps)
    for rank in range(ranks):
        np.resize(gradients[rank], numel).tofile(path(folder, "digits", rank))
    return {"step": steps, "workers": WORKERS, "parameters": gradients.shape[1],
            "rms": float(np.sqrt(np.mean(np.square(gradients, dtype=np.float64)))),
            "below_2^-10": float(np.mean(np.abs(gradients) < 2.0**-10))}


def sizes_of(data, jobs):
    return [point.size for job in jobs for point in job.points if point.data == data]


def room(jobs):
    """Returns the number of bytes that write() needs in its folder, plus those of one result of Open MPI."""
    largest = [max(sizes_of(data, jobs), default=0) for data in ("gauss", "digits")]
    return max(job.nodes for job in jobs) * sum(largest) + max(largest)


def write(folder, jobs, quick):
    """Writes all data that the jobs need, for as many ranks and values as they need. Returns facts about it for the
    report."""
    os.makedirs(folder, exist_ok=True)
    ranks = max(job.nodes for job in jobs)
    about = {}
    for data in ("gauss", "digits"):
        sizes = sizes_of(data, jobs)
        if not sizes:
            continue
        if data == "gauss":
            write_gauss(folder, max(sizes) // 4, ranks)
            about[data] = {"sigma": SIGMA}
        else:
            about[data] = write_digits(folder, max(sizes) // 4, ranks, 3 if quick else STEP)
    return about
