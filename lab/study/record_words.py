#!/usr/bin/python3
"""record_words.py - gradients of a small GPT that learns the words of docs/, as files for `gradlane plan --widths`

Ranks take turns in this process, as in record.py; the optimizer is AdamW. Gradients of embeddings, attention and
normalisation differ greatly in size, and a step touches only a few rows of embeddings. The study's networks have no
such gradients.
"""

import argparse
import collections
import math
import pathlib
import re

import numpy
import torch

from lab.study import record

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 1
WORDS = 4096  # size of the vocabulary; 0 stands for all other words
TOKENS = 64
HEAD = 32  # floats of an attention head
RATE, WARM_UP = 1e-3, 10


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before_attention = torch.nn.LayerNorm(width)
        self.attention = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)
        self.before_mlp = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width))

    def forward(self, x):
        batch, tokens, width = x.shape
        query, key, value = (part.view(batch, tokens, -1, HEAD).transpose(1, 2)
                             for part in self.attention(self.before_attention(x)).split(width, 2))
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = (query @ key.transpose(2, 3) / math.sqrt(HEAD)).masked_fill(later, -math.inf).softmax(-1)
        x = x + self.output((scores @ value).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.before_mlp(x))


class Gpt(torch.nn.Module):
    """A GPT like GPT-2: normalisation comes before each part, and the head is the embedding."""

    def __init__(self, width, depth):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, width)
        self.places = torch.nn.Embedding(TOKENS, width)
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(depth)))
        self.last = torch.nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, 0, 0.02)

    def forward(self, words):
        x = self.words(words) + self.places.weight
        return self.last(self.blocks(x)) @ self.words.weight.t()


def read_words():
    text = " ".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    known = {word: 1 + i for i, (word, _) in enumerate(collections.Counter(words).most_common(WORDS - 1))}
    return torch.tensor([known.get(word, 0) for word in words])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder for words.json (the layers) and words-STEP.npy")
    parser.add_argument("--width", type=int, default=192, help=f"width, a multiple of {HEAD} (%(default)s)")
    parser.add_argument("--depth", type=int, default=4, help="number of blocks (%(default)s)")
    parser.add_argument("--steps", type=int, default=60, help="number of steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="texts in the batch of each rank (%(default)s)")
    parser.add_argument("--ranks", type=int, default=record.RANKS, help="number of ranks (%(default)s)")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    model, words, random = Gpt(args.width, args.depth), read_words(), torch.Generator().manual_seed(SEED)
    record.write_layers(args.folder / "words.json", "words", model, args.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
    wanted = record.steps_of(args.steps)
    for step in range(1, args.steps + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1, step / WARM_UP)
        rows = []
        for _ in range(args.ranks):
            first = torch.randint(len(words) - TOKENS - 1, (args.batch, 1), generator=random)
            both = words[first + torch.arange(TOKENS + 1)]
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(model(both[:, :-1]).flatten(0, 1), both[:, 1:].flatten())
            loss.backward()
            rows.append(torch.cat([parameter.grad.ravel() for parameter in model.parameters()]))
        gradients = torch.stack(rows)
        if step in wanted:
            numpy.save(args.folder / f"words-{wanted[step]}.npy", gradients.numpy())
            print(f"step {step}, loss {float(loss):.2f}: {tuple(gradients.shape)}", flush=True)
        record.put(model, gradients.mean(0))
        optimizer.step()


if __name__ == "__main__":
    main()
