"""rivals.py - HiPress' five codecs in PyTorch, for one core: what gradlane's kernels are timed against

Each codec has two forms: `eager`, and `compiled` by torch.compile. The faster one counts. Codes are packed to one or two
bits per element; sparse codecs send int32 places and fp32 values. Where a choice makes PyTorch's work less, it is made:
onebit has one pair of means for the whole tensor, and the order of bits is what packs fastest.

Each of these was the fastest of several that we timed with 16 MiB and AVX-512:

- In compiled code, bit j of word i is that of element j n/32 + i, so that packing needs no operation across lanes. Sums
  over eight neighbours are 100 times slower, and so are kernels that write bool or uint8: they are not vectorised.
- In eager code, eight bools are one int64, and a multiplication collects their bits. Sums and shifts are 5 to 30 times
  slower.
- Eager decoding looks up eight values per byte. Shifts and masks are 10 times slower, a table for 16 bits is 5 times
  slower where eight values per byte are enough.
- Random numbers are a hash of the place, compiled. torch.rand, uniform_ and NumPy's SFC64 take 4 times as long.
- Thresholds are those of DGC's own code: the largest values of a strided sample. topk of the whole tensor takes 7 times
  as long.
- Places come from the maxima of 64 neighbours (compiled), or from masks that are read as int64 (eager). nonzero() of the
  whole mask takes 1.4 times as long.
"""

import functools

import torch

THRESHOLD = 2.0 ** -7  # of tbq:7
CLIP = 2.5  # standard deviations, of terngrad
RATE, SAMPLES = 0.001, 16  # of sparse codecs: share of elements; least number of the sample's that reach the threshold
MOMENTUM = 0.9  # of dgc
MOST, LEAST = 1.3, 0.8  # bounds of DGC's code for what a sampled threshold selects, times RATE
STRIDE = 101  # of samples, at most
GROUP = 64  # elements of which one maximum is kept

BITS = ((torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1).bool()
COLLECT = 0x0102040810204080  # multiplied with eight bytes of 0 or 1, has their bits in its highest byte
COLLECT_PAIRS = (1 << 24) + (1 << 18) + (1 << 12) + (1 << 6)  # the same for four bytes of 0 to 3

compiled = functools.partial(torch.compile, fullgraph=True, dynamic=False)


def word(bit):
    """Returns 1 << bit as an int32."""
    return 1 << bit if bit < 31 else -(1 << 31)


def joined(codes):
    result = codes[0]
    for code in codes[1:]:
        result = result | code
    return result


def shifts(bits):
    return torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(1)


def packed_pairs(codes):
    """Packs bytes of 0 to 3, four to a byte."""
    return ((codes.view(torch.int32) * COLLECT_PAIRS) >> 24).to(torch.uint8)


def signed_codes(words, scale):
    """Returns 0, scale or -scale for codes 0, 1 and 2."""
    at = shifts(2)
    return ((((words >> at) & 1) - ((words >> (at + 1)) & 1)).float() * scale).view(-1)


# ---- Kernels for torch.compile


@compiled
def accumulate(gradients, residual):
    x = gradients + residual
    residual.copy_(x)
    return x.clamp(min=0).sum(), x.sum(), (x >= 0).sum(dtype=torch.int32)


@compiled
def pack_signs(x):
    bits = x.view(torch.int32).view(32, -1)
    return joined([(bits[j] >> 31) & word(j) for j in range(32)])  # 1: negative


@compiled
def keep_signs(x, low, high):
    x.copy_(x - torch.where(x >= 0, high, low))


@compiled
def unpack_signs(words, low, high, out):
    out.copy_(torch.where(((words >> shifts(1)) & 1) == 0, high, low).view(-1))


@compiled
def tbq(gradients, residual):
    x = (gradients + residual).view(16, -1)
    words = joined([torch.where(x[j] >= THRESHOLD, word(2 * j), torch.where(x[j] <= -THRESHOLD, word(2 * j + 1), 0)).to(torch.int32)
                    for j in range(16)])
    x = x.view(-1)
    residual.copy_(torch.where(x >= THRESHOLD, x - THRESHOLD, torch.where(x <= -THRESHOLD, x + THRESHOLD, x)))
    return words


@compiled
def unpack_signed(words, scale, out):
    out.copy_(signed_codes(words, scale))


@compiled
def moments(x):
    return x.abs().amax(), x.sum(), (x * x).sum()


@compiled
def terngrad(gradients, seed, scale):
    x = gradients.view(16, -1)
    places = torch.arange(x.shape[1], dtype=torch.int32)
    codes = []
    for j in range(16):
        h = places + (seed + j * x.shape[1])  # MurmurHash3's last stage
        h = (h ^ ((h >> 16) & 0xffff)) * -2048144789
        h = (h ^ ((h >> 13) & 0x7ffff)) * -1028477387
        sent = ((h >> 8) & 0xffffff).float() * (scale * 2.0 ** -24) < x[j].abs()
        codes.append(torch.where(sent, torch.where(x[j] < 0, word(2 * j + 1), word(2 * j)), 0).to(torch.int32))
    return joined(codes)


@compiled
def dgc(gradients, velocity, sum_):
    u = MOMENTUM * velocity + gradients
    v = sum_ + u
    velocity.copy_(u)
    sum_.copy_(v)
    return v.abs().view(-1, GROUP).amax(1)


@compiled
def graddrop(gradients, sum_):
    v = sum_ + gradients
    sum_.copy_(v)
    return v.abs().view(-1, GROUP).amax(1)


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

    def encode(self, gradients):
        residual, = self.states
        positive, whole, count = accumulate(gradients, residual)
        high, low = positive / count, (whole - positive) / (self.floats - count)
        words = pack_signs(residual)
        keep_signs(residual, low, high)
        return words, low, high

    def decode(self, encoded):
        unpack_signs(*encoded, self.out)
        return self.out


class OneBitEager(Rival):
    def encode(self, gradients):
        x = self.states[0].add_(gradients)
        negative = torch.signbit(x)
        positive = torch.relu(x).sum()
        count = self.floats - torch.count_nonzero(negative)
        high, low = positive / count, (x.sum() - positive) / (self.floats - count)
        x.sub_(high).add_(negative * (high - low))
        return ((negative.view(torch.int64) * COLLECT) >> 56).to(torch.uint8), low, high

    def decode(self, encoded):
        codes, low, high = encoded
        return torch.index_select(torch.where(BITS, low, high), 0, codes.int(), out=self.out.view(-1, 8)).view(-1)


class Tbq(Rival):
    """Two bits per element: a threshold, its negative or 0 (Strom, 2015)."""

    def encode(self, gradients):
        return (tbq(gradients, self.states[0]),)

    def decode(self, encoded):
        unpack_signed(*encoded, THRESHOLD, self.out)
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
    seed = 0

    def scale(self, gradients):
        largest, whole, squares = moments(gradients)
        mean = whole / self.floats
        return torch.minimum(largest, CLIP * torch.sqrt(squares / self.floats - mean * mean))

    def encode(self, gradients):
        self.seed += 1
        scale = self.scale(gradients)
        return terngrad(gradients, torch.tensor(self.seed * 0x9e3779b & 0x7fffffff, dtype=torch.int32), scale), scale

    def decode(self, encoded):
        unpack_signed(*encoded, self.out)
        return self.out


class TernGradEager(Rival):
    STATES = 1  # random numbers

    def encode(self, gradients):
        scale = torch.minimum(torch.maximum(gradients.max(), -gradients.min()), CLIP * gradients.std())
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
        self.stride = max(1, min(STRIDE, self.wanted // SAMPLES))

    def forget(self):
        for state in self.states:
            state.zero_()

    def threshold(self):
        sample = self.states[-1][::self.stride].abs()
        return sample.topk(max(1, round(RATE * sample.numel())), sorted=False).values.min()

    def select(self, places):
        """Returns places and values, and clears the states there. `places(threshold)` returns those that reach it."""
        threshold, sums = self.threshold(), self.states[-1]
        found = places(threshold)
        for _ in range(10):
            if found.numel() >= LEAST * self.wanted:
                break
            threshold = LEAST * threshold
            found = places(threshold)
        if found.numel() > MOST * self.wanted:
            found = found[sums[found].abs().topk(self.wanted, sorted=False).indices]
        values = sums[found]
        for state in self.states:
            state[found] = 0
        return found.int(), values

    def by_groups(self, largest):
        """Returns a function for select(), from the maxima of groups."""
        def places(threshold):
            groups = (largest >= threshold).nonzero().view(-1)
            inside = (self.states[-1].view(-1, GROUP)[groups].abs() >= threshold).nonzero()
            return groups[inside[:, 0]] * GROUP + inside[:, 1]

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
        return self.select(self.by_groups(dgc(gradients, *self.states)))


class DgcEager(Sparse):
    STATES = 2

    def encode(self, gradients):
        velocity, sums = self.states
        sums.add_(velocity.mul_(MOMENTUM).add_(gradients))
        return self.select(self.by_masks(sums.abs()))


class GradDrop(Sparse):
    """Sends the largest values of gradients and residuals (Aji, 2017)."""

    def encode(self, gradients):
        return self.select(self.by_groups(graddrop(gradients, *self.states)))


class GradDropEager(Sparse):
    def encode(self, gradients):
        return self.select(self.by_masks(self.states[0].add_(gradients).abs()))


RIVALS = {
    "onebit": {"compiled": OneBit, "eager": OneBitEager},
    "tbq:7": {"compiled": Tbq, "eager": TbqEager},
    "terngrad": {"compiled": TernGrad, "eager": TernGradEager},
    "dgc:0.1%": {"compiled": Dgc, "eager": DgcEager},
    "graddrop:0.1%": {"compiled": GradDrop, "eager": GradDropEager},
}
