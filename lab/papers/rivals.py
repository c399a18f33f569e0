"""rivals.py - HiPress' five codecs in PyTorch, for one core: what gradlane's kernels are timed against

Each codec has two forms: `eager`, and `compiled` by torch.compile. The faster one counts. Codes are packed to one or two
bits per element; sparse codecs send int32 places and fp32 values. Where a choice makes PyTorch's work less, it is made:
onebit has one pair of means for the whole tensor, and the order of bits is what packs fastest.

Each of these was the fastest of several that we timed with 16 MiB and AVX-512:

- In compiled code, the bits of a word are of elements that lie W apart, so that packing needs no operation across lanes,
  and one loop updates states and packs. Sums over eight neighbours are 100 times slower, and so are kernels that write
  bool or uint8: they are not vectorised.
- In eager code, eight bools are one int64, and a multiplication collects their bits. Sums and shifts are 5 to 30 times
  slower.
- Eager decoding looks up eight values per byte. Shifts and masks are 10 times slower, a table for 16 bits is 5 times
  slower where eight values per byte are enough.
- Random numbers are a hash of the place, compiled. torch.rand, uniform_ and NumPy's SFC64 take 4 times as long.
- Thresholds come from a sample of the maxima of 64 neighbours. topk of the whole tensor takes 7 times as long.
- Places come from the maxima of 64 neighbours (compiled), or from masks that are read as int64 (eager). nonzero() of the
  whole mask takes 1.4 times as long.
"""

import functools

import torch

THRESHOLD = 2.0 ** -7  # of tbq:7
SEED = -0x61c88465  # what an encode of terngrad adds
CLIP = 2.5  # standard deviations, of terngrad
RATE, SAMPLES = 0.001, 8192  # of sparse codecs: share of elements; groups that give a threshold
MOMENTUM = 0.9  # of dgc
MOST, LEAST = 1.3, 0.8  # bounds of DGC's code for what a sampled threshold selects, times RATE
GROUP = 64  # elements of which one maximum is kept

BITS = ((torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1).bool()
COLLECT = 0x0102040810204080  # multiplied with eight bytes of 0 or 1, has their bits in its highest byte
COLLECT_PAIRS = (1 << 24) + (1 << 18) + (1 << 12) + (1 << 6)  # the same for four bytes of 0 to 3

W = 64  # elements that are neighbours of one bit: bit j of word (b, i) is of element (b * count + j) * W + i

OPTIONS = {"max_fusion_size": 512, "cpp.max_horizontal_fusion_size": 512}  # one loop, also of 32 stores
compiled = functools.partial(torch.compile, fullgraph=True, dynamic=False, options=OPTIONS)


def parts(x, count):
    """Returns `count` views: the j-th has what bits j of words are of, or the j-th elements of groups."""
    blocks = x.view(-1, count, W)
    return [blocks[:, j] for j in range(count)]


def packed_pairs(codes):
    """Packs bytes of 0 to 3, four to a byte."""
    return ((codes.view(torch.int32) * COLLECT_PAIRS) >> 24).to(torch.uint8)


# ---- Kernels for torch.compile


@compiled
def onebit(gradients, kept, low, high):
    """`kept` has the parts of the sums before their means, `low` and `high`, were subtracted."""
    words = negatives = positive = whole = 0
    for j, (g, k) in enumerate(zip(parts(gradients, 32), kept)):
        x = g + (k - torch.where(k >= 0, high, low))
        k.copy_(x)
        negative = (x < 0).to(torch.int32)
        words, negatives = words | (negative << j), negatives + negative
        positive, whole = positive + x.clamp(min=0), whole + x
    count = negatives.sum(dtype=torch.int32)
    up = positive.sum()
    # The last three are returned so that they are stored: then the sums read them and not `kept`.
    return words, (whole.sum() - up) / count, up / (gradients.numel() - count), negatives, positive, whole


@compiled
def unpack_signs(words, low, high, out):
    left = torch.arange(31, -1, -1, dtype=torch.int32).view(1, 32, 1)
    out.copy_(torch.where((words.unsqueeze(1) << left) < 0, low, high))


@compiled
def tbq(gradients, kept):
    words = 0
    for j, (g, k) in enumerate(zip(parts(gradients, 16), kept)):
        x = g + k
        up, down = x >= THRESHOLD, x <= -THRESHOLD
        k.copy_(torch.where(up, x - THRESHOLD, torch.where(down, x + THRESHOLD, x)))
        words = words | (((up.to(torch.int32) - down.to(torch.int32)) & 3) << (2 * j))
    return words


@compiled
def unpack_signed(words, scale, out):
    """Writes 0, scale or -scale for codes 0, 1 and 3."""
    left = torch.arange(30, -1, -2, dtype=torch.int32).view(1, 16, 1)
    out.copy_(((words.unsqueeze(1) << left) >> 30).float() * scale)


@compiled
def terngrad(gradients, seed):
    squares = (gradients * gradients).sum()  # the mean is taken to be 0, as in gradlane
    scale = torch.minimum(gradients.abs().amax(), CLIP * torch.sqrt(squares / gradients.numel()))
    places, words = torch.arange(gradients.numel(), dtype=torch.int32), 0
    for j, (x, h) in enumerate(zip(parts(gradients, 16), parts(places, 16))):
        h = h + seed  # MurmurHash3's last stage
        h = (h ^ ((h >> 16) & 0xffff)) * -2048144789
        h = (h ^ ((h >> 13) & 0x7ffff)) * -1028477387
        sent = ((h & 0x7fffffff).float() * (scale * 2.0 ** -31) < x.abs()).to(torch.int32)
        words = words | (((((x < 0).to(torch.int32) << 1) | 1) & -sent) << (2 * j))
    return words, scale


@compiled
def dgc_update(gradients, velocity, sums):
    u = MOMENTUM * velocity + gradients
    velocity.copy_(u)
    sums.copy_(sums + u)


@compiled
def maxima(sums):
    return sums.view(-1, GROUP).abs().amax(1)


# ---- Codecs


class Rival:
    """A codec for tensors of `floats` elements. encode() changes the states that it keeps; decode() returns `out`."""

    STATES = 1

    def __init__(self, floats):
        self.floats = floats
        # Each array starts elsewhere in its page, as in gradlane's benchmark.
        self.out, *self.states = [torch.zeros(floats + 176 * k)[176 * k:] for k in range(1, 2 + self.STATES)]

    def forget(self):
        """Clears the states. Sparse codecs would select more and more of the same gradients. The others need not."""


class OneBit(Rival):
    """One bit per element; it decodes to the mean of those that are 0 or more, or of the others (Seide, 2014)."""

    def __init__(self, floats):
        super().__init__(floats)
        self.kept, self.low, self.high = parts(self.states[0], 32), torch.zeros(()), torch.zeros(())

    def encode(self, gradients):
        words, self.low, self.high, *_ = onebit(gradients, self.kept, self.low, self.high)
        return words, self.low, self.high

    def decode(self, encoded):
        unpack_signs(*encoded, self.out.view(-1, 32, W))
        return self.out


class OneBitEager(Rival):
    def encode(self, gradients):
        x = self.states[0].add_(gradients)
        negative = torch.signbit(x)
        positive = torch.relu(x).sum()
        count = self.floats - torch.count_nonzero(negative)
        high, low = positive / count, (x.sum() - positive) / (self.floats - count)
        x.sub_(torch.where(negative, low, high))
        return ((negative.view(torch.int64) * COLLECT) >> 56).to(torch.uint8), low, high

    def decode(self, encoded):
        codes, low, high = encoded
        return torch.index_select(torch.where(BITS, low, high), 0, codes.int(), out=self.out.view(-1, 8)).view(-1)


class Tbq(Rival):
    """Two bits per element: a threshold, its negative or 0 (Strom, 2015)."""

    def __init__(self, floats):
        super().__init__(floats)
        self.kept, self.scale = parts(self.states[0], 16), torch.tensor(THRESHOLD)

    def encode(self, gradients):
        return tbq(gradients, self.kept), self.scale

    def decode(self, encoded):
        unpack_signed(*encoded, self.out.view(-1, 16, W))
        return self.out


# The signs of four codes, by the byte that they are packed in: 0, 1, and -1 for both 2 and 3, which are the bits of -1.
SIGNS = torch.tensor([0.0, 1, -1, -1])[(torch.arange(256).unsqueeze(1) >> (2 * torch.arange(4))) & 3]


class TbqEager(Rival):
    def __init__(self, floats):
        super().__init__(floats)
        values = THRESHOLD * SIGNS
        self.table = torch.cat([values.repeat(256, 1), values.repeat_interleave(256, 0)], 1)  # of eight codes, by 16 bits

    def encode(self, gradients):
        x = self.states[0].add_(gradients)
        signs = (x >= THRESHOLD).to(torch.int8) - (x <= -THRESHOLD).to(torch.int8)
        x.add_(signs, alpha=-THRESHOLD)
        return (packed_pairs(signs & 3),)

    def decode(self, encoded):
        codes = encoded[0].view(torch.int16).int() & 0xffff
        return torch.index_select(self.table, 0, codes, out=self.out.view(-1, 8)).view(-1)


class TernGrad(Rival):
    """Two bits per element: s, -s or 0, so that the mean is right; s is the largest clipped magnitude (Wen, 2017)."""

    STATES = 0

    def __init__(self, floats):
        super().__init__(floats)
        self.seed = torch.zeros((), dtype=torch.int32)

    def encode(self, gradients):
        return terngrad(gradients, self.seed.add_(SEED))

    def decode(self, encoded):
        unpack_signed(*encoded, self.out.view(-1, 16, W))
        return self.out


class TernGradEager(Rival):
    STATES = 1  # random numbers

    def encode(self, gradients):
        low, high = torch.aminmax(gradients)
        scale = torch.minimum(torch.maximum(-low, high), CLIP * (torch.dot(gradients, gradients) / self.floats).sqrt())
        sent = self.states[0].uniform_().mul_(scale) < gradients.abs()
        return packed_pairs(sent.to(torch.uint8) << (gradients < 0).to(torch.uint8)), scale

    def decode(self, encoded):
        codes, scale = encoded
        return torch.index_select(scale * SIGNS, 0, codes.int(), out=self.out.view(-1, 4)).view(-1)


class Sparse(Rival):
    """Sends the largest RATE of the sums of what was not sent."""

    def __init__(self, floats):
        super().__init__(floats)
        self.wanted = max(1, round(RATE * floats))

    def forget(self):
        for state in self.states:
            state.zero_()

    def threshold_of(self, largest):
        """Returns an estimate from the maxima of groups, of which few have two elements that are sent."""
        sample = largest[::max(1, largest.numel() // SAMPLES) | 1]
        return sample.topk(max(1, round(RATE * GROUP * sample.numel())), sorted=False).values.min()

    def select(self, places, threshold):
        """Returns places and values, and clears the states there. `places(threshold)` returns those that reach it."""
        sums = self.states[-1]
        found = places(threshold)
        for _ in range(10):
            if found.numel() >= LEAST * self.wanted:
                break
            threshold = LEAST * threshold
            found = places(threshold)
        if found.numel() > MOST * self.wanted:
            found = found[sums[found].abs().topk(self.wanted, sorted=False).indices]
        values = sums.index_select(0, found)
        for state in self.states:
            state.index_fill_(0, found, 0)
        return found.int(), values

    def by_groups(self, largest):
        """Returns a function for select(), from the maxima of groups."""
        rows = self.states[-1].view(-1, GROUP)

        def places(threshold):
            groups = (largest >= threshold).nonzero().view(-1)
            inside = (rows.index_select(0, groups).abs_() >= threshold).view(-1).nonzero().view(-1)
            return groups.index_select(0, inside // GROUP).mul_(GROUP).add_(inside % GROUP)

        return places

    def by_masks(self, magnitudes):
        def places(threshold):
            mask = magnitudes >= threshold
            groups = mask.view(torch.int64).nonzero().view(-1)
            inside = mask.view(-1, 8)[groups].nonzero()
            return groups[inside[:, 0]] * 8 + inside[:, 1]

        return places

    def decode(self, encoded):
        places, values = encoded
        return self.out.zero_().scatter_(0, places.long(), values)


class Dgc(Sparse):
    """Adds up a velocity with momentum, and forgets both where it has sent (Lin, 2018)."""

    STATES = 2

    def encode(self, gradients):
        dgc_update(gradients, *self.states)
        largest = maxima(self.states[1])
        return self.select(self.by_groups(largest), self.threshold_of(largest))


class DgcEager(Sparse):
    STATES = 2

    def encode(self, gradients):
        velocity, sums = self.states
        sums.add_(torch.add(gradients, velocity, alpha=MOMENTUM, out=velocity))
        magnitudes = sums.abs()
        return self.select(self.by_masks(magnitudes), self.threshold_of(magnitudes.view(-1, GROUP).amax(1)))


class GradDrop(Sparse):
    """Sends the largest values of gradients and residuals (Aji, 2017)."""

    def encode(self, gradients):
        largest = maxima(self.states[0].add_(gradients))
        return self.select(self.by_groups(largest), self.threshold_of(largest))


class GradDropEager(Sparse):
    def encode(self, gradients):
        magnitudes = self.states[0].add_(gradients).abs()
        return self.select(self.by_masks(magnitudes), self.threshold_of(magnitudes.view(-1, GROUP).amax(1)))


RIVALS = {
    "onebit": {"compiled": OneBit, "eager": OneBitEager},
    "tbq:7": {"compiled": Tbq, "eager": TbqEager},
    "terngrad": {"compiled": TernGrad, "eager": TernGradEager},
    "dgc:0.1%": {"compiled": Dgc, "eager": DgcEager},
    "graddrop:0.1%": {"compiled": GradDrop, "eager": GradDropEager},
}
