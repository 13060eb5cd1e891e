"""The elementwise steps that convolutions and dense layers can fuse, with their definitions.

An entry of `STEP_KINDS` has everything about a step: its operand, its Relax operator, the
expression that TE computes and the one that numpy checks. No other code names a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

NO_OPERAND, PER_CHANNEL, TENSOR, PER_IMAGE_CHANNEL = "none", "channel", "tensor", "image channel"
"""The operand of a step: none, ``(C,)``, a tensor of the same shape, or ``(N, C, 1, 1)``."""


def _no_arguments(call: Any) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """A kind of step.

    - `operand`: one of the four kinds of operands above.
    - `relax`: its Relax operator, which two kinds with different operands may share.
    - `emit`: ``emit(x, operand element or None, *arguments)`` returns one element's TIR expression.
    - `compute`: ``compute(x, *operand, *arguments)`` computes whole arrays in numpy.
    - `arguments`: returns the scalar arguments of a call of ``relax``.
    - `after`, `before`: whether a convolution may apply the step to its output, and to its input.
    - `cycles`: the cycles per vector beyond a simple step's, for polynomials and quotients.
    """

    operand: str
    relax: str
    emit: Callable[..., Any]
    compute: Callable[..., Any]
    arguments: Callable[[Any], tuple[float, ...]] = _no_arguments
    after: bool = True
    before: bool = True
    cycles: float = 0.0


_LARGEST_ROUNDED: Final = 2.0**30


def _tirx() -> Any:
    from tvm import tirx

    return tirx


def _const(value: float, like: Any) -> Any:
    return _tirx().const(value, like.ty.dtype)


def _emit_clip(x: Any, _: None, low: float, high: float) -> Any:
    return _tirx().max(_tirx().min(x, _const(high, x)), _const(low, x))


def _emit_gelu(x: Any, _: None) -> Any:
    return x * _const(0.5, x) * (_const(1.0, x) + _tirx().erf(x * _const(0.5**0.5, x)))


# tanh(y) + 1 = 2 sigmoid(2 y), with y = sqrt(2 / pi) (x + 0.044715 x^3).
_GELU_LINEAR: Final = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC: Final = 0.044715 * _GELU_LINEAR


def _emit_gelu_tanh(x: Any, _: None) -> Any:
    gate = x * (_const(_GELU_LINEAR, x) + x * x * _const(_GELU_CUBIC, x))
    return x * _tirx().sigmoid(gate)


def _emit_hard_swish(x: Any, _: None) -> Any:
    gate = _tirx().max(_tirx().min(x + _const(3.0, x), _const(6.0, x)), _const(0.0, x))
    return x * (gate * _const(1 / 6, x))  # six times a large x would be infinite


def _emit_mish(x: Any, _: None) -> Any:
    """``tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)``; beyond 20 it is 1."""
    e = _tirx().exp(_tirx().min(x, _const(20.0, x)))
    n = e * (e + _const(2.0, x))
    return x * (n / (n + _const(2.0, x)))


def _emit_round(x: Any, _: None) -> Any:
    # TVM's own nearbyint is not vectorised.
    return _tirx().call_llvm_pure_intrin(x.ty.dtype, "llvm.nearbyint", x)


def _emit_quantise(x: Any, _: None, zero: float) -> Any:
    """Round to 32 bits in one instruction and saturate, or values too large for that would become
    the most negative number; storing bytes saturates by itself.
    """
    x = _tirx().min(x, _const(_LARGEST_ROUNDED, x))
    low, high, middle = (_tirx().const(int(number), "int32") for number in (0, 255, zero))
    whole = _tirx().call_llvm_pure_intrin("int32", "llvm.lrint", x) + middle
    return _tirx().max(_tirx().min(whole, high), low).astype(x.ty.dtype)


def _emit_leaky(x: Any, slope: Any) -> Any:
    return _tirx().Select(x > _const(0.0, x), x, x * slope)


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):  # for large numbers, whose sigmoid is 0
        return 1 / (1 + np.exp(-x))


def _leaky(x: Any, slope: Any) -> Any:
    return np.where(x > 0, x, x * slope)


def _rescaled(x: Any, scale: Any) -> Any:
    return x.astype("float32") * scale


def _quantised(x: Any, zero: float) -> Any:
    return np.clip(np.rint(x) + x.dtype.type(zero), 0, 255)


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(x: Any) -> Any:
    return x * (1 + _erf(x * math.sqrt(0.5)).astype(x.dtype)) / 2


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(_GELU_LINEAR * x + _GELU_CUBIC * x**3)


def _hard_swish(x: Any) -> Any:
    return x * (np.clip(x + 3, 0, 6) / 6)


def _mish(x: Any) -> Any:
    return x * np.tanh(np.logaddexp(0, x))


def _clip_bounds(call: Any) -> tuple[float, ...]:
    inner = (arg.value if hasattr(arg, "value") else arg for arg in call.args[1:3])
    return tuple(float(one.value if hasattr(one, "value") else one) for one in inner)


def _added(x: Any, y: Any) -> Any:
    return x + y


def _multiplied(x: Any, y: Any) -> Any:
    return x * y


STEP_KINDS: Final[Mapping[str, StepKind]] = {
    "bias_add": StepKind(operand=PER_CHANNEL, relax="relax.add", emit=_added, compute=_added),
    "scale": StepKind(
        operand=PER_CHANNEL, relax="relax.multiply", emit=_multiplied, compute=_multiplied
    ),
    # This applies to integer sums; the following steps are in float32.
    "rescale": StepKind(
        operand=PER_CHANNEL, relax="", emit=_rescaled, compute=_rescaled, before=False
    ),
    # Rounds half to even, as ONNX's QuantizeLinear does.
    "round": StepKind(
        operand=NO_OPERAND, relax="relax.round", emit=_emit_round, compute=np.rint, before=False
    ),
    # The integer from 0 to 255 that is stored, with a zero point; it stays a float.
    "quantise": StepKind(
        operand=NO_OPERAND, relax="", emit=_emit_quantise, compute=_quantised, before=False
    ),
    "prelu": StepKind(
        operand=PER_CHANNEL, relax="relax.nn.prelu", emit=_emit_leaky, compute=_leaky
    ),
    # It cannot precede a convolution: a second tensor of the input's shape would have to be packed
    # too.
    "add": StepKind(operand=TENSOR, relax="relax.add", emit=_added, compute=_added, before=False),
    "multiply": StepKind(
        operand=TENSOR, relax="relax.multiply", emit=_multiplied, compute=_multiplied, before=False
    ),
    "relu": StepKind(
        operand=NO_OPERAND,
        relax="relax.nn.relu",
        emit=lambda x, _: _tirx().max(x, _const(0.0, x)),
        compute=lambda x: np.maximum(x, 0),
    ),
    "clip": StepKind(
        operand=NO_OPERAND,
        relax="relax.clip",
        emit=_emit_clip,
        compute=np.clip,
        arguments=_clip_bounds,
    ),
    "leaky_relu": StepKind(
        operand=NO_OPERAND,
        relax="relax.nn.leakyrelu",
        emit=lambda x, _, slope: _emit_leaky(x, _const(slope, x)),
        compute=_leaky,
        arguments=lambda call: (float(call.attrs.alpha),),
    ),
    "sigmoid": StepKind(
        operand=NO_OPERAND,
        relax="relax.sigmoid",
        emit=lambda x, _: _tirx().sigmoid(x),
        compute=_sigmoid,
        cycles=5.7,
    ),
    "silu": StepKind(
        operand=NO_OPERAND,
        relax="relax.nn.silu",
        emit=lambda x, _: x * _tirx().sigmoid(x),
        compute=lambda x: x * _sigmoid(x),
        cycles=7.0,  # measured on a Zen 5; those of the other steps follow from their instructions
    ),
    "tanh": StepKind(
        operand=NO_OPERAND,
        relax="relax.tanh",
        emit=lambda x, _: _tirx().tanh(x),
        compute=np.tanh,
        cycles=5.7,
    ),
    "gelu": StepKind(
        operand=NO_OPERAND, relax="relax.nn.gelu", emit=_emit_gelu, compute=_gelu, cycles=10.5
    ),
    "gelu_tanh": StepKind(
        operand=NO_OPERAND,
        relax="relax.nn.gelu_tanh",
        emit=_emit_gelu_tanh,
        compute=_gelu_tanh,
        cycles=8.0,
    ),
    "hard_swish": StepKind(
        operand=NO_OPERAND, relax="neocpu.hard_swish", emit=_emit_hard_swish, compute=_hard_swish
    ),
    "mish": StepKind(
        operand=NO_OPERAND, relax="neocpu.mish", emit=_emit_mish, compute=_mish, cycles=16.0
    ),
    # It cannot precede a convolution: values in padded lanes may become infinite.
    "exp": StepKind(
        operand=NO_OPERAND,
        relax="relax.exp",
        emit=lambda x, _: _tirx().exp(x),
        compute=np.exp,
        before=False,
        cycles=4.2,
    ),
    # The factor of squeeze and excitation for each channel of each image.
    "gate": StepKind(
        operand=PER_IMAGE_CHANNEL,
        relax="relax.multiply",
        emit=_multiplied,
        compute=_multiplied,
        after=False,
    ),
}
AFTER: Final = frozenset(name for name, kind in STEP_KINDS.items() if kind.after)
"""Steps that a convolution may apply to its output."""
BEFORE: Final = frozenset(name for name, kind in STEP_KINDS.items() if kind.before)
"""Steps that a convolution may apply to its input."""


def find_kind(relax: str, operand: str) -> str | None:
    """Return the kind of step of a Relax operator with such an operand; None if there is none."""
    pairs = ((kind.relax, kind.operand, name) for name, kind in STEP_KINDS.items())
    return next((name for op, reads, name in pairs if (op, reads) == (relax, operand)), None)
