"""Apply a layout plan: template calls, packed weights, and transforms only where the plan has them.

The function is rebuilt binding by binding. Each feature map is kept in every layout in which it was
produced or to which it was transformed so far, and so transformed once for all its readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, Var

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.errors import UnsupportedError
from neocpu.ir.array_digests import ArrayDigests
from neocpu.ir.constants import StoredWeights, constant_value, stored_weights
from neocpu.ir.expressions import (
    OPAQUE,
    Expr,
    dtype_of,
    feature_map_shape,
    is_op,
    known_shape,
    static_shape,
)
from neocpu.ir.model_names import renamed_by
from neocpu.ir.uses import bindings
from neocpu.lowering.recipes import RECIPE, recipe_of
from neocpu.lowering.values import StoredValue, of_the_model, plain_value
from neocpu.lowering.weight_table import WeightTable
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.costs import CostModel
from neocpu.planning.memory_costs import halfway
from neocpu.planning.network_graph import wanted
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.layout_op import LayoutOp, Shape4
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.quantised.grids import STORED
from neocpu.planning.tokens import Tokens
from neocpu.planning.weight_origin import Packing, Unpacked, WeightOrigin
from neocpu.schedules.operators.concat import lower_concat
from neocpu.schedules.operators.layout_transform import lower_transform
from neocpu.schedules.vocabulary.layout import NCHW, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import (
    for_any_size,
    is_recording,
    traced,
    traces_of,
    with_formulas,
)

_NEVER_CALLED: Final = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("op_pattern", OPAQUE)


@dataclass(frozen=True, slots=True)
class Transform:
    """One layout transform of the rewritten network, and the name of its kernel."""

    source: Format
    destination: Format
    shape: Shape4
    cost: Cost
    kernel: str | None  # None for a change of type, which may fuse with its reader


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RewrittenModule:
    """A module whose ``main`` takes the inputs and then ``weights``, in this order."""

    mod: tvm.IRModule
    weights: tuple[NDArray[np.generic], ...]  # the values of the last parameters of ``main``
    unpacked: tuple[Unpacked | None, ...]  # what each was packed from, if known
    transforms: tuple[Transform, ...]
    kernels: Mapping[str, str]  # those of the plan's operators; equal ones share a kernel
    values: tuple[StoredValue, ...]  # the model's tensors that still exist
    renamed: Mapping[str, str]  # the model's names of variables that have other ones

    def origins(self, digests: ArrayDigests) -> tuple[WeightOrigin | None, ...]:
        return tuple(None if each is None else each.origin(digests) for each in self.unpacked)


def apply_plan(
    mod: tvm.IRModule,
    plan: LayoutPlan,
    costs: CostModel,
    outline: Callable[[str], tirx.PrimFunc | None] = lambda recipe: None,
    weights: WeightTable | None = None,
) -> RewrittenModule:
    """Return ``mod`` with every layout operator of ``plan`` in its chosen layout and scheme.

    - `outline`: returns the kernel of a recipe without its body, or None if the body is needed.
    - `weights`: an empty table to which packed weights are added.
    """
    return _Rewriter(mod, plan, costs, outline, weights or WeightTable()).run()


class _Rewriter:
    def __init__(
        self,
        mod: tvm.IRModule,
        plan: LayoutPlan,
        costs: CostModel,
        outline: Callable[[str], tirx.PrimFunc | None],
        weights: WeightTable,
    ) -> None:
        self._outline = outline
        self._func = mod["main"]
        self._plan = plan
        self._costs = costs
        self._in_registers = plan.network.in_registers
        others = {var: f for var, f in mod.functions_items() if var.name_hint != "main"}
        self._bb = relax.BlockBuilder(tvm.IRModule(others))
        self._weights = weights
        self._maps: dict[Var, dict[Format, Var]] = {}
        self._shapes: dict[Var, Shape4] = {}
        self._plain: dict[Var, Expr] = {}
        self._tuples: dict[Var, relax.Tuple] = {}
        self._unshaped: dict[Var, Var] = {}
        self._stored: dict[Var, StoredWeights] = {}
        self._kernels: dict[Any, Any] = {}
        self._kernel_names: dict[str, str] = {}
        self._transforms: list[Transform] = []
        self._name = ""

    def run(self) -> RewrittenModule:
        ops = {
            op.result: (op, choice)
            for op, choice in zip(self._plan.network.ops, self._plan.choices, strict=True)
        }
        network = self._plan.network
        plain: dict[Var, DenseOp | ProductOp] = {op.result: op for op in network.dense}
        plain.update((op.result, op) for op in network.products)
        absorbed = {var for op in network.ops for var in op.absorbed}
        absorbed |= {var for op in plain.values() for var in op.absorbed}
        absorbed |= {var for tokens in network.tokens.values() for var in tokens.absorbed}
        params = list(self._func.params)
        self._plain.update((param, param) for param in params)
        values: list[StoredValue | None] = []
        with self._bb.function("main"):
            with self._bb.dataflow():
                for binding in bindings(self._func):
                    self._name = str(binding.var.name)
                    if binding.var in ops:
                        self._emit_op(*ops[binding.var])
                    elif binding.var in plain:
                        self._plain[binding.var] = plain[binding.var].emit(self)
                    elif binding.var in network.tokens:
                        self._emit_tokens(binding.var, network.tokens[binding.var])
                    elif stored := stored_weights(binding.value, {}):
                        self._stored[binding.var] = stored
                    elif isinstance(binding.value, relax.Tuple):
                        self._tuples[binding.var] = binding.value
                    elif binding.var not in absorbed:
                        self._plain[binding.var] = self._emit_plain(binding.value)
                    values.append(self._stored_value(binding.var, *ops.get(binding.var, ())))
                result = self._bb.emit_output(self._substitute(self._func.body.body))
            self._bb.emit_func_output(result, [*params, *self._weights.params])
        mod = self._bb.finalize()
        main = mod["main"].with_attr("num_input", len(params))
        mod.update_func(mod.get_global_var("main"), main)
        return RewrittenModule(
            mod=mod,
            weights=tuple(self._weights.arrays),
            unpacked=tuple(self._weights.unpacked),
            transforms=tuple(self._transforms),
            kernels=self._kernel_names,
            values=of_the_model(values, self._func),
            renamed=renamed_by(self._func),
        )

    @property
    def target(self) -> CpuTarget:
        return self._costs.target

    @property
    def threads(self) -> int:
        return self._costs.threads

    def weight(
        self,
        array: NDArray[np.generic] | Packing,
        key: Any = None,
        origin: Unpacked | None = None,
    ) -> Var:
        try:
            return self._weights.add(array, key, origin)
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} ('{self._name}'): give a single shape") from None

    def emit(self, value: Expr, name: str | None = None) -> Var:
        return self._bb.emit(value, name_hint=name or self._name)

    def _emit_plain(self, value: Expr) -> Var:
        """Emit a layout-dependent binding as it is, but a concat by the kernel that copies."""
        new = self._substitute(value)
        parts = new.args[0] if is_op(new, "relax.concat") else None
        if not isinstance(parts, relax.Tuple) or dtype_of(value) != "float32":
            return self.emit(new)
        form = Format(NCHW, dtype_of(value))
        shapes = [static_shape(field) or () for field in parts.fields]
        shape = known_shape(value)
        axis = int(new.attrs.axis) % len(shape)
        kernel = self.kernel(
            "concat",
            ("concat", tuple(shapes), axis, form),
            lambda key: lower_concat(key[1], axis, self._costs.target, form),
        )
        return self._call(kernel, list(parts.fields), shape, form.dtype)

    def plain(self, var: Var, shape: tuple[int, ...]) -> Var:
        return self._reshaped(self._substitute(var), shape)

    def _reshaped(self, var: Var, shape: tuple[int, ...]) -> Var:
        """Return ``var`` in another shape, by one reshape: of two, FuseOps makes a copy."""
        source = self._unshaped.get(var, var)
        if shape in (static_shape(var), static_shape(source)):
            return var if static_shape(var) == shape else source
        reshaped = self.emit(relax.op.reshape(source, shape))
        self._unshaped[reshaped] = source
        return reshaped

    def _substitute(self, value: Expr) -> Expr:
        if isinstance(value, Var):
            if value in self._tuples:
                # Named tuples are resolved where they are read. A tuple that only layout operators
                # read must not cause NCHW copies of its fields.
                return self._substitute(self._tuples[value])
            if value in self._stored:  # the reader computes with real numbers alone
                return self.weight(self._stored[value].real, value)
            if value in self._plain:
                return self._plain[value]
            return self._feature_map(value, Format(NCHW, dtype_of(value)))
        if isinstance(value, GenericConst):
            return self._constant(value)
        if isinstance(value, Call):
            args = [self._substitute(arg) for arg in value.args]
            return Call(value.op, args, value.attrs, value.ty_args)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._substitute(field) for field in value.fields])
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self._substitute(value.tuple_value), value.index)
        return value

    def _constant(self, const: GenericConst) -> Expr:
        array = constant_value(const)
        if array is None or array.size <= 1:
            return const
        return self.weight(array, const)

    def _feature_map(self, var: Var, form: Format) -> Var:
        versions = self._maps.setdefault(var, {})
        if form in versions:
            return versions[form]
        if not versions:
            plain = Format(NCHW, dtype_of(var))
            versions[plain] = self._plain[var]
            if form == plain:
                return versions[plain]
        source = next(iter(versions))
        if (via := halfway(source, form)) is not None:
            self._feature_map(var, via)
            source = via
        shape = self._shapes.get(var) or feature_map_shape(var)
        assert shape is not None, var
        cost = self._costs.transform(shape, source, form, from_registers=var in self._in_registers)
        # It has a name of its own, because kernels are known by the model's tensors that they make.
        name = f"{var.name}_{form.layout}"
        if source.dtype != form.dtype:
            self._transforms.append(Transform(source, form, shape, cost, None))
            changed = self._changed(var, versions[source], form.dtype)
            versions[form] = self.emit(changed, f"{name}_{form.dtype}")
            return versions[form]
        kernel = self.kernel(
            f"transform_{source.layout}_to_{form.layout}",
            (shape, source, form),
            lambda key: lower_transform(key[0], source, form, self._costs.target),
        )
        self._transforms.append(Transform(source, form, shape, cost, kernel.name_hint))
        versions[form] = self.call(kernel, [versions[source]], form, shape, name)
        return versions[form]

    def _changed(self, var: Var, data: Var, dtype: str) -> Expr:
        if BFLOAT16 in (dtype, dtype_of(data)):
            return relax.op.astype(data, dtype)
        grid = self._plan.network.grids[var]
        return grid.quantise(data) if dtype == STORED else grid.dequantise(data)

    def _emit_tokens(self, var: Var, tokens: Tokens) -> None:
        """Take rows as another format of a feature map, or that format of the map as rows."""
        if tokens.made:
            rows, shape = self._feature_map(tokens.source, tokens.form), known_shape(var)
            self._plain[var] = self._reshaped(rows, shape)
            return
        rows = self.plain(tokens.source, tokens.form.shape(tokens.shape))
        self._maps[var] = {tokens.form: rows}
        self._shapes[var] = tokens.shape

    def _emit_op(self, op: LayoutOp, choice: Choice) -> None:
        reads = [self._feature_map(read.var, wanted(read, choice)) for read in op.reads]
        result = op.emit(self, choice, reads)
        self._maps[op.result] = {choice.out_format: result}
        self._shapes[op.result] = op.shape
        if self._plan.via_nchw:
            plain = Format(NCHW, op.dtype)
            self._maps[op.result] = {plain: self._feature_map(op.result, plain)}

    def _stored_value(
        self, var: Var, op: LayoutOp | None = None, choice: Choice | None = None
    ) -> StoredValue | None:
        if var not in self._maps:
            holder = self._plain.get(var)
            return plain_value(var, self._unshaped.get(holder, holder))
        form, holder = next(iter(self._maps[var].items()))
        return StoredValue(
            name=str(var.name),
            variable=str(holder.name),
            shape=self._shapes[var],
            form=form,
            grid=self._plan.network.grids.get(var) if form.dtype == STORED else None,
            error_factor=1.0 if op is None or choice is None else op.error_factor(choice),
        )

    def kernel(self, name: str, key: Any, build: Callable[[Any], Any]) -> Any:
        key = traced(name, key)
        known = (key, traces_of(key))
        if known not in self._kernels:
            self._kernels[known] = self._bb.add_func(self._made(key, build), name)
        self._kernel_names[name] = self._kernels[known].name_hint
        return self._kernels[known]

    def _made(self, key: Any, build: Callable[[Any], Any]) -> tirx.PrimFunc:
        if is_recording():
            return _NEVER_CALLED.with_attr("number", len(self._kernels))  # equal ones become one
        recipe = None if for_any_size() else recipe_of(key, build, self.target, self.threads)
        if recipe is not None and (outline := self._outline(recipe)) is not None:
            return outline
        func = with_formulas(key, lambda: build(key))
        func = func.without_attr("global_symbol").with_attr("op_pattern", OPAQUE)
        return func if recipe is None else func.with_attr(RECIPE, recipe)

    def call(
        self, kernel: Any, args: list[Expr], form: Format, shape: Shape4, name: str | None = None
    ) -> Var:
        return self._call(kernel, args, form.shape(shape), form.dtype, name)

    def call_rows(
        self,
        kernel: Any,
        args: list[Expr],
        rows: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: str,
    ) -> Var:
        return self._reshaped(self._call(kernel, args, rows, dtype), shape)

    def _call(
        self,
        kernel: Any,
        args: list[Expr],
        shape: tuple[int, ...],
        dtype: str,
        name: str | None = None,
    ) -> Var:
        assert math.prod(shape) > 0, shape
        out = relax.TensorType(shape, dtype)
        return self.emit(relax.call_tir(kernel, relax.Tuple(args), out), name)
