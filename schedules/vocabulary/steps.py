"""The elementwise steps that convolutions and dense layers take in: all there is to know of each.

What a step reads besides the running value, which Relax operator it is, what TE computes, and what
numpy must find: a step is one entry of `STEP_KINDS`, and nothing else knows their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

NO_OPERAND, PER_CHANNEL, TENSOR, PER_IMAGE_CHANNEL = "none", "channel", "tensor", "image channel"
"""What a step reads: nothing, ``(C,)``, a tensor of the same shape, or ``(N, C, 1, 1)``."""


def _no_arguments(call: Any) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step.

    Attributes
    ----------
    operand : str
        One of the four above.
    relax : str
        The operator that the step is. Two kinds may be one operator, if their operands differ.
    emit : callable
        ``emit(x, operand element or None, *arguments)``, the TIR expression of one element.
    compute : callable
        ``compute(x, *operand, *arguments)``, the same of whole arrays, in numpy.
    arguments : callable
        The scalars of a call of ``relax``.
    after, before : bool
        Whether a convolution may apply it to what it stores, and to what it reads.
    cycles : float
        What a vector takes of it besides a simple step: of polynomials and quotients.
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


# tanh(y) + 1 = 2 sigmoid(2 y), of y = sqrt(2 / pi) (x + 0.044715 x^3).
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
    """Round to 32 bits in one instruction, and saturate there, which storing bytes does by itself.

    What is too large for 32 bits would become the smallest number of them.
    """
    x = _tirx().min(x, _const(_LARGEST_ROUNDED, x))
    low, high, middle = (_tirx().const(int(number), "int32") for number in (0, 255, zero))
    whole = _tirx().call_llvm_pure_intrin("int32", "llvm.lrint", x) + middle
    return _tirx().max(_tirx().min(whole, high), low).astype(x.ty.dtype)


def _emit_leaky(x: Any, slope: Any) -> Any:
    return _tirx().Select(x > _const(0.0, x), x, x * slope)


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):  # of large numbers, whose sigmoid is 0
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
    "bias_add": StepKind(PER_CHANNEL, "relax.add", _added, _added),
    "scale": StepKind(PER_CHANNEL, "relax.multiply", _multiplied, _multiplied),
    # Of integer sums: what follows is in float32.
    "rescale": StepKind(PER_CHANNEL, "", _rescaled, _rescaled, before=False),
    # Half to even, as ONNX's QuantizeLinear does.
    "round": StepKind(NO_OPERAND, "relax.round", _emit_round, np.rint, before=False),
    # The whole number from 0 to 255 that is stored, of a zero point: it stays a float.
    "quantise": StepKind(NO_OPERAND, "", _emit_quantise, _quantised, before=False),
    "prelu": StepKind(PER_CHANNEL, "relax.nn.prelu", _emit_leaky, _leaky),
    # Of the input's shape, a second tensor would have to be packed too.
    "add": StepKind(TENSOR, "relax.add", _added, _added, before=False),
    "multiply": StepKind(TENSOR, "relax.multiply", _multiplied, _multiplied, before=False),
    "relu": StepKind(
        NO_OPERAND,
        "relax.nn.relu",
        lambda x, _: _tirx().max(x, _const(0.0, x)),
        lambda x: np.maximum(x, 0),
    ),
    "clip": StepKind(NO_OPERAND, "relax.clip", _emit_clip, np.clip, _clip_bounds),
    "leaky_relu": StepKind(
        NO_OPERAND,
        "relax.nn.leakyrelu",
        lambda x, _, slope: _emit_leaky(x, _const(slope, x)),
        _leaky,
        lambda call: (float(call.attrs.alpha),),
    ),
    "sigmoid": StepKind(
        NO_OPERAND, "relax.sigmoid", lambda x, _: _tirx().sigmoid(x), _sigmoid, cycles=5.7
    ),
    "silu": StepKind(
        NO_OPERAND,
        "relax.nn.silu",
        lambda x, _: x * _tirx().sigmoid(x),
        lambda x: x * _sigmoid(x),
        cycles=7.0,  # measured on a Zen 5, as those of the others are by their instructions
    ),
    "tanh": StepKind(NO_OPERAND, "relax.tanh", lambda x, _: _tirx().tanh(x), np.tanh, cycles=5.7),
    "gelu": StepKind(NO_OPERAND, "relax.nn.gelu", _emit_gelu, _gelu, cycles=10.5),
    "gelu_tanh": StepKind(
        NO_OPERAND, "relax.nn.gelu_tanh", _emit_gelu_tanh, _gelu_tanh, cycles=8.0
    ),
    "hard_swish": StepKind(NO_OPERAND, "neocpu.hard_swish", _emit_hard_swish, _hard_swish),
    "mish": StepKind(NO_OPERAND, "neocpu.mish", _emit_mish, _mish, cycles=16.0),
    # Not before: what the padded lanes of a block hold may become infinite.
    "exp": StepKind(
        NO_OPERAND, "relax.exp", lambda x, _: _tirx().exp(x), np.exp, before=False, cycles=4.2
    ),
    # Squeeze and excitation's factor of each channel of each image.
    "gate": StepKind(PER_IMAGE_CHANNEL, "relax.multiply", _multiplied, _multiplied, after=False),
}
AFTER: Final = frozenset(name for name, kind in STEP_KINDS.items() if kind.after)
"""Steps that a convolution may apply to what it stores."""
BEFORE: Final = frozenset(name for name, kind in STEP_KINDS.items() if kind.before)
"""Steps that it may apply to what it reads."""


def find_kind(relax: str, operand: str) -> str | None:
    """Return the kind of step that a Relax operator is with such an operand; None if it is none."""
    pairs = ((kind.relax, kind.operand, name) for name, kind in STEP_KINDS.items())
    return next((name for op, reads, name in pairs if (op, reads) == (relax, operand)), None)
