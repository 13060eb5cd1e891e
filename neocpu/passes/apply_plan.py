"""Apply a layout plan: template calls, packed weights, and transforms only where the plan has them.

The function is rebuilt binding by binding. Each feature map is kept in the layouts it was produced
in or transformed to so far: what several operators read in one layout is transformed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.passes.weight_table import WeightTable
from neocpu.planning.costs import Choice, CostModel
from neocpu.planning.extract import feature_map_shape
from neocpu.planning.memory_costs import Cost
from neocpu.planning.network import (
    ConcatOp,
    ConvOp,
    DenseOp,
    ElementwiseOp,
    GatherOp,
    GlobalPoolOp,
    LayoutOp,
    PoolOp,
    Shape4,
)
from neocpu.planning.network_graph import wanted
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.relax_utils import (
    OPAQUE,
    Expr,
    bindings,
    constant_value,
    dtype_of,
    is_op,
    op_name,
    static_shape,
)
from neocpu.schedules import registry
from neocpu.schedules.operators.concat import lower_concat
from neocpu.schedules.operators.dense import lower_dense
from neocpu.schedules.operators.dense import pack_weights as pack_dense_weights
from neocpu.schedules.operators.gather import lower_gather
from neocpu.schedules.operators.layout_transform import lower_transform
from neocpu.schedules.operators.pool import lower_global_pool, lower_pool
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout


@dataclass(frozen=True, slots=True)
class Transform:
    """One layout transform of the rewritten network, and the name of its kernel."""

    source: DataLayout
    destination: DataLayout
    shape: Shape4
    cost: Cost
    kernel: str


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenModule:
    """A module whose ``main`` takes the inputs and then ``weights``, in this order.

    ``kernels`` names the kernel of each of the plan's operators that has one; equal ones share it.
    """

    mod: tvm.IRModule
    weights: tuple[NDArray[np.generic], ...]
    transforms: tuple[Transform, ...]
    kernels: Mapping[str, str]


def apply_plan(mod: tvm.IRModule, plan: LayoutPlan, costs: CostModel) -> RewrittenModule:
    """Return ``mod`` with every layout operator of ``plan`` in its chosen layout and scheme."""
    return _Rewriter(mod, plan, costs).run()


class _Rewriter:
    def __init__(self, mod: tvm.IRModule, plan: LayoutPlan, costs: CostModel) -> None:
        self._func = mod["main"]
        self._plan = plan
        self._costs = costs
        self._in_registers = plan.network.in_registers
        others = {var: f for var, f in mod.functions_items() if var.name_hint != "main"}
        self._bb = relax.BlockBuilder(tvm.IRModule(others))
        self._weights = WeightTable()
        self._maps: dict[Var, dict[DataLayout, Var]] = {}
        self._shapes: dict[Var, Shape4] = {}
        self._plain: dict[Var, Expr] = {}
        self._tuples: dict[Var, relax.Tuple] = {}
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
        dense = {op.result: op for op in network.dense}
        absorbed = {var for op in network.ops for var in op.absorbed}
        absorbed |= {var for layer in network.dense for var in layer.absorbed}
        params = list(self._func.params)
        self._plain.update((param, param) for param in params)
        with self._bb.function("main"):
            with self._bb.dataflow():
                for binding in bindings(self._func):
                    self._name = str(binding.var.name)
                    if binding.var in ops:
                        self._emit_op(*ops[binding.var])
                    elif binding.var in dense:
                        self._plain[binding.var] = self._emit_dense(dense[binding.var])
                    elif isinstance(binding.value, relax.Tuple):
                        self._tuples[binding.var] = binding.value
                    elif binding.var not in absorbed:
                        self._plain[binding.var] = self._emit_plain(binding.value)
                result = self._bb.emit_output(self._substitute(self._func.body.body))
            self._bb.emit_func_output(result, [*params, *self._weights.params])
        mod = self._bb.finalize()
        main = mod["main"].with_attr("num_input", len(params))
        mod.update_func(mod.get_global_var("main"), main)
        weights, transforms = tuple(self._weights.arrays), tuple(self._transforms)
        return RewrittenModule(mod, weights, transforms, self._kernel_names)

    def _emit(self, value: Expr, name: str | None = None) -> Var:
        """Bind ``value``, under ``name`` or that of the variable whose binding is rewritten."""
        return self._bb.emit(value, name_hint=name or self._name)

    def _emit_plain(self, value: Expr) -> Var:
        """Emit a layout-dependent binding: as it is, but a concat by the kernel that copies."""
        new = self._substitute(value)
        parts = new.args[0] if is_op(new, "relax.concat") else None
        if not isinstance(parts, relax.Tuple) or dtype_of(value) != "float32":
            return self._emit(new)
        shapes = [static_shape(field) or () for field in parts.fields]
        shape = static_shape(value)
        assert shape is not None
        axis = int(new.attrs.axis) % len(shape)
        kernel = self._kernel(
            "concat",
            ("concat", tuple(shapes), axis),
            lambda: lower_concat(shapes, axis, self._costs.target),
        )
        return self._call(kernel, list(parts.fields), shape)

    def _emit_dense(self, op: DenseOp) -> Var:
        workload, target, threads = op.workload, self._costs.target, self._costs.threads
        kernel = self._kernel(op.name, workload, lambda: lower_dense(workload, target, threads))
        rows = (workload.m, workload.n)
        args = [self._reshaped(self._substitute(op.data), (workload.m, workload.k))]
        args.append(self._weights.add(pack_dense_weights(op.weights, workload, target, threads)))
        for operand in op.operands:
            if isinstance(operand, Var):
                args.append(self._reshaped(self._substitute(operand), rows))
            else:
                args.append(self._weights.add(operand))
        shape = static_shape(op.result)
        assert shape is not None
        return self._reshaped(self._call(kernel, args, rows), shape)

    def _reshaped(self, var: Var, shape: tuple[int, ...]) -> Var:
        return var if static_shape(var) == shape else self._emit(relax.op.reshape(var, shape))

    def _substitute(self, value: Expr) -> Expr:
        """Return ``value`` over the new variables: NCHW feature maps, weights as parameters."""
        if isinstance(value, Var):
            if value in self._tuples:
                # Named tuples are resolved where they are read: one that only layout operators
                # read must not ask for NCHW copies of its fields.
                return self._substitute(self._tuples[value])
            return self._plain[value] if value in self._plain else self._feature_map(value, NCHW)
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
        return self._weights.add(array, const)

    def _feature_map(self, var: Var, layout: DataLayout) -> Var:
        """Return ``var`` in ``layout``, transforming it the first time it is asked for there."""
        versions = self._maps.setdefault(var, {})
        if layout in versions:
            return versions[layout]
        if not versions:
            versions[NCHW] = self._plain[var]
            if layout == NCHW:
                return versions[NCHW]
        source = next(iter(versions))
        shape = self._shapes.get(var) or feature_map_shape(var)
        assert shape is not None, var
        kernel = self._kernel(
            f"transform_{source}_to_{layout}",
            (shape, source, layout),
            lambda: lower_transform(shape, source, layout, self._costs.target),
        )
        cost = self._costs.transform(
            shape, source, layout, from_registers=var in self._in_registers
        )
        self._transforms.append(Transform(source, layout, shape, cost, kernel.name_hint))
        # Under a name of its own: kernels are known by the tensors of the model that they make.
        versions[layout] = self._call(
            kernel, [versions[source]], layout.shape(shape), f"{var.name}_{layout}"
        )
        return versions[layout]

    def _emit_op(self, op: LayoutOp, choice: Choice) -> None:
        reads = [self._feature_map(read.var, wanted(read, choice)) for read in op.reads]
        emit: dict[type, Callable[..., Var]] = {
            ConvOp: self._emit_conv,
            PoolOp: self._emit_pool,
            GlobalPoolOp: self._emit_global_pool,
            ConcatOp: self._emit_concat,
            GatherOp: self._emit_gather,
            ElementwiseOp: self._emit_elementwise,
        }
        result = emit[type(op)](op, choice, reads)
        self._maps[op.result] = {choice.out_layout: result}
        self._shapes[op.result] = op.shape
        if self._plan.via_nchw:
            self._maps[op.result] = {NCHW: self._feature_map(op.result, NCHW)}

    def _emit_conv(self, op: ConvOp, choice: Choice, reads: list[Var]) -> Var:
        scheme, target = choice.scheme, self._costs.target
        assert scheme is not None
        kernel = self._kernel(
            op.name,
            (op.workload, scheme),
            lambda: registry.lower(op.workload, scheme, target, self._costs.threads),
        )
        args = [reads[0], self._weights.add(registry.pack_weights(op.weights, op.workload, scheme))]
        feature_maps = iter(reads[1:])
        for layout, operands in (
            (scheme.in_layout, op.before),
            (scheme.out_layout, op.operands),
        ):
            for operand in operands:
                if isinstance(operand, Var):
                    args.append(next(feature_maps))
                else:
                    args.append(self._weights.add(layout.pack_channels(operand)))
        return self._call(kernel, args, scheme.out_layout.shape(op.shape))

    def _emit_pool(self, op: PoolOp, choice: Choice, reads: list[Var]) -> Var:
        kernel = self._kernel(
            op.name,
            (op.workload, choice.out_layout),
            lambda: lower_pool(op.workload, choice.out_layout, self._costs.target),
        )
        return self._call(kernel, reads, choice.out_layout.shape(op.shape))

    def _emit_global_pool(self, op: GlobalPoolOp, choice: Choice, reads: list[Var]) -> Var:
        shape = op.reads[0].shape
        kernel = self._kernel(
            op.name,
            (op.kind, shape, choice.out_layout),
            lambda: lower_global_pool(op.kind, shape, choice.out_layout, self._costs.target),
        )
        return self._call(kernel, reads, choice.out_layout.shape(op.shape))

    def _emit_concat(self, op: ConcatOp, choice: Choice, reads: list[Var]) -> Var:
        layout = choice.out_layout
        shapes = tuple(read.shape for read in op.reads)
        kernel = self._kernel(
            op.name,
            ("concat", shapes, layout),
            lambda: lower_concat(shapes, 1, self._costs.target, layout),
        )
        return self._call(kernel, reads, layout.shape(op.shape))

    def _emit_gather(self, op: GatherOp, choice: Choice, reads: list[Var]) -> Var:
        layout = choice.out_layout
        shapes = tuple(read.shape for read in op.reads)
        kernel = self._kernel(
            op.name,
            ("gather", shapes, op.slices, layout),
            lambda: lower_gather(shapes, op.slices, self._costs.target, layout),
        )
        return self._call(kernel, reads, layout.shape(op.shape))

    def _emit_elementwise(self, op: ElementwiseOp, choice: Choice, reads: list[Var]) -> Var:
        layout = choice.out_layout
        feature_maps = iter(reads)
        args: list[Expr] = []
        for arg in op.call.args:
            constant = constant_value(arg)
            if constant is not None and constant.size > 1:
                args.append(self._weights.add(layout.pack(constant), (arg, layout)))
            elif isinstance(arg, Var):
                args.append(next(feature_maps))
            else:
                args.append(arg)
        assert op_name(op.call) is not None
        return self._emit(Call(op.call.op, args, op.call.attrs, op.call.ty_args))

    def _kernel(self, name: str, key: Any, build: Callable[[], Any]) -> Any:
        """Return the global variable of a kernel, built once for equal keys."""
        if key not in self._kernels:
            func = build().without_attr("global_symbol").with_attr("op_pattern", OPAQUE)
            self._kernels[key] = self._bb.add_func(func, name)
        self._kernel_names[name] = self._kernels[key].name_hint
        return self._kernels[key]

    def _call(
        self, kernel: Any, args: list[Expr], shape: tuple[int, ...], name: str | None = None
    ) -> Var:
        assert math.prod(shape) > 0, shape
        out = relax.TensorType(shape, "float32")
        return self._emit(relax.call_tir(kernel, relax.Tuple(args), out), name)
