"""Types of what modules call but do not import, so that imports have one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ._buffers import Block, Connection


class Memory(Protocol):
    """A context's shared memory, for operands and residuals."""

    _connection: Connection

    def _allocate(self, size: int) -> Block: ...

    def _borrow(self, size: int) -> Block: ...

    def _give_back(self, block: Block) -> None: ...


class Operations(Memory, Protocol):
    """A context's operations that are under way, for one of them to leave."""

    _pending: dict[Any, Any]


class Asked(Protocol):
    """A context that tells a request whether its operation has ended, and cancels it."""

    def _ask(self, operation: Any, timeout_ms: int) -> bool: ...

    def _cancel(self, operation: Any) -> None: ...


class Scaled(Protocol):
    """An operation, for the AdaptiveBound that has chosen its codec. scale: of the data, so that it is an average."""

    scale: float
