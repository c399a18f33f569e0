"""What parts of the package need of those that are made of them: so none imports what imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ._buffers import Block, Connection


class Memory(Protocol):
    """Of a context, for operands and residuals: its shared memory."""

    _connection: Connection

    def _allocate(self, size: int) -> Block: ...

    def _borrow(self, size: int) -> Block: ...

    def _give_back(self, block: Block) -> None: ...


class Operations(Memory, Protocol):
    """Of a context, for an operation: those that are under way."""

    _pending: dict[Any, Any]


class Asked(Protocol):
    """Of a context, for a request: how its operation is."""

    def _ask(self, operation: Any, timeout_ms: int) -> bool: ...

    def _cancel(self, operation: Any) -> None: ...


class Scaled(Protocol):
    """Of an operation, for who has chosen its codec. scale: of the data, so that it is an average."""

    scale: float
