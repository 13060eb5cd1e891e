"""The option for the accuracy of outputs, of commands that choose kernels."""

from __future__ import annotations

from typing import Final

import click

from neocpu.cli.options import OneOf
from neocpu.schedules.vocabulary.accuracy import DEFAULT, LEVELS

accuracy: Final = click.option(
    "--accuracy",
    type=OneOf(tuple(LEVELS)),
    default=DEFAULT.name,
    help="How exact outputs are: their norm-wise error is at most 1e-4, or 5e-6 (strict), which "
    "leaves out algorithms that round more than direct convolution.",
)
