"""The words that options take, each once: for type checkers, for Python and for the command line.

Nothing is imported here but `typing`, for ``neocpu --help`` lists these words.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Goal: TypeAlias = Literal["latency", "throughput"]
"""What a plan is to make small: the time of one call, or that of many made at once."""

Opt: TypeAlias = Literal["nchw", "conv-layout", "uniform", "global"]
"""How far layouts are optimised (paper Table 3)."""

PrecisionName: TypeAlias = Literal["auto", "int8", "bf16", "fp32"]
"""In what numbers a model is computed."""

AccuracyName: TypeAlias = Literal["default", "strict"]
"""How exact outputs are."""

Solver: TypeAlias = Literal["auto", "exact", "dp", "pbqp"]
"""How the layout search is solved."""

StrategyName: TypeAlias = Literal["xgb", "grid", "random", "analytic"]
"""How schemes to measure are searched for."""

RangeMethod: TypeAlias = Literal[
    "minmax", "moving-average", "percentile", "kl", "symmetric-kl", "js", "mse", "auto"
]
"""How the range of a tensor is found when a model is quantised."""

Correction: TypeAlias = Literal["none", "weights", "mean-variance", "activations"]
"""What biases make up for rounded weights by."""

Fit: TypeAlias = Literal["stretch", "crop", "letterbox"]
"""How a picture of another size is made to fit."""

GOALS: Final[tuple[str, ...]] = get_args(Goal)
OPT_LEVELS: Final[tuple[str, ...]] = get_args(Opt)
PRECISIONS: Final[tuple[str, ...]] = get_args(PrecisionName)
SOLVERS: Final[tuple[str, ...]] = get_args(Solver)
METHODS: Final[tuple[str, ...]] = get_args(RangeMethod)
CORRECTIONS: Final[tuple[str, ...]] = get_args(Correction)
FITS: Final[tuple[str, ...]] = get_args(Fit)
