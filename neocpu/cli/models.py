"""``neocpu models``: the built-in networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.terminal import Terminal, print_table
from neocpu.cli.units import size

if TYPE_CHECKING:
    from neocpu.models import ModelInfo

EPILOG = """\b
Examples:
  neocpu models list
  neocpu models export resnet50 -o resnet50.onnx --batch 4"""


@click.group(epilog=EPILOG)
def command() -> None:
    """List the built-in networks, or write one as an .onnx file.

    Their weights are random: they are for measuring speed, not for recognising images.
    """


@command.command("list", epilog="Example:  neocpu models list --json")
@options.common
def list_models(terminal: Terminal) -> None:
    """Show the built-in networks."""
    from neocpu.models import MODELS

    infos = tuple(MODELS.values())
    document = {"models": [asdict(info) for info in infos]}
    terminal.result(document, lambda: _show(infos))


@command.command("export", epilog="Example:  neocpu models export resnet50 -o resnet50.onnx")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.onnx",
    help="The file to write; by default the network's name with .onnx, in this folder.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The seed of the random weights.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Images per call.",
)
@options.common
def export(terminal: Terminal, name: str, output: Path | None, seed: int, batch: int) -> None:
    """Write the built-in network NAME as an ONNX model."""
    from neocpu import models
    from neocpu.link import replacing

    path = output if output is not None else Path(f"{name}.onnx")
    data = models.build(name, batch=batch, seed=seed).SerializeToString()
    with replacing(path, len(data)) as file:
        file.write(data)
    document = {"model": name, "path": str(path), "bytes": len(data), "seed": seed, "batch": batch}
    terminal.result(document, lambda: print(f"{path}: {size(len(data))}"))


def _show(infos: Sequence[ModelInfo]) -> None:
    print_table(
        ("name", "network", "image", "parameters", "GMAC", "source"),
        [
            (
                info.name,
                info.title,
                f"{info.image}x{info.image}",
                f"{info.parameters / 1e6:.2f} M",
                f"{info.gmacs:.2f}",
                info.source,
            )
            for info in infos
        ],
        right=("image", "parameters", "GMAC"),
    )
