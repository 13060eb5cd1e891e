"""The type by which another package describes an operator that it adds."""

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

_NO_NUMBERS: Final = "OSUMm"  # the kinds of numpy arrays that hold objects, text and times


@dataclass(frozen=True, slots=True)
class CustomOperator:
    """An operator of ONNX models that another package adds.

    Attributes
    ----------
    domain, name : str
        The domain and type of its nodes. The domain is not ONNX's own.
    compute : callable
        A function that takes the inputs and the node's attributes. The inputs are a sequence of
        ``te.Tensor`` with static shapes, and None for an input that is left out. The attributes are
        numbers, strings, lists of these, and arrays. It returns a ``te.Tensor`` for each output,
        alone or in a sequence; these are scheduled and fused with other operators. Or it returns a
        scheduled ``tirx.PrimFunc``, which takes buffers for the inputs that are present and then
        for the outputs, and runs as it is. The outputs' shapes and types follow from the returned
        value.
    reference : callable, optional
        The same computation in numpy, for verification. It takes the inputs as arrays, and the
        attributes; it returns an array, or a sequence of them. It may get float64 in place of
        float32 inputs, and then returns float64. Without a reference, models with this operator
        only compile with ``--no-verify``.

    Raises
    ------
    UsageError
        The name or the domain cannot be that of a custom operator.
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
        module: str = getattr(self.compute, "__module__", None) or "?"
        return module.partition(".")[0]

    def failure(self, node: str, error: BaseException) -> UnsupportedError:
        """Return an exception whose message describes a failure in one line.

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
        """Return the results of its reference.

        Raises
        ------
        UnsupportedError
            There is no reference, or it fails, or its results are no numbers.
        """
        if self.reference is None:
            raise UnsupportedError(
                f"custom operator {self.domain}::{self.name} of package {self.package} has no "
                "reference"
            )
        import numpy as np  # here, because the command line imports this module for every command

        with foreign_code(partial(self.failure, node)):
            found = self.reference(inputs, attributes)
            several = found if isinstance(found, list | tuple) else (found,)
            outputs = tuple(map(np.asarray, several))
            for each in outputs:
                if each.dtype.kind in _NO_NUMBERS:
                    raise TypeError(f"its reference makes {each.dtype.name} values, not numbers")
        return outputs
