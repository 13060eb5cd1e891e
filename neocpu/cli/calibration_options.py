"""The options of commands that calibrate: the data, and how pictures become inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from neocpu.cli import options

if TYPE_CHECKING:
    from neocpu.quantiser.pictures import Preprocessing

Command = TypeVar("Command", bound=Callable[..., Any])

FITS: Final = ("stretch", "crop", "letterbox")


class Numbers(click.ParamType[tuple[float, ...]]):
    """``0.485,0.456,0.406``."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"'{value}' is not a list of numbers such as 0.485,0.456,0.406", param, ctx)


_DATA: Final = (
    click.option(
        "--samples",
        type=click.IntRange(min=1),
        default=128,
        show_default=True,
        metavar="N",
        help="Calibration samples to use at most; of a folder, evenly out of all.",
    ),
    click.option(
        "--fit",
        type=options.OneOf(FITS),
        default="crop",
        show_default=True,
        help="How a picture for calibration becomes an input: both sides stretched; its middle; or "
        "all of it, on grey.",
    ),
    click.option(
        "--mean",
        type=Numbers(),
        default="0.485,0.456,0.406",
        show_default=True,
        metavar="M,M,M",
        help="Taken from its pixels from 0 to 1.",
    ),
    click.option(
        "--std",
        type=Numbers(),
        default="0.229,0.224,0.225",
        show_default=True,
        metavar="S,S,S",
        help="What they are divided by then.",
    ),
    click.option("--bgr", is_flag=True, help="Blue first."),
)


def calibrate(*, required: bool, **settings: Any) -> Callable[[Command], Command]:
    """Return the option that names the data."""
    return click.option(
        "--calibrate",
        required=required,
        metavar="SOURCE",
        help="What the model will see: a folder of pictures, an .npz file (arrays by input name, "
        "samples along the first axis), or loader.py:function, which yields samples.",
        **settings,
    )


def data(command: Command) -> Command:
    """Add the options of calibration data."""
    found: Command = functools.reduce(lambda made, option: option(made), reversed(_DATA), command)
    return found


def preprocessing(
    fit: str, mean: tuple[float, ...], std: tuple[float, ...], bgr: bool
) -> Preprocessing:
    """Return what the options say of pictures.

    Raises
    ------
    UsageError
    """
    from neocpu.quantiser.pictures import Preprocessing

    return Preprocessing(fit, mean, std, bgr)  # type: ignore[arg-type]
