"""The options of ``neocpu quantize`` about ranges, scales and corrections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from neocpu.cli import options
from neocpu.foundation.option_words import CORRECTIONS, METHODS

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--method",
        type=options.OneOf(METHODS),
        default="percentile",
        help="How the range of a tensor is found: from all values (minmax); from averages of the "
        "samples' ranges (moving-average); without outliers (percentile); by the least change of "
        "the distribution, measured as Kullback-Leibler divergence (kl), the same in both "
        "directions (symmetric-kl), Jensen-Shannon divergence (js) or mean squared error (mse); or "
        "by whichever of these changes the outputs least, tensor by tensor (auto).",
    ),
    click.option(
        "--percentile",
        type=float,
        default=99.99,
        metavar="P",
        help="The share of values, in percent, that --method percentile keeps within the range.",
    ),
    click.option(
        "--symmetric",
        is_flag=True,
        help="Put zero in the middle of the range of tensors with both signs.",
    ),
    click.option(
        "--per",
        type=options.OneOf(("channel", "layer")),
        default="channel",
        help="Give each output channel of weights a scale of its own, or each layer one scale.",
    ),
    click.option(
        "--int16-sums",
        type=options.OneOf(("0", "2", "4", "8")),
        default="4",
        help="Keep weights so small that the sum of this many products fits 16 bits, which CPUs "
        "without VNNI compute fast and which other engines would saturate; 0 uses all 8 bits of a "
        "weight. 8 costs some accuracy.",
    ),
    click.option(
        "--correct-bias",
        "correction",
        type=options.OneOf(CORRECTIONS),
        default="weights",
        help="How errors of rounded weights are corrected: not at all (none); in the bias, at the "
        "mean of the layer's inputs (weights); by restoring each channel's mean and variance "
        "(mean-variance); or in the bias, also by the mean error that remains in the layer's "
        "outputs (activations).",
    ),
    click.option(
        "--equalise",
        is_flag=True,
        help="Rescale the channels of neighbouring layers so that their ranges are alike.",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="NODE",
        help="A node, or an operator type, that stays in float32. Repeatable.",
    ),
    click.option(
        "--wide",
        multiple=True,
        metavar="TENSOR",
        help="A tensor to quantise to 16 bits. Repeatable.",
    ),
)


def rounding(command: Command) -> Command:
    """Add the options, named as in `QuantiseOptions` except for ``per`` and ``int16_sums``."""
    return options.all_of(_OPTIONS, command)
