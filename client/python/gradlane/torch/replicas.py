"""Check that all ranks have the same model, bit by bit. If not, an error says which rank differs, and where."""

from __future__ import annotations

import collections
import hashlib
import zlib
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist

from .. import _arguments, errors
from .default_options import results_hash
from .tasks import Tasks

_MOST = 5  # largest number of parameters, of values of each, and of ranks with a value that an error lists

_Said = dict[str, str]  # entries of one rank: name of a parameter -> type, shape and CRC


def check_replicas(model: torch.nn.Module, every: int = 0, *, buffers: bool = False,
                   process_group: dist.ProcessGroup | None = None) -> Any:
    """Raises OperationFailed on all ranks, with names of ranks and parameters, if parameters differ by a bit between
    ranks.

    - every: 0 checks now, on all ranks. N checks before the first forward in training mode, and before each N-th one
      from then on. All ranks must run as many forwards. The result has a remove() that ends the checks.
    - buffers: True compares the buffers of state_dict() as well. BatchNorm has buffers that differ unless something
      makes them equal.
    - process_group: group of the ranks. None: all ranks.

    A check costs a CRC-32 of each parameter and an all-reduce of 48 bytes, and more only if something differs. A
    difference is missed with a probability of 2^-32, if values have the same CRC. Raises BadArgument for parameters
    that are sharded.

    After hash_results(), a check of all ranks also compares results_hash(). So it notices a result of gradlane that
    differs on a rank even if no parameter differs yet. It skips this if ranks have different numbers of results, as
    after a failure.
    """
    _arguments.whole("every", every, 0, 1 << 62)
    if every == 0:
        _check(model, buffers, process_group, "")
        return None
    steps = 0

    def before_forward(module: torch.nn.Module, _: Any) -> None:
        nonlocal steps
        if not module.training or not torch.is_grad_enabled():
            return
        if steps % every == 0:
            _check(module, buffers, process_group, f" before step {steps}")
        steps += 1

    return model.register_forward_pre_hook(before_forward)


# ---- Private


def _check(model: torch.nn.Module, buffers: bool, group: Any, when: str) -> None:
    said = _said(model, buffers)
    whole = hashlib.blake2b(repr(list(said.items())).encode(), digest_size=8).digest()
    count, value = results_hash() if group is None and Tasks.hashes else (0, 0)
    numbers = torch.tensor([int.from_bytes(whole, "little", signed=True), count, value - (1 << 63)])
    least = torch.cat([numbers, ~numbers]).to(_device(model, buffers))
    dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
    # A number is the same on all ranks if its minimum and maximum are equal.
    same, same_count, same_results = (least[:3] == ~least[3:]).tolist()
    if same and (same_results or not same_count):
        return
    everybody: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybody, (said, f"{value:016x}"), group=group)
    ranks: Sequence[int] = range(len(everybody))
    if group is not None:
        ranks = [dist.get_global_rank(group, rank) for rank in ranks]
    texts = []
    if same_count and not same_results:
        who = _who([value for _, value in everybody], ranks)
        texts.append(f"gradlane: the hashes of the first {count} results differ between ranks{when}: {who}. Possible "
                     "causes: bad memory, a write to a tensor during an operation"
                     + (". All parameters are equal" if same else ""))
    if not same:
        texts.append(_difference([said for said, _ in everybody], ranks, when))
    raise errors.error(errors.Code.FAILED, "\n".join(texts))


def _device(model: torch.nn.Module, buffers: bool) -> torch.device:
    """Returns a device whose tensors the job's backend takes. NCCL takes no CPU tensors."""
    devices = [tensor.device for _, tensor in _tensors(model, buffers)]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def _said(model: torch.nn.Module, buffers: bool) -> _Said:
    said: _Said = {}
    for name, tensor in _tensors(model, buffers):
        if hasattr(tensor, "to_local"):
            raise errors.bad_argument(f"gradlane: check_replicas: {name} is sharded, so ranks have different parts")
        said[name] = f"{str(tensor.dtype)[6:]} {list(tensor.shape)} {zlib.crc32(_bytes(tensor)):08x}"
    return said


def _tensors(model: torch.nn.Module, buffers: bool) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    if buffers:
        kept = model.state_dict(keep_vars=True)
        yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def _bytes(tensor: torch.Tensor) -> Any:
    """Returns the tensor's bytes, without a copy if it is contiguous and on the CPU."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return flat.view(torch.uint8).numpy()


def _difference(everybody: list[_Said], ranks: Sequence[int], when: str) -> str:
    """Returns a text that says what differs, the same on all ranks. ranks: number in the job of each rank in
    `everybody`."""
    names = dict.fromkeys(name for said in everybody for name in said)
    wrong = [(name, _who([said.get(name, "no such parameter") for said in everybody], ranks)) for name in names]
    wrong = [(name, who) for name, who in wrong if who]
    if not wrong:
        return f"gradlane: the model's parameters have a different order on some ranks{when}"
    text = "; ".join(f"{name}: {who}" for name, who in wrong[:_MOST])
    more = f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
    return (f"gradlane: {len(wrong)} of {len(names)} parameters differ between ranks{when}: {text}{more}. Load a "
            "checkpoint on all ranks. Possible causes: a parameter outside of DDP, different seeds or steps, bad "
            "memory")


def _who(values: Sequence[str], ranks: Sequence[int]) -> str:
    """Returns the ranks whose value differs from the majority's, or all ranks if there is no majority. Returns "" if
    all values are equal."""
    counts = collections.Counter(values).most_common()
    if len(counts) == 1:
        return ""
    majority = 2 * counts[0][1] > len(values)
    others = counts[1:] if majority else counts
    text = ", ".join(
        f"{_ranks([rank for rank, its in zip(ranks, values) if its == value])} {value}" for value, _ in others[:_MOST])
    if len(others) > _MOST:
        text += f", {len(others) - _MOST} more values on {sum(count for _, count in others[_MOST:])} ranks"
    return f"{text}, the other {counts[0][1]} ranks {counts[0][0]}" if majority else text


def _ranks(found: Sequence[int]) -> str:
    if len(found) == 1:
        return f"rank {found[0]} has"
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"ranks {', '.join(map(str, found[:_MOST]))}{more} have"
