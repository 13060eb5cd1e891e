"""``neocpu inspect``: what a compiled file is, without loading it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields, print_table
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.foundation.units import size
from neocpu.plan.text.artifact_text import (
    computes_in,
    packing_fields,
    precision_text,
    signature_text,
)

if TYPE_CHECKING:
    from neocpu.runtime.artifact import ArtifactFile, Variant
    from neocpu.runtime.header import ArtifactHeader

PATIENCE: Final = 2.0
"""Seconds of hashing before progress is shown."""

EPILOG = """\b
Examples:
  neocpu inspect resnet50.so
  neocpu inspect resnet50.so --verify
  neocpu inspect resnet50.so --json | jq '.variants[].isa_features'"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@click.option("--verify", is_flag=True, help="Check the weights against their digest too.")
@options.common
def command(terminal: Terminal, artifact: Path, verify: bool) -> None:
    """Show versions, target, inputs, outputs and sizes of ARTIFACT, and whether it runs here.

    The file is neither loaded nor run, so it may be for another machine. Its code and header are
    always checked against their digest; a damaged file ends this command with exit code 8.
    """
    from neocpu.runtime.artifact import ArtifactFile

    file = ArtifactFile(artifact)
    if verify:
        with terminal.progress() as on_progress:
            _verify(file, on_progress)
    report = {
        "artifact": str(artifact),
        "bytes": os.fstat(file.fd).st_size,
        "fat": bool(file.variants[0].name),
        "loaded_here": file.loadable and file.loadable.name,
        "variants": [_describe(each, verify) for each in file.variants],
    }
    terminal.result(report, lambda: _show(report))


def _verify(file: ArtifactFile, on_progress: ProgressCallback) -> None:
    start = time.monotonic()
    total = sum(each.weight_bytes for each in file.variants)

    def report(done: int) -> None:
        if time.monotonic() - start > PATIENCE:
            share = f"{size(done)} of {size(total)}"
            on_progress(Progress("verify", done >> 20, total >> 20, share))

    file.check_weights(report)


def _describe(variant: Variant, verified: bool) -> dict[str, Any]:
    header = variant.header
    operators = _operators(header.plan)
    return {
        "name": variant.name,
        "bytes": variant.size,
        "format": header.format,
        "model": header.name,
        "versions": header.to_json()["versions"],
        "target": header.target,
        "machine": header.machine,
        "isa_features": list(header.isa_features),
        "obstacle": variant.obstacle,
        "threads": header.threads,
        "streams": header.streams,
        "inputs": [spec.to_json() for spec in header.inputs],
        "outputs": [spec.to_json() for spec in header.outputs],
        "shapes": [_signature(each) for each in header.each],
        "code_bytes": variant.code_bytes,
        "weight_bytes": variant.weight_bytes,
        "packed_at_load": None if header.prologue is None else header.prologue.summary,
        "arena_bytes": max(each.arena_bytes for each in header.each),
        "weights_verified": verified,
        "precision": str(header.plan.get("precision", "fp32")),
        "computes_in": computes_in({"ops": operators}),
        "templates": _templates(operators),
    }


def _signature(header: ArtifactHeader) -> dict[str, Any]:
    return {
        "inputs": {spec.name: list(spec.shape) for spec in header.inputs},
        "outputs": {spec.name: list(spec.shape) for spec in header.outputs},
        "arena_bytes": header.arena_bytes,
        "predicted_us": header.plan.get("predicted_us"),
    }


def _operators(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a plan's operators, as far as it is one: it may be anybody's."""
    ops = plan.get("ops")
    return [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []


def _templates(operators: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many operators each template computes, as far as the plan says so."""
    schemes = [op.get("scheme") for op in operators]
    names = (str(scheme.get("template")) for scheme in schemes if isinstance(scheme, dict))
    return dict(Counter(name.removeprefix("conv2d_") for name in names).most_common())


def _show(report: Mapping[str, Any]) -> None:
    variants, chosen = report["variants"], report["loaded_here"]
    what = f"fat file of {len(variants)} variants" if report["fat"] else "artifact"
    echo(f"{report['artifact']}: neocpu {what}, {size(report['bytes'])}")
    if not report["fat"]:
        _print_fields(variants[0])
        return
    print_table(
        ("variant", "machine", "target", "computes in", "size", "here"),
        [
            (
                each["name"],
                each["machine"],
                each["target"],
                precision_text(each),
                size(each["bytes"]),
                "loaded" if each["name"] == chosen else each["obstacle"] or "runs",
            )
            for each in variants
        ],
        right=("size",),
    )
    shown = next((each for each in variants if each["name"] == chosen), variants[0])
    echo("", f"{shown['name']}:")
    _print_fields(shown)


def _print_fields(variant: Mapping[str, Any]) -> None:
    print_fields(_fields(variant))


def _fields(variant: Mapping[str, Any]) -> list[tuple[str, str]]:
    from neocpu.runtime.header_text import planned_for

    versions = ", ".join(f"{name} {version}" for name, version in variant["versions"].items())
    weights = "weights match their digest" if variant["weights_verified"] else "weights unchecked"
    templates = ", ".join(f"{count} {name}" for name, count in variant["templates"].items())
    return [
        ("model", variant["model"]),
        ("inputs", _tensors(variant["inputs"])),
        ("outputs", _tensors(variant["outputs"])),
        *_shapes(variant["shapes"]),
        ("target", variant["target"]),
        ("instructions", ", ".join(variant["isa_features"]) or "no extensions"),
        ("runs here", f"no, {variant['obstacle']}" if variant["obstacle"] else "yes"),
        ("threads", planned_for(variant["threads"], variant["streams"])),
        ("code", size(variant["code_bytes"])),
        ("weights", size(variant["weight_bytes"])),
        *packing_fields(variant["packed_at_load"]),
        ("activations", size(variant["arena_bytes"])),
        ("computes in", precision_text(variant)),
        ("schemes", templates or "none"),
        ("format", f"{variant['format']}, by {versions}"),
        ("checksums", f"code and header match their digest; {weights}"),
    ]


def _shapes(signatures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    if len(signatures) == 1:
        return []
    texts = (signature_text(each["inputs"]) for each in signatures)
    return [("shapes", f"{len(signatures)}: {'; '.join(texts)}")]


def _tensors(specs: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{spec['name']}: {spec['dtype']}"
        f"[{'up to ' if spec.get('bounded') else ''}{', '.join(map(str, spec['shape']))}]"
        f"{_picture_text(spec)}"
        for spec in specs
    )


def _picture_text(spec: Mapping[str, Any]) -> str:
    """Return what a tensor's specification tells of its pictures; empty of others."""
    picture = spec.get("picture")
    if not isinstance(picture, dict):
        return ""
    words = (str(picture.get(key)) for key in ("layout", "colours"))
    return f", {' '.join(words)} pictures"
