"""The activations of recurrent layers, by ONNX's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

Formula = Callable[[Any, float, float], Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A formula over x, alpha and beta, with defaults for the parameters that it has."""

    formula: Formula
    alpha: float | None = None
    beta: float | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of one number.

    - `name`: one of `ACTIVATIONS`.
    - `alpha`, `beta`: the parameters; 0 if it has none.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Any) -> Any:
        """Return the expression of the activation of a float32 scalar."""
        return ACTIVATIONS[self.name].formula(x, self.alpha, self.beta)


def _f(value: float) -> Any:
    return tirx.const(value, "float32")


def _softplus(x: Any, alpha: float, beta: float) -> Any:
    """Return ``log(1 + exp(x))``, without overflow."""
    size = T.Select(x < _f(0), x, _f(0) - x)
    return T.max(_f(0), x) + T.log(_f(1) + T.exp(size))


ACTIVATIONS: Final[Mapping[str, _Kind]] = {
    "Affine": _Kind(lambda x, a, b: x * _f(a) + _f(b), 1.0, 0.0),
    "Elu": _Kind(
        lambda x, a, b: T.Select(x < _f(0), _f(a) * (T.exp(T.min(_f(0), x)) - _f(1)), x), 1.0
    ),
    "HardSigmoid": _Kind(lambda x, a, b: T.max(_f(0), T.min(_f(1), x * _f(a) + _f(b))), 0.2, 0.5),
    "LeakyRelu": _Kind(lambda x, a, b: T.Select(x < _f(0), x * _f(a), x), 0.01),
    "Relu": _Kind(lambda x, a, b: T.max(_f(0), x)),
    "ScaledTanh": _Kind(lambda x, a, b: _f(a) * T.tanh(x * _f(b)), 1.0, 1.0),
    "Sigmoid": _Kind(lambda x, a, b: T.sigmoid(x)),
    "Softplus": _Kind(_softplus),
    "Softsign": _Kind(lambda x, a, b: x / (_f(1) + T.abs(x))),
    "Tanh": _Kind(lambda x, a, b: T.tanh(x)),
    "ThresholdedRelu": _Kind(lambda x, a, b: T.Select(x < _f(a), _f(0), x), 1.0),
}
"""All activations by name; ONNX Runtime ignores the case of names."""


def activations_named(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """Return activations; those with an alpha or a beta take the next given one, or the default.

    A name that is not in `ACTIVATIONS` is a ValueError.
    """
    known = {name.lower(): name for name in ACTIVATIONS}
    alpha, beta = iter(alphas), iter(betas)

    def taken(default: float | None, given: Iterator[float]) -> float:
        return 0.0 if default is None else float(next(given, default))

    found = []
    for word in names:
        name = known.get(word.lower())
        if name is None:
            raise ValueError(f"its activation {word!r} is none of {', '.join(ACTIVATIONS)}")
        kind = ACTIVATIONS[name]
        found.append(Activation(name, taken(kind.alpha, alpha), taken(kind.beta, beta)))
    return tuple(found)
