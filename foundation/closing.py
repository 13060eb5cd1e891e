"""Objects that free their resources at the end of a ``with`` block at the latest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

Own = TypeVar("Own", bound="Closing")


class Closing(ABC):
    """Closes itself at the end of a ``with`` block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Free its resources. May be repeated."""

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
