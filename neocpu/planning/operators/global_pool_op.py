"""Means, sums and sums of squares over all pixels: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tvm.ir import Var

from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, is_op, reduced_axes
from neocpu.planning.choice import Choice
from neocpu.planning.operators.layout_op import (
    Emitter,
    Function,
    LayoutOp,
    Read,
    Shape4,
    sole_reader,
)
from neocpu.planning.quantised.grids import Grid, means_of, stored_data
from neocpu.schedules.operators.pool import lower_global_pool

_KINDS: Final = {
    "relax.mean": "avg",
    "relax.nn.adaptive_avg_pool2d": "avg",
    "relax.sum": "sum",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlobalPoolOp(LayoutOp):
    """A mean or a sum over all pixels.

    Attributes
    ----------
    kind : str
        ``avg``, ``sum``, or ``squares`` for the sum of squares.
    grid : Grid or None
        The grid of the data, if it computes a mean.
    """

    takes_halves: ClassVar[bool] = True
    kind: str = "avg"
    grid: Grid | None = None

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return the squares that are only added up, as in norms of channels."""
        values = function.definitions().items()
        found = (_squares(function, value) for _, value in values if _kind(value) == "sum")
        return frozenset(var for var in found if var is not None)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GlobalPoolOp | None:
        """Find means and sums over height and width, and adaptive pooling to one pixel."""
        kind, dtype = _kind(value), dtype_of(value)
        if kind is None:
            return None
        data, inner = value.args[0], frozenset[Var]()
        squares = _squares(function, value) if kind == "sum" else None
        if squares is not None and squares in function.claimed_by(cls):
            product: Any = function.definition(squares)
            kind, data, inner = "squares", product.args[0], frozenset((squares,))
        source = feature_map_shape(data)
        if source is None or shape != (*source[:2], 1, 1) or var in function.claimed_by(cls):
            return None
        return cls(
            name=function.name("global_pool"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(data, source, dtype),),
            absorbed=inner,
            kind=kind,
            grid=function.grid(data) if kind == "avg" else None,
        )

    def describe(self, choice: Choice) -> str:
        """Return the shape, after the kind unless it is a mean."""
        text = LayoutOp.describe(self, choice)
        return text if self.kind == "avg" else f"{self.kind} {text}"

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """The model's type, and narrower data if it computes a mean."""
        return means_of(self.dtype, self.grid, self.in_halves and self.kind == "avg")

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the kernel."""
        form, shape, kind = choice.out_format, self.reads[0].shape, self.kind
        stored = stored_data(choice.in_format, self.grid)
        kernel = emitter.kernel(
            self.name,
            (kind, shape, form, stored),
            lambda: lower_global_pool(kind, shape, form, emitter.target, stored),
        )
        return emitter.call(kernel, list(reads), form, self.shape)


def _kind(value: Expr) -> str | None:
    """Return the kind of a mean or sum over all pixels, as in `GlobalPoolOp`; else None."""
    kind = next((kind for name, kind in _KINDS.items() if is_op(value, name)), None)
    if kind is None or is_op(value, "relax.nn.adaptive_avg_pool2d"):
        return kind
    return kind if value.attrs.keepdims and reduced_axes(value) == [2, 3] else None


def _squares(function: Function, total: Any) -> Var | None:
    """Return the squares of a feature map that only ``total`` reads; None if there are none."""
    var = total.args[0]
    value: Any = function.definition(var) if isinstance(var, Var) else None
    if not is_op(value, "relax.multiply", "relax.square"):
        return None
    same = all(arg.same_as(value.args[0]) for arg in value.args)
    known = isinstance(value.args[0], Var) and feature_map_shape(value.args[0]) is not None
    return var if same and known and sole_reader(function, var) is not None else None
