"""setups.py - what is exchanged, by how many ranks, by which methods (needs no PyTorch)"""

RANKS = (2, 4)
SIZES = {"4 KiB": 1 << 12, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "16 MiB": 1 << 24, "64 MiB": 1 << 26}
KEYS = {f"{ranks} ranks, {name}": (ranks, size) for ranks in RANKS for name, size in SIZES.items()}
GLOO, GLOO_BF16, OPEN_MPI = "gloo", "gloo bf16", "open mpi"
CODECS = ("raw", "bf16", "fixed:10", "fixed:adaptive", "signsgd", "topk:1%+fixed:10")
METHODS = (GLOO, GLOO_BF16, OPEN_MPI, *CODECS)
STANDARD_DEVIATION = 0.01  # of the gradients, which are normal

ROUNDS = 4  # the methods take turns
MOST = 25  # repetitions in a round


def in_a_row(size):
    """Returns how many exchanges of different tensors a repetition has, one after the other. Ranks leave the barrier
    before it at different times, so small exchanges need several."""
    return 10 if size <= 1 << 20 else 1


def repetitions(seconds, estimate):
    """Returns how many repetitions a method has in a round, if all rounds may take `seconds`, and one `estimate`."""
    return max(1, min(MOST, int(seconds / ROUNDS / estimate)))
