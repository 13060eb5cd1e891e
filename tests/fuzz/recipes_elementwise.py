"""Elementwise operators, and every operator that its schema alone describes well enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from tests.fuzz.graph_builder import BOOL, DTYPES, FLOAT, GraphBuilder, Value, broadcasts

Results = tuple[Value, ...] | None
_STRINGS = {"approximate": ["none", "tanh"], "direction": ["LEFT", "RIGHT"]}
_FLAGS = {"fmod", "detect_negative", "detect_positive", "to", "saturate"}
_NUMBERS = {"tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(bool)", "tensor(uint8)"} | {
    "tensor(int8)",
    "tensor(double)",
}


def partner(b: GraphBuilder, x: Value) -> Value:
    """Return a value that broadcasts with ``x``: itself, another, or a constant."""
    if b.chance(0.08):
        return x
    fit = b.choose(lambda v: v.dtype == x.dtype and broadcasts(v.shape, x.shape))
    if fit is not None and b.chance(0.6):
        return fit
    shape = [n if b.chance(0.5) else 1 for n in x.shape]
    return b.weight(*shape[b.rng.randint(0, x.rank) :], dtype=x.dtype)


def by_schema(b: GraphBuilder, op: str) -> Results:
    """Any operator: inputs of the types that its schema names, which broadcast; attributes too."""
    schema = b.schema(op)
    if schema is None:
        return None
    bound: dict[str, np.dtype] = {}
    values: list[Value | None] = []
    for formal in schema.inputs:
        if formal.option == OpSchema.FormalParameterOption.Optional and b.chance(0.5):
            values.append(None)
            continue
        key = formal.type_str
        if key not in bound:
            allowed = _allowed(schema, key)
            if not allowed:
                return None
            wanted = b.dtype()
            bound[key] = wanted if wanted in allowed else _preferred(b, allowed)
        variadic = formal.option == OpSchema.FormalParameterOption.Variadic
        for _ in range(b.rng.randint(1, 4) if variadic else 1):
            values.append(_operand(b, values, bound[key]))
    return b.add(op, *values, **_attributes(b, schema))


def _operand(b: GraphBuilder, values: list[Value | None], dtype: np.dtype) -> Value:
    first = next((value for value in values if value is not None), None)
    if first is None:
        return b.take(dtype=dtype)
    if first.dtype == dtype:
        return partner(b, first)
    fit = b.choose(lambda v: v.dtype == dtype and broadcasts(v.shape, first.shape))
    return fit or b.weight(*first.shape, dtype=dtype)


def _allowed(schema: OpSchema, key: str) -> list[np.dtype]:
    kinds = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    names = kinds.get(key, {key}) & _NUMBERS
    words = {"float": "float32", "double": "float64"}
    plain = {name.removeprefix("tensor(").removesuffix(")") for name in names}
    return [d for d in DTYPES if d.name in {words.get(name, name) for name in plain}]


def _preferred(b: GraphBuilder, allowed: list[np.dtype]) -> np.dtype:
    return FLOAT if FLOAT in allowed else b.rng.choice(allowed)


def _attributes(b: GraphBuilder, schema: OpSchema) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        if not attribute.required and b.chance(0.5):
            continue
        if attribute.type == OpSchema.AttrType.FLOAT:
            given[name] = b.rng.choice([0.125, 0.25, 0.5, 1.0, 2.0])
        elif attribute.type == OpSchema.AttrType.STRING and name in _STRINGS:
            given[name] = b.rng.choice(_STRINGS[name])
        elif attribute.type == OpSchema.AttrType.INT and name in _FLAGS:
            given[name] = b.rng.randint(0, 1)
    return given


def clip(b: GraphBuilder, op: str) -> Results:
    """Clip with both bounds, one or none."""
    x = b.take()
    low, high = (np.array(bound, FLOAT) for bound in (b.rng.choice([-1.0, 0.0]), 1.5))
    return b.add(
        op, x, min=low if b.chance(0.7) else None, max=high if b.chance(0.7) else None
    )  # fmt: skip


def divide(b: GraphBuilder, op: str) -> Results:
    """Div and Mod by numbers that are not zero."""
    x = b.take(dtype=FLOAT if op == "Div" and b.chance(0.8) else b.rng.choice(DTYPES[1:3]))
    divisor = np.abs(b.array([n if b.chance(0.5) else 1 for n in x.shape], x.dtype)) + 1
    return b.add(op, x, divisor.astype(x.dtype), fmod=1 if b.chance(0.2) else None)


def power(b: GraphBuilder, op: str) -> Results:
    """Pow with a constant exponent, mostly."""
    exponent = np.array(b.rng.choice([0.5, 1.0, 2.0, 3.0, -1.0, 1.5]), FLOAT)
    x = b.take()
    if exponent % 1 and (made := b.add("Abs", x)):
        x = made[0]
    return b.add(op, x, exponent if b.chance(0.8) else partner(b, x))


def where(b: GraphBuilder, op: str) -> Results:
    """Add a Where whose condition is an existing value or a comparison."""
    x = b.take()
    condition = b.choose(lambda v: v.dtype == BOOL and broadcasts(v.shape, x.shape))
    if condition is None and (made := b.add("Greater", x, partner(b, x))):
        condition = made[0]
    return b.add(op, condition, x, partner(b, x)) if condition else None


def positive(b: GraphBuilder, op: str) -> Results:
    """Functions that are real numbers for positive arguments only."""
    made = b.add("Abs", b.take())
    return b.add(op, made[0]) if made else None


def slopes(b: GraphBuilder, op: str) -> Results:
    """PRelu with a slope per channel, or one for all."""
    x = b.take(2, 5)
    shape = (x.shape[1], *[1] * (x.rank - 2)) if b.chance(0.7) else (1,)
    return b.add(op, x, b.weight(*shape))


RECIPES = {
    "Clip": clip,
    "Div": divide,
    "Mod": divide,
    "Pow": power,
    "Where": where,
    "Sqrt": positive,
    "Log": positive,
    "PRelu": slopes,
}
_NOT_BY_SCHEMA = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"),
    *("RandomUniformLike", "If", "Loop", "Scan", "Constant", "SequenceMap", "ImageDecoder"),
}
"""Not a function of their inputs, or with graphs in their attributes."""


def describable(taken: set[str]) -> list[str]:
    """Return the names of the other operators whose schemas name inputs of numbers."""
    found = []
    for schema in onnx.defs.get_all_schemas():
        typed = [_allowed(schema, formal.type_str) for formal in schema.inputs]
        if schema.domain == "" and typed and all(typed) and not schema.deprecated:
            found.append(schema.name)
    return sorted(set(found) - taken - _NOT_BY_SCHEMA)
