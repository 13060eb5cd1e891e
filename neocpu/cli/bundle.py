"""``neocpu bundle``: a model with everything that runs it from C and C++, without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields, print_table
from neocpu.foundation.units import size

if TYPE_CHECKING:
    from neocpu.runtime.bundle.write_bundle import Bundle

EPILOG = """\b
Examples:
  neocpu bundle resnet50.so -o resnet50/
  cd resnet50 && make && ./neocpu_run resnet50.so image.npy"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@click.option(
    "-o",
    "--output",
    "folder",
    type=options.PATH,
    required=True,
    metavar="FOLDER",
    help="The folder to write; new or empty.",
)
@click.option(
    "--static",
    is_flag=True,
    help="Let `make` build a single program that contains the model and needs no other file.",
)
@click.option("--force", is_flag=True, help="Replace the bundle in the folder.")
@options.common
def command(terminal: Terminal, artifact: Path, folder: Path, static: bool, force: bool) -> None:
    """Write ARTIFACT with C source and a header that run it without Python."""
    from neocpu.runtime.bundle.write_bundle import write_bundle

    bundle = write_bundle(artifact, folder, static=static, replace=force)
    document = {
        "folder": str(bundle.folder),
        "model": bundle.model,
        "machines": list(bundle.machines),
        "files": [{"path": file.path, "bytes": file.size} for file in bundle.files],
        "bytes": bundle.size,
        "weight_bytes": bundle.weight_bytes,
    }
    terminal.result(document, lambda: _show(bundle, quiet=terminal.quiet))


def _show(bundle: Bundle, *, quiet: bool) -> None:
    if quiet:
        echo(f"{bundle.folder}: {size(bundle.size)}")
        return
    source = [file for file in bundle.files if "src" in Path(file.path).parts]
    others = [file for file in bundle.files if file not in source]
    rows = [(file.path, size(file.size)) for file in others]
    rows.append((f"src ({len(source)} files)", size(sum(file.size for file in source))))
    print_table(("file", "size"), rows, right=("size",))
    echo()
    print_fields(
        [
            ("bundle", f"{bundle.folder}, for {' and '.join(bundle.machines)}"),
            ("size", size(bundle.size)),
            ("all but the weights", size(bundle.size - bundle.weight_bytes)),
            ("next", f"make -C {bundle.folder}"),
        ]
    )
