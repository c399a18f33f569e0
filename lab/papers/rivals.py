"""rivals.py - HiPress' five codecs in PyTorch, for one core: what gradlane's kernels are timed against

Dense codecs are one graph of torch.compile each way. Sparse codecs are calls of eager PyTorch and one compiled kernel.
Codes are packed to one or two bits per element; sparse codecs send int32 places and fp32 values. Where a choice makes
PyTorch's work less, it is made: onebit has one pair of means for the whole tensor, and subtracts it when the sums are
next read; the order of bits is what packs fastest.

Each of these was the fastest of several that we timed with 1, 16 and 64 MiB and AVX-512:

- One loop reads sums, writes them and packs: inputs and states are lists of views, one per bit of a word, so packing
  needs no operation across lanes. Sums over eight neighbours are 100 times slower. Views of the states are arguments.
- The elements of W = 16 words are 16 neighbours, so that a loop reads and writes memory in order. With 64 neighbours
  encoding takes 3 times as long, with 1024 it takes 1.6 times. Decoding hardly depends on it.
- onebit's loop has 8 elements per word, whose bits a second loop packs by four. With 32, which need no second loop, the
  loop's values do not fit into registers, and it takes 1.5 times as long.
- Integers compare, clamp and select in one instruction where fp32 takes four, because NaN is kept or masks are
  converted: magnitudes, signs and codes are int32. torch.copysign is a call per 16 elements. Maxima over neighbours are
  fast for fp32 only.
- Partial sums and maxima come from views, too: a single running maximum waits for its last result. Random numbers are a
  hash of the place. The places within a row of W are the tensor LANES, because torch.arange is not vectorised.
- torch.compile without fullgraph, dynamic or options: they cost up to 6 microseconds per call. Neither the C++ wrapper
  nor calls without guards save as much as 10 % with 1 MiB; arrays at different offsets in pages save nothing.
- Sums of sparse codecs are updated by eager PyTorch, and maxima of 64 neighbours taken in a second pass. A loop that
  does both needs maxima of elements that are not neighbours; it takes as long with 16 MiB and up to 1.2 times as long
  with others, because reading these groups again costs more.
- A threshold is the k-th largest element of all sampled groups, where k is RATE times their elements. With sampled
  elements encoding takes up to 1.2 times as long; with sampled maxima alone it takes 1.5 times as long where large
  values are neighbours.
- Eager forms of the dense codecs encoded at 0.6 to 2.8 GB/s and decoded at 4 to 12, though they packed eight bools by
  one multiplication and looked up eight values per byte. Eager sparse codecs took 1.5 to 2.5 times as long. They are
  gone.
"""

import torch

THRESHOLD = 2.0 ** -7  # of tbq:7
CLIP = 2.5  # standard deviations, of terngrad
SEED = -0x61c88465  # what each encode of terngrad adds to its seed
RATE, SAMPLES = 0.001, 4096  # of sparse codecs: share of elements; about how many groups a threshold comes from
MOMENTUM = 0.9  # of dgc
MOST, LEAST = 1.3, 0.8  # bounds of DGC's code for what a sampled threshold selects, times RATE
GROUP = 64  # elements of which one maximum is kept
W = 16  # elements side by side; bit j of word (b, i) is of element (b * count + j) * W + i

LANES = torch.arange(W, dtype=torch.int32)

# Options of torch.compile that do this, like fullgraph=True, cost up to 6 microseconds per call.
torch._dynamo.config.automatic_dynamic_shapes = False


def parts(x, count):
    """Returns views: the j-th has the elements that bits j of words are of."""
    blocks = x.view(-1, count, W)
    return [blocks[:, j] for j in range(count)]


def constant(value):
    return torch.full((), value, dtype=torch.int32)


def clamped(x, least, most):
    return torch.minimum(torch.maximum(x, constant(least)), constant(most))


def ones_of(words):
    """Returns how many bits of each int32 are 1."""
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    return (((words + (words >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24


# ---- Kernels for torch.compile


@torch.compile
def onebit(gradients, kept, low, high):
    """`kept` has parts of the sums before their means, `low` and `high`, were subtracted. Bits are 1 if negative."""
    low, high = low.view(torch.int32), high.view(torch.int32)
    words = positive = whole = 0
    for j, (g, k) in enumerate(zip(parts(gradients, 8), kept)):
        mean = ((k.view(torch.int32) >> 31) & (low ^ high)) ^ high
        x = g + (k - mean.view(torch.float32))
        k.copy_(x)
        words = words | ((x.view(torch.int32) >> 31) & (1 << j))
        positive, whole = positive + x.relu(), whole + x
    bits = words.view(-1, 4, W)
    packed = bits[:, 0] | (bits[:, 1] << 8) | (bits[:, 2] << 16) | (bits[:, 3] << 24)
    count = ones_of(packed).sum(dtype=torch.int32)
    up = positive.sum()
    # The last three are returned so that they are stored: then the sums read them and not `kept`.
    return packed, (whole.sum() - up) / count, up / (gradients.numel() - count), words, positive, whole


@torch.compile
def unpack_signs(words, low, high, out):
    left = torch.arange(31, -1, -1, dtype=torch.int32).view(1, 32, 1)
    out.copy_(torch.where((words.unsqueeze(1) << left) < 0, low, high))


@torch.compile
def tbq(gradients, kept):
    """Codes are 0, 1 and 2 for the negative threshold, 0 and the threshold. Sums must be less than 2^24."""
    words = 0x55555555
    for j, (g, k) in enumerate(zip(parts(gradients, 16), kept)):
        x = g + k
        sign = clamped((x * (1 / THRESHOLD)).to(torch.int32), -1, 1)
        k.copy_(x - sign.float() * THRESHOLD)
        words = words + (sign << (2 * j))
    return words


@torch.compile
def unpack_signed(words, scale, out):
    at = torch.arange(0, 32, 2, dtype=torch.int32).view(1, 16, 1)
    out.copy_((((words.unsqueeze(1) >> at) & 3) - 1).float() * scale)


@torch.compile
def terngrad(gradients, seed):
    squares, largest = 0, constant(0)
    for x in parts(gradients, 32):
        squares = squares + x * x
        size = x.view(torch.int32) & 0x7fffffff  # ordered as floats are
        largest = torch.maximum(largest, size)
    # The mean is taken to be 0, as in gradlane.
    scale = torch.minimum(largest.view(torch.float32).amax(), CLIP * torch.sqrt(squares.sum() / gradients.numel()))
    blocks = torch.arange(gradients.numel() // (16 * W), dtype=torch.int32).unsqueeze(1)
    inverse, places, words = 1 / scale, LANES + (blocks * (16 * W) + seed), 0
    for j, x in enumerate(parts(gradients, 16)):
        h = places + j * W  # a hash like MurmurHash3's last stage
        h = (h ^ (h >> 16)) * -2048144789
        h = (h ^ (h >> 13)) * -1028477387
        random = h.float() * (2.0 ** -32 - 2.0 ** -54) + 1.5  # from 1 to 2
        words = words | (clamped((x * inverse + random).to(torch.int32), 0, 2) << (2 * j))
    return words, scale, squares, largest


@torch.compile
def maxima(sums):
    rows = sums.view(torch.int32).view(-1, GROUP // W, W) & 0x7fffffff
    largest = rows[:, 0]
    for j in range(1, GROUP // W):
        largest = torch.maximum(largest, rows[:, j])
    return largest.view(torch.float32).amax(1)


# ---- Codecs


class Rival:
    """A codec for tensors of `floats` elements. encode() changes the states that it keeps; decode() returns `out`."""

    STATES = 1

    def __init__(self, floats):
        self.floats, self.out = floats, torch.zeros(floats)
        self.states = [torch.zeros(floats) for _ in range(self.STATES)]

    def forget(self):
        """Clears the states. Sparse codecs would select more and more of the same gradients. The others need not."""


class OneBit(Rival):
    """One bit per element; it decodes to the mean of those that are 0 or more, or of the others (Seide, 2014)."""

    def __init__(self, floats):
        super().__init__(floats)
        self.kept, self.low, self.high = parts(self.states[0], 8), torch.zeros(()), torch.zeros(())

    def encode(self, gradients):
        words, self.low, self.high, *_ = onebit(gradients, self.kept, self.low, self.high)
        return words, self.low, self.high

    def decode(self, encoded):
        unpack_signs(*encoded, self.out.view(-1, 32, W))
        return self.out


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


class TernGrad(Rival):
    """Two bits per element: s, -s or 0, so that the mean is right; s is the largest clipped magnitude (Wen, 2017)."""

    STATES = 0

    def __init__(self, floats):
        super().__init__(floats)
        self.seed = torch.zeros((), dtype=torch.int32)

    def encode(self, gradients):
        words, scale, *_ = terngrad(gradients, self.seed.add_(SEED))
        return words, scale

    def decode(self, encoded):
        unpack_signed(*encoded, self.out.view(-1, 16, W))
        return self.out


def places_of(mask):
    """Returns where a mask is set, of whose elements few are. It is read as int64 if that pays."""
    if mask.numel() < 65536:
        return mask.nonzero().view(-1)
    eights = mask.view(torch.int64).nonzero().view(-1)
    inside = mask.view(-1, 8).index_select(0, eights).view(-1).nonzero().view(-1)
    return eights.index_select(0, inside // 8).mul_(8).add_(inside % 8)


class Sparse(Rival):
    """Sends the largest RATE of the sums of what was not sent."""

    def __init__(self, floats):
        super().__init__(floats)
        self.wanted = max(1, round(RATE * floats))

    def forget(self):
        for state in self.states:
            state.zero_()

    def select(self):
        """Returns places and values, and clears the states there."""
        sums = self.states[-1]
        rows, largest = sums.view(-1, GROUP), maxima(sums)
        # The threshold comes from sampled groups: only those with the largest maxima can have elements that reach it.
        step = max(3, largest.numel() // SAMPLES | 1)
        sample = largest[::step]
        most = max(1, round(RATE * GROUP * sample.numel()))
        best = sample.topk(most, sorted=False).indices
        threshold = rows[::step].index_select(0, best).abs_().view(-1).topk(most, sorted=False).values.min()
        for _ in range(10):
            groups = places_of(largest >= threshold)
            inside = places_of((rows.index_select(0, groups).abs_() >= threshold).view(-1))
            if inside.numel() >= LEAST * self.wanted:
                break
            threshold = LEAST * threshold
        found = groups.index_select(0, inside // GROUP).mul_(GROUP).add_(inside % GROUP)
        values = sums.index_select(0, found)
        if found.numel() > MOST * self.wanted:
            largest = values.abs().topk(self.wanted, sorted=False).indices
            found, values = found[largest], values[largest]
        for state in self.states:
            state.index_fill_(0, found, 0)
        return found.int(), values

    def decode(self, encoded):
        places, values = encoded
        return self.out.zero_().scatter_(0, places.long(), values)


class Dgc(Sparse):
    """Adds up a velocity with momentum, and forgets both where it has sent (Lin, 2018)."""

    STATES = 2

    def encode(self, gradients):
        velocity, sums = self.states  # a kernel of torch.compile is no faster
        sums.add_(torch.add(gradients, velocity, alpha=MOMENTUM, out=velocity))
        return self.select()


class GradDrop(Sparse):
    """Sends the largest values of gradients and residuals (Aji, 2017)."""

    def encode(self, gradients):
        self.states[0].add_(gradients)
        return self.select()


RIVALS = {"onebit": OneBit, "tbq:7": Tbq, "terngrad": TernGrad, "dgc:0.1%": Dgc, "graddrop:0.1%": GradDrop}
