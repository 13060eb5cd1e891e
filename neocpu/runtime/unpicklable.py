"""Objects that refuse to be pickled, because they cannot leave their process."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from neocpu.foundation.errors import ArgumentTypeError


class CannotCopy(ArgumentTypeError):
    """An object of one process; a ``TypeError`` too, as pickle raises and libraries expect."""


class Unpicklable:
    """Refuses ``pickle``, ``copy`` and ``multiprocessing``, and says what to do instead."""

    __slots__ = ()
    _instead: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise `CannotCopy`: pickling and copying both begin here."""
        raise CannotCopy(
            f"a neocpu.{type(self).__name__} cannot be pickled or copied, as it holds threads or "
            f"files of this process: {self._instead}"
        )
