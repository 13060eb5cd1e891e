"""Objects that free their resources at the end of a ``with`` block at the latest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self  # only since Python 3.11, and models run on 3.10


class Closing(ABC):
    """Closes itself at the end of a ``with`` block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Free its resources. May be repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
