"""Choice of the hook's codec for each step, and of the parameters that travel exactly."""

from __future__ import annotations

import fnmatch
from typing import Any, Sequence

import torch

from .. import _arguments, errors
from .._library import Capability
from .codec import check, is_adaptive
from .engine import Engine


class CodecSchedule:
    """Codecs of a training, step by step.

    The first `warmup` steps are exact, then comes the ramp, then `codec`. `states` is the number of arrays in a
    residual. `looks` says whether the codec has scales or thresholds of whole tensors. `owned` says whether all states
    but the first are residuals of sums that this rank computes for the others.
    """

    def __init__(self, engine: Engine, codec: str, strategy: str | None, warmup: int,
                 ramp: Sequence[tuple[str, int]]) -> None:
        self.warmup = _arguments.whole("warmup", warmup, 0, 1 << 62)
        self._codec = codec
        self._ramp: list[tuple[str, int]] = []  # (codec, first step after it)
        self.states, self.looks, self.owned = 1, False, False
        if is_adaptive(codec):
            if ramp:
                raise errors.bad_argument(
                    f"gradlane: ramp is not for codec {codec!r}, whose bounds follow the gradients already"
                )
            return
        engine.check_codec_strategy(codec, strategy)
        found = engine.find_codec(codec)
        self.states, self.looks = max(found.states, 1), Capability.LOOKS in found.flags
        self.owned = Capability.OWNED in found.flags
        end = self.warmup
        for name, steps in _pairs(ramp):
            check(name, engine)
            engine.check_codec_strategy(name, strategy)
            other = engine.find_codec(name)
            if other.usage != found.usage:
                raise errors.bad_argument(
                    f"gradlane: ramp with codec {name!r} before {codec!r}: it must be {found.usage}, too"
                )
            if other.states != found.states:
                raise errors.bad_argument(
                    f"gradlane: ramp with codec {name!r} before {codec!r}: their residuals have {other.states} and "
                    f"{found.states} arrays of states; the numbers must be equal"
                )
            end += _arguments.whole("steps of a ramp", steps, 1, 1 << 62)
            self._ramp.append((name, end))

    def codec(self, step: int) -> str:
        """Returns the codec of the step with this number, which must come after the warm-up."""
        return next((name for name, end in self._ramp if step < end), self._codec)


def _pairs(ramp: Any) -> list[tuple[str, int]]:
    try:
        return [(name, steps) for name, steps in ramp]
    except (TypeError, ValueError):
        raise _arguments.wrong("ramp", ramp, "[(codec, steps), ...]") from None


def named(patterns: object, model: torch.nn.Module | None) -> frozenset[int]:
    """Returns id() of each parameter whose name matches one of the patterns. Raises BadArgument if a pattern matches
    none."""
    if isinstance(patterns, str) or not isinstance(patterns, Sequence) or not all(isinstance(p, str) for p in patterns):
        raise _arguments.wrong("exact", patterns, "a list of patterns of parameter names, for example ['*.bias']")
    if not patterns:
        return frozenset()
    if not isinstance(model, torch.nn.Module):
        raise _arguments.wrong("model", model, "the module whose parameters `exact` names")
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise errors.bad_argument(
                f"gradlane: exact: no parameter's name matches {pattern!r}; names are {', '.join(list(names)[:8])}, ..."
            )
    return frozenset(names[name] for pattern in patterns for name in fnmatch.filter(names, pattern))
