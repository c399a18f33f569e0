"""Fits a linear regression by data-parallel gradient descent in NumPy. gradlane averages the gradients.

One machine:    gradlane run -n 4 -- python3 numpy_regression.py
Four machines:  gradlaned --nodes HOST0,HOST1,HOST2,HOST3
                python3 numpy_regression.py
                (both on each machine, in two terminals; HOST0 to HOST3 are their names or addresses)
"""

import hashlib

import numpy as np

import gradlane

INPUTS, SAMPLES = 20000, 200


def main():
    with gradlane.open() as ring:
        truth = np.random.default_rng(0).standard_normal(INPUTS).astype(np.float32)
        random = np.random.default_rng(1 + ring.rank)  # each rank has its own data
        data = random.standard_normal((SAMPLES, INPUTS)).astype(np.float32) / np.float32(INPUTS) ** 0.5
        targets = data @ truth
        gradient = ring.zeros(INPUTS)  # float32, in memory that is shared with the daemon: sums are not copied
        weights = np.zeros(INPUTS, np.float32)
        codec = gradlane.AdaptiveBound(error_feedback=True)  # fixed:adaptive; codec="raw" is exact
        for step in range(61):
            errors = data @ weights - targets
            np.matmul(data.T, errors, out=gradient)
            ring.all_reduce(gradient, average=True, codec=codec)
            weights -= gradient
            if ring.rank == 0 and step % 20 == 0:
                print(f"step {step}: loss {np.square(errors).mean():.6f}", flush=True)
        print(f"rank {ring.rank}: weights {hashlib.sha256(weights.tobytes()).hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
