"""gpt.py - a small GPT that learns the next character, and the text it learns from (the study's trainers)"""

import math
import pydoc_data.topics

import numpy
import torch

from lab.study.plan import GPT_BATCH, GPT_CONTEXT as CONTEXT, GPT_STEPS, GPT_WIDTHS

BLOCKS, HEADS = 2, 4
FIRST, LAST = 32, 126  # printable ASCII; all other characters count as the end of a line
CHARACTERS = LAST - FIRST + 2
TEST_SHARE = 10  # the last 1 / TEST_SHARE of the text is for tests
TEST_WINDOWS = 32  # windows of each rank


class Block(torch.nn.Module):
    """Attention to earlier characters, and two dense layers. Each is added to its input (Radford et al., 2019)."""

    def __init__(self, width):
        super().__init__()
        self.before_attention, self.before_dense = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.query_key_value, self.project = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.dense = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                         torch.nn.Linear(4 * width, width))
        # This is no buffer, because DDP would broadcast it in each step.
        self.future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)

    def forward(self, values):
        count, length, width = values.shape
        parts = self.query_key_value(self.before_attention(values)).view(count, length, 3, HEADS, width // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = query @ key.transpose(-2, -1) / math.sqrt(width // HEADS)
        weights = weights.masked_fill(self.future[:length, :length], -math.inf)
        seen = (weights.softmax(-1) @ value).transpose(1, 2).reshape(count, length, width)
        values = values + self.project(seen)
        return values + self.dense(self.before_dense(values))


class Gpt(torch.nn.Module):
    """Maps characters (windows, CONTEXT) to scores of the next ones (windows, CONTEXT, CHARACTERS)."""

    def __init__(self, width=GPT_WIDTHS["gpt"]):
        super().__init__()
        self.characters, self.places = torch.nn.Embedding(CHARACTERS, width), torch.nn.Embedding(CONTEXT, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.last = torch.nn.LayerNorm(width)
        self.next = torch.nn.Linear(width, CHARACTERS)

    def forward(self, text):
        values = self.characters(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            values = block(values)
        return self.next(self.last(values))

    def initialize(self, seed):
        """Sets weights as GPT-2 does: normal with deviation 0.02, less if their output is added to a sum of blocks.
        Biases are 0, weights of norms 1."""
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    added = name.endswith(("project.weight", "dense.2.weight"))
                    spread = 0.02 / math.sqrt(2 * BLOCKS) if added else 0.02
                    parameter.copy_(torch.randn(parameter.shape, generator=random) * spread)
                else:
                    parameter.fill_(float(name.endswith("weight")))


def text():
    """Returns the help of Python itself, which each Debian with python3 has: 465,000 characters of English, as int64.
    """
    topics = pydoc_data.topics.topics
    whole = "\n".join(topics[name] for name in sorted(topics))
    codes = numpy.frombuffer(whole.encode("latin-1", "replace"), numpy.uint8)
    printable = (codes >= FIRST) & (codes <= LAST)
    return torch.from_numpy(numpy.where(printable, codes - FIRST + 1, 0).astype(numpy.int64))


class Share:
    """The windows of the text that this rank trains on and is tested with; the same for all methods."""

    def __init__(self, rank, world, steps=GPT_STEPS["gpt"]):
        whole = text()
        tests = len(whole) // TEST_SHARE
        self.train, self.test_text = whole[:-tests], whole[-tests:]
        self.rank, self.world, self.steps = rank, world, steps
        self.tests = world * TEST_WINDOWS * CONTEXT

    def _windows(self, source, starts):
        windows = torch.stack([source[start : start + CONTEXT + 1] for start in starts])
        return windows[:, :-1], windows[:, 1:]

    def epoch(self, seed, epoch):
        """Returns the rank's batches of characters and of the characters that follow, one for each step. Windows are
        drawn at random, so an epoch is not the complete text."""
        random = numpy.random.default_rng((seed, epoch))
        starts = random.integers(len(self.train) - CONTEXT, size=(self.steps, self.world, GPT_BATCH))
        return [self._windows(self.train, step[self.rank].tolist()) for step in starts]

    def test(self, model):
        """Returns how many of the rank's test characters the model gets right, and the sum of their losses in nats."""
        starts = torch.linspace(0, len(self.test_text) - CONTEXT - 1, self.world * TEST_WINDOWS).long()
        windows, following = self._windows(self.test_text, starts[self.rank :: self.world].tolist())
        with torch.no_grad():
            values = model(windows).float().flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(values, following.flatten(), reduction="sum")
        return int((values.argmax(1) == following.flatten()).sum()), float(loss)
