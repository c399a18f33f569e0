"""Types of objects that modules use without importing their classes, so that imports have one direction."""

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
    """The operations that a context has in flight. An operation removes itself from them."""

    _pending: dict[Any, Any]


class Asked(Protocol):
    """A context that tells a request whether its operation has ended, and cancels it."""

    def _ask(self, operation: Any, timeout_ms: int) -> bool: ...

    def _cancel(self, operation: Any) -> None: ...


class Scaled(Protocol):
    """An operation, for the AdaptiveBound that has chosen its codec. scale: factor that makes the result an average."""

    scale: float
