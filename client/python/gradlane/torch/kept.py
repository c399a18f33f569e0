"""What the hook keeps from step to step, and what of a state dict does not fit."""

from .. import errors


class Kept:
    """For the parameters that travel in one bucket, in its order. residual, bound: None if there is none."""

    def __init__(self, parameters, residual, bound):
        self.parameters = parameters
        self.residual = residual
        self.bound = bound
        self.future = None  # of its latest exchange
        self.offsets = []
        offset = 0
        for parameter in parameters:
            self.offsets.append(offset)
            offset += parameter.numel()

    def residual_of(self, position):
        """A view, in the shape of the parameter."""
        if self.residual is None:
            return None
        parameter, offset = self.parameters[position], self.offsets[position]
        return self.residual[offset:offset + parameter.numel()].view(parameter.shape)

    def reset(self):
        if self.residual is not None:
            self.residual.zero_()
        if self.bound is not None:
            self.bound.reset()

    def take(self, result):
        """Of the exchange under way; called before DDP gets it."""
        if self.bound is not None:
            self.bound.update(result.detach().cpu().numpy())

    def settle(self):
        """The exchange before this one is over. Had it failed, all starts anew."""
        future, self.future = self.future, None
        if future is None:
            return
        try:
            future.wait()
        except RuntimeError:
            self.reset()


class Loaded:
    """A parameter's part of a state dict."""

    def __init__(self, shape, residual, bound):
        self.shape, self.residual, self.bound = tuple(shape), residual, bound


def check_fits(loaded, number, parameter):
    if number >= len(loaded):
        raise errors.bad_argument(
            f"the state dict is of another model: it has {len(loaded)} parameters, and here there is one more, "
            f"of shape {tuple(parameter.shape)}"
        )
    if loaded[number].shape != tuple(parameter.shape):
        raise errors.bad_argument(
            f"the state dict is of another model, or of other buckets: its parameter {number} (in the order in which "
            f"DDP first had gradients) has shape {loaded[number].shape}, here it has {tuple(parameter.shape)}"
        )


def check_buckets(saved, firsts):
    for number, (one, other) in enumerate(zip(saved, firsts)):
        if one != other:
            raise errors.bad_argument(
                f"the state dict is of other buckets: bucket {number} of the first step had {one} parameters, here it "
                f"has {other}. Wrap the model as it was then: bucket_cap_mb, find_unused_parameters, static_graph"
            )


def too_many(loaded, order):
    return errors.bad_argument(
        f"the state dict is of another model: it has {len(loaded)} parameters, of which parameter {len(order)} has "
        f"shape {loaded[len(order)].shape}; here there are {len(order)}"
    )
