"""``neocpu models``: the built-in networks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.parsing.groups import Group
from neocpu.cli.parsing.model_arguments import complete_network
from neocpu.foundation.console.terminal import Terminal, echo, print_table
from neocpu.foundation.units import size

if TYPE_CHECKING:
    from neocpu.frontend.models import ModelInfo

EPILOG = """\b
Examples:
  neocpu models list
  neocpu models export resnet50 -o resnet50.onnx --batch 4 --image 256x320"""


def _image(text: str) -> tuple[int, int]:
    """Read ``256`` or ``256x320``: height and width in pixels."""
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text.strip().lower())
    if match is None:
        raise ValueError(f"'{text}' is not an image size: write 256, or 256x320")
    return int(match[1]), int(match[2] or match[1])


@click.group(cls=Group, epilog=EPILOG)
def command() -> None:
    """List the built-in networks, or write one as an .onnx file.

    Their weights are random: they are for measuring speed, not for recognising images.
    """


@command.command("list", epilog="Example:  neocpu models list --json")
@options.common
def list_models(terminal: Terminal) -> None:
    """Show the built-in networks and the suites they are in."""
    from neocpu.frontend.models import MODELS, SUITES

    infos = tuple(MODELS.values())
    document = {
        "models": [asdict(info) for info in infos],
        "suites": {name: list(names) for name, names in SUITES.items()},
    }
    terminal.result(document, lambda: _show(infos, SUITES))


@command.command("export", epilog="Example:  neocpu models export resnet50 -o resnet50.onnx")
@click.argument("name", shell_complete=complete_network)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.onnx",
    help="The file to write; by default the network's name with .onnx, in this folder.",
)
@options.seed("The seed of the random weights.")
@options.count("--batch", default=1, help="Images per call.")
@click.option(
    "--image",
    type=options.Parsed("image", _image),
    metavar="SIZE",
    help="Height and width of an image, as 256 or 256x320; by default the network's usual ones.",
)
@options.common
def export(
    terminal: Terminal,
    name: str,
    output: Path | None,
    seed: int,
    batch: int,
    image: tuple[int, int] | None,
) -> None:
    """Write the built-in network NAME as an ONNX model."""
    from neocpu.foundation.files import replacing
    from neocpu.frontend import models

    path = output if output is not None else Path(f"{name}.onnx")
    model = models.build(name, batch=batch, seed=seed, image=image)
    data = model.SerializeToString()
    with replacing(path, len(data)) as file:
        file.write(data)
    document = {
        "model": name,
        "path": str(path),
        "bytes": len(data),
        "seed": seed,
        "shape": [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim],
    }
    terminal.result(document, lambda: echo(f"{path}: {size(len(data))}"))


def _show(infos: Sequence[ModelInfo], suites: Mapping[str, Sequence[str]]) -> None:
    # A suite of all networks says nothing about a single one.
    telling = {name: names for name, names in suites.items() if len(names) < len(infos)}
    print_table(
        ("name", "network", "image", "parameters", "GMAC", "suite", "source"),
        [
            (
                info.name,
                info.title,
                f"{info.image}x{info.image}",
                f"{info.parameters / 1e6:.2f} M",
                f"{info.gmacs:.2f}",
                ", ".join(name for name, names in telling.items() if info.name in names),
                info.source,
            )
            for info in infos
        ],
        right=("image", "parameters", "GMAC"),
    )
    counts = (f"{name} ({len(names)})" for name, names in suites.items())
    echo("", f"Suites, for --suite: {', '.join(counts)}")
