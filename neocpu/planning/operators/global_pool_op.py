"""Means over all pixels: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.ir import Var

from neocpu.planning.choice import Choice
from neocpu.planning.grids import Grid, means_of, stored_data
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import Expr, dtype_of, feature_map_shape, is_op
from neocpu.schedules.operators.pool import lower_global_pool


@dataclass(frozen=True, slots=True, eq=False)
class GlobalPoolOp(LayoutOp):
    """A mean over all pixels.

    Attributes
    ----------
    grid : Grid or None
        Of what it reads.
    """

    grid: Grid | None = None

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GlobalPoolOp | None:
        """Find means over height and width, and adaptive average pooling to one pixel."""
        if not is_op(value, "relax.mean", "relax.nn.adaptive_avg_pool2d"):
            return None
        source = feature_map_shape(value.args[0])
        if source is None or shape != (*source[:2], 1, 1):
            return None
        if is_op(value, "relax.mean"):
            axes = sorted(int(axis) % 4 for axis in value.attrs.axis or ())
            if axes != [2, 3]:
                return None
        dtype = dtype_of(value)
        reads = (Read(value.args[0], source, dtype),)
        grid = function.grid(value.args[0])
        return cls(function.name("global_pool"), var, shape, dtype, reads, frozenset(), grid)

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """As the model has it, and of integers too."""
        return means_of(self.dtype, self.grid)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the mean's kernel."""
        form, shape = choice.out_format, self.reads[0].shape
        stored = stored_data(choice.in_format, self.grid)
        kernel = emitter.kernel(
            self.name,
            ("avg", shape, form, stored),
            lambda: lower_global_pool("avg", shape, form, emitter.target, stored),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
