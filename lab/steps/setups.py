"""setups.py - what is trained, on which links, by which methods (needs no PyTorch)"""

import dataclasses
import itertools

SECONDS = 10  # of steps of each method
RUNS, CLOSE = 3, 0.1  # number of runs of cells that have a method whose step differs less from Gloo's

NODES = (2, 4)
RATES = ("200mbit", "1gbit", "5gbit")
# Two batches of each model, per node.
BATCHES = {"mlp": (32, 256), "conv": (8, 32), "gpt": (1, 4)}
MODELS = {
    "mlp": "64-1600-1600-1600-10, handwritten digits, 5.2 M parameters",
    "conv": "four convolutions and a dense layer, images of 32 x 32, 0.7 M parameters",
    "gpt": "GPT of two blocks, 64 characters, 1.6 M parameters",
}


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to average gradients. `hook`: "" and "bf16" over Gloo; "powersgd" of rank 4, whose factors gradlane adds as `raw`;
    "gradlane" with that codec."""

    name: str  # also its row in `gradlane plan`, if `predicted`
    hook: str = ""
    codec: str = ""
    predicted: bool = True


GLOO, GLOO_BF16 = "gloo", "gloo bf16"
METHODS = (
    Method(GLOO),
    Method(GLOO_BF16, "bf16"),
    Method("powersgd on raw", "powersgd", predicted=False),
    Method("raw", "gradlane", "raw"),
    Method("bf16", "gradlane", "bf16"),
    Method("fixed:adaptive", "gradlane", "fixed:adaptive"),
    Method("signsgd", "gradlane", "signsgd"),
    Method("topk:1%+fixed:10", "gradlane", "topk:1%+fixed:10"),
)
BY_NAME = {method.name: method for method in METHODS}
# Everything but Gloo's fp32 is held against it.
COMPARED = tuple(method.name for method in METHODS if method.name != GLOO)
CODECS = tuple(name for name in COMPARED if name not in ("raw",))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A model on a ring: what all methods have in common."""

    nodes: int
    rate: str
    model: str
    batch: int

    @property
    def key(self):
        return f"{self.nodes} nodes, {self.rate}, {self.model}, batch {self.batch}"

    @property
    def ring(self):
        return f"{self.nodes} nodes, {self.rate}"

    @property
    def gbps(self):
        return float(self.rate.removesuffix("mbit")) / 1000 if self.rate.endswith("mbit") else float(self.rate[:-4])

    @property
    def held_out(self):
        """Whether the cell's measurements may not be used to choose constants of the planner: every other cell."""
        order = (NODES.index(self.nodes), RATES.index(self.rate), list(BATCHES).index(self.model),
                 BATCHES[self.model].index(self.batch))
        return sum(order) % 2 == 1


CELLS = tuple(Cell(nodes, rate, model, batch) for nodes, rate in itertools.product(NODES, RATES)
              for model, batches in BATCHES.items() for batch in batches)
BY_KEY = {cell.key: cell for cell in CELLS}
RINGS = tuple(dict.fromkeys(cell.ring for cell in CELLS))
