"""The options of commands that calibrate: the data, and how pictures become inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from neocpu.cli import options
from neocpu.foundation.errors import UsageError
from neocpu.foundation.option_words import CORRECTIONS, FITS, METHODS

if TYPE_CHECKING:
    from neocpu.quantiser.pictures import Preprocessing

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Calibration:
    source: str
    samples: int
    pictures: Preprocessing
    max_error: float | None
    min_agreement: float | None

    def arguments(self) -> dict[str, Any]:
        from neocpu.quantiser.quantise_options import QuantiseOptions

        return {
            "calibration": self.source,
            "how": QuantiseOptions(samples=self.samples, pictures=self.pictures),
            "max_error": self.max_error,
            "min_agreement": self.min_agreement,
        }


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(f"'{text}' is not a list of numbers such as 0.485,0.456,0.406") from None


_NUMBERS: Final = options.Parsed("numbers", _numbers)
_DATA: Final = (
    options.count(
        "--samples",
        default=128,
        help="The most calibration samples to use; of a folder, they are spread evenly over all "
        "files.",
    ),
    click.option(
        "--fit",
        type=options.OneOf(FITS),
        default="crop",
        help="How a picture for calibration is brought to the size of the input: stretch both "
        "sides, crop to the middle, or letterbox the whole picture with grey borders.",
    ),
    click.option(
        "--mean",
        type=_NUMBERS,
        default="0.485,0.456,0.406",
        metavar="M,M,M",
        help="The mean of each channel, subtracted from pixels between 0 and 1.",
    ),
    click.option(
        "--std",
        type=_NUMBERS,
        default="0.229,0.224,0.225",
        metavar="S,S,S",
        help="The standard deviation of each channel, which pixels are divided by after the mean "
        "is subtracted.",
    ),
    click.option(
        "--bgr", is_flag=True, help="The model takes the channels of a picture as blue, green, red."
    ),
)


def calibrate(*, required: bool) -> Callable[[Command], Command]:
    """Return the option that names the data."""
    return click.option(
        "--calibrate",
        type=options.FILE_NAME,
        required=required,
        metavar="SOURCE",
        help="Samples of the model's inputs: a folder of pictures (needs Pillow, of "
        "neocpu[quantize]), an .npz file (arrays by input name, samples along the first axis), or "
        "loader.py:function, which yields samples.",
    )


def files(source: str | None) -> tuple[str, ...]:
    """Return the files that ``--calibrate`` may name, with and without a function at the end."""
    return () if source is None else (source, source.rpartition(":")[0])


def data(command: Command) -> Command:
    return options.all_of(_DATA, command)


def preprocessing(
    fit: str, mean: tuple[float, ...], std: tuple[float, ...], bgr: bool
) -> Preprocessing:
    """Return the preprocessing of pictures that the options ask for. Raises UsageError."""
    from neocpu.quantiser.pictures import Preprocessing

    return Preprocessing(fit, mean, std, bgr)  # type: ignore[arg-type]


def limits(command: Command) -> Command:
    return click.option(
        "--max-error",
        type=click.FloatRange(min=0, min_open=True),
        metavar="E",
        help="The largest norm-wise difference of the outputs from float32, as in 1e-2. Within "
        "this limit bfloat16 is used where it is faster. With --calibrate 8-bit integers are used "
        "instead; the limit is checked on the half of the data that sets no ranges, and is 0.1 by "
        "default.",
    )(
        click.option(
            "--min-agreement",
            type=click.FloatRange(0, 1),
            metavar="P",
            help="With --calibrate: the least share of rows whose largest score stays in the same "
            "place.",
        )(command)
    )


def take(arguments: dict[str, Any]) -> Calibration | None:
    """Take the options of calibration out of ``arguments``; None if there are no data.

    Limits on errors stay if there are no data. Raises UsageError: an option is about calibration
    data, and there are none.
    """
    source = arguments.pop("calibrate")
    samples, *given = (arguments.pop(n) for n in ("samples", "fit", "mean", "std", "bgr"))
    bounds = [arguments.pop(name) for name in ("max_error", "min_agreement")]
    if source is not None:
        return Calibration(source, samples, preprocessing(*given), *bounds)
    if bounds[1] is not None:
        raise UsageError("--min-agreement needs --calibrate, for data to measure it on")
    arguments["max_error"] = bounds[0]
    context = click.get_current_context()
    for name in ("samples", "fit"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UsageError(f"--{name} says how to read the data of --calibrate: name them")
    return None


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
