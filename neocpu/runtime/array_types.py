"""The types of arrays that users pass and receive, for type checkers and documentation."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np


class ExportsDLPack(Protocol):
    """An array of any library that exports DLPack: PyTorch, JAX, …"""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class ExportsBuffer(Protocol):
    """An object with a buffer: `collections.abc.Buffer`, which Python has since 3.12."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


AnyArray: TypeAlias = np.ndarray[Any, Any]
ArrayLike: TypeAlias = AnyArray | ExportsDLPack | ExportsBuffer
"""The arrays that a model takes as inputs."""
