"""What another package says of an operator that it adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from neocpu.foundation.errors import UnsupportedError, UsageError
from neocpu.foundation.foreign_code import foreign_code, one_line

if TYPE_CHECKING:
    import numpy.typing as npt
    from tvm import te, tirx

    Array: TypeAlias = npt.NDArray[Any]
    Attributes: TypeAlias = Mapping[str, Any]
    Computed: TypeAlias = te.Tensor | Sequence[te.Tensor] | tirx.PrimFunc

_NO_NUMBERS: Final = "OSUMm"
"""numpy's kinds of arrays of objects, texts and times."""


@dataclass(frozen=True, slots=True)
class CustomOperator:
    """An operator of ONNX models that another package adds.

    Attributes
    ----------
    domain, name : str
        What nodes call it. The domain is not ONNX's own.
    compute : callable
        What it computes. Takes the inputs, a sequence of ``te.Tensor`` of static shapes, with None
        for one that is left out, and the node's attributes: numbers, strings, lists of these, and
        arrays. Returns a ``te.Tensor`` or a sequence of them, one for each output, which are
        scheduled, and fused with what is around, as other operators are. Or a scheduled
        ``tirx.PrimFunc``, which takes buffers of the inputs that are given and then of the outputs,
        and runs as it is. The outputs' shapes and types follow from what is returned.
    reference : callable, optional
        The same in numpy, to verify against. Takes the inputs as arrays and the attributes; returns
        an array, or a sequence of them. float32 inputs come as float64 too, where the outputs
        should be float64. Without one, models with this operator compile with ``--no-verify``.

    Raises
    ------
    UsageError
        If name or domain are no names of a custom operator.
    """

    domain: str
    name: str
    compute: Callable[[Sequence[te.Tensor | None], Attributes], Computed]
    reference: Callable[[Sequence[Array | None], Attributes], Array | Sequence[Array]] | None = None

    def __post_init__(self) -> None:
        if not self.name or self.domain in ("", "ai.onnx"):
            raise UsageError(
                f"the custom operator '{self.domain}::{self.name}' needs a name and a domain of "
                "its own"
            )

    @property
    def package(self) -> str:
        """The package that it is from."""
        module: str = getattr(self.compute, "__module__", None) or "?"
        return module.partition(".")[0]

    def failure(self, node: str, error: BaseException) -> UnsupportedError:
        """Return in one line what it did wrong.

        Parameters
        ----------
        node : str
            The node's name.
        """
        return UnsupportedError(
            f"custom operator {self.domain}::{self.name} of package {self.package} fails at node "
            f"'{node}': {one_line(error)}"
        )

    def reference_outputs(
        self, node: str, inputs: Sequence[Array | None], attributes: Attributes
    ) -> tuple[Array, ...]:
        """Return what its reference computes.

        Raises
        ------
        UnsupportedError
            If that fails or makes no numbers, or there is none.
        """
        if self.reference is None:
            raise UnsupportedError(
                f"custom operator {self.domain}::{self.name} of package {self.package} has no "
                "reference"
            )
        import numpy as np  # here, for the command line knows this module before any model

        with foreign_code(partial(self.failure, node)):
            found = self.reference(inputs, attributes)
            several = found if isinstance(found, list | tuple) else (found,)
            outputs = tuple(map(np.asarray, several))
            for each in outputs:
                if each.dtype.kind in _NO_NUMBERS:
                    raise TypeError(f"its reference makes {each.dtype.name} values, not numbers")
        return outputs
