"""Simplify an imported model: the rules of `neocpu.graph`, in order, to a fixpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from itertools import cycle, islice

import tvm
from tvm import relax

from neocpu.foundation.errors import UnsupportedError
from neocpu.graph.rule import apply_rules
from neocpu.graph.table import PHASES
from neocpu.ir.expressions import shape_values
from neocpu.ir.uses import bindings, count_uses


def eliminate_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without trivial or unused bindings and functions; itself if it has none."""
    uses = count_uses(mod["main"])
    if len(mod.functions) == 1 and all(
        each.var in uses and not isinstance(each.value, tvm.ir.Var)
        for each in bindings(mod["main"])
    ):
        return mod
    mod = relax.transform.CanonicalizeBindings()(mod)
    return relax.transform.DeadCodeElimination(["main"])(mod)


#: One rule can enable an earlier one; two rounds are enough for all known networks.
MAX_ROUNDS = 4


def simplify(
    mod: tvm.IRModule, without: Collection[str] = (), fired: Counter[str] | None = None
) -> tvm.IRModule:
    """Return an equivalent module with fewer and more uniform operators.

    ``mod`` is a result of ``tvm.relax.frontend.onnx.from_onnx`` with static shapes, weights as
    constants, and ``main`` as its one public function, whose parameters and results stay. `without`
    has the names of rules that are not applied, and `fired` counts how often each was. Convolutions
    of the result are followed by at most one bias ``add`` of a ``(1, C, 1, 1)`` constant.
    Raises UnsupportedError if the shape of a tensor depends on data, even if no output has that
    shape: data would decide which memory a kernel writes.
    """
    phases = [[rule for rule in phase if rule.name not in without] for phase in PHASES]
    steps: list[Callable[[tvm.IRModule], tvm.IRModule]]
    steps = [partial(apply_rules, rules=phase, fired=fired) for phase in phases]
    steps.append(eliminate_dead_code)
    mod = eliminate_dead_code(mod)
    unchanged = 0  # consecutive steps up to now that left the module as it was
    for step in islice(cycle(steps), MAX_ROUNDS * len(steps)):
        before, mod = mod, step(mod)
        unchanged = unchanged + 1 if mod.same_as(before) else 0
        if unchanged == len(steps):
            break
    _require_static_shapes(mod["main"])
    return mod


def _require_static_shapes(main: relax.Function) -> None:
    names = [binding.var.name for binding in bindings(main) if not _is_static(binding.var.ty)]
    if names:
        # Most names are from ONNX; TVM numbers the tensors that it makes in between.
        name = next((name for name in names if not re.fullmatch(r"lv\d*", name)), names[0])
        raise UnsupportedError(
            f"the shape of '{name}' depends on the data; only static shapes are supported"
        )


def _is_static(ty: relax.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_is_static, ty.fields))
    if not isinstance(ty, relax.TensorType):
        return True
    return ty.shape is not None and shape_values(ty.shape) is not None
