"""The words that options take, for type checkers, for Python and for the command line.

Only `typing` is imported here, because ``neocpu --help`` lists these words.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Goal: TypeAlias = Literal["latency", "throughput"]
"""The time that a plan minimises: of one call, or of many simultaneous calls."""

Opt: TypeAlias = Literal["nchw", "conv-layout", "uniform", "global"]
"""The extent of layout optimisation (paper Table 3)."""

PrecisionName: TypeAlias = Literal["auto", "int8", "bf16", "fp32"]
"""The numbers in which a model is computed."""

AccuracyName: TypeAlias = Literal["default", "strict"]
"""The accuracy of outputs."""

Solver: TypeAlias = Literal["auto", "exact", "dp", "pbqp"]
"""The solver of the layout search."""

StrategyName: TypeAlias = Literal["xgb", "grid", "random", "analytic"]
"""The strategy that selects schemes to measure."""

RangeMethod: TypeAlias = Literal[
    "minmax", "moving-average", "percentile", "kl", "symmetric-kl", "js", "mse", "auto"
]
"""The method that finds the range of a tensor when a model is quantised."""

Correction: TypeAlias = Literal["none", "weights", "mean-variance", "activations"]
"""The way in which biases are corrected for rounded weights."""

Fit: TypeAlias = Literal["stretch", "crop", "letterbox"]
"""The way in which a picture of another size is made to fit."""

GOALS: Final[tuple[str, ...]] = get_args(Goal)
OPT_LEVELS: Final[tuple[str, ...]] = get_args(Opt)
PRECISIONS: Final[tuple[str, ...]] = get_args(PrecisionName)
SOLVERS: Final[tuple[str, ...]] = get_args(Solver)
METHODS: Final[tuple[str, ...]] = get_args(RangeMethod)
CORRECTIONS: Final[tuple[str, ...]] = get_args(Correction)
FITS: Final[tuple[str, ...]] = get_args(Fit)
