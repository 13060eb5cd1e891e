"""``neocpu inspect``: describe a compiled file, without loading it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.foundation.units import size
from neocpu.plan.text.artifact_text import packing_fields, precision_text, signature_text
from neocpu.plan.text.columns import print_columns

if TYPE_CHECKING:
    from neocpu.foundation.tensor_spec import TensorSpec
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.runtime.artifact import ArtifactFile, Variant
    from neocpu.runtime.header import ArtifactHeader

PROGRESS_AFTER: Final = 2.0  # seconds after which hashing shows its progress
EPILOG = """\b
Examples:
  neocpu inspect resnet50.so
  neocpu inspect resnet50.so --verify
  neocpu inspect resnet50.so --json | jq '.variants[].isa_features'"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@click.option("--verify", is_flag=True, help="Check the weights against their digest too.")
@options.one_shape(" Its outputs and memory are shown where extents may vary.")
@options.common
def command(terminal: Terminal, artifact: Path, verify: bool, shapes: Mapping[str, Given]) -> None:
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
        "variants": [_describe(each, verify, shapes) for each in file.variants],
    }
    terminal.result(report, lambda: _show(artifact, file, verify, shapes))


def _verify(file: ArtifactFile, on_progress: ProgressCallback) -> None:
    start = time.monotonic()
    total = sum(each.weight_bytes for each in file.variants)

    def report(done: int) -> None:
        if time.monotonic() - start > PROGRESS_AFTER:
            share = f"{size(done)} of {size(total)}"
            on_progress(Progress("verify", done >> 20, total >> 20, share))

    file.check_weights(report)


def _describe(variant: Variant, verified: bool, shapes: Mapping[str, Given]) -> JsonObject:
    header = variant.header
    chosen = [header.of(shapes)] if shapes else header.each
    plan = header.known_plan
    return {
        "name": variant.name,
        "bytes": variant.size,
        "format": header.format,
        "model": header.name,
        "versions": header.versions,
        "target": header.target,
        "machine": header.machine,
        "isa_features": list(header.isa_features),
        "obstacle": variant.obstacle,
        "threads": header.threads,
        "streams": header.streams,
        "inputs": [spec.to_json() for spec in header.inputs],
        "outputs": [spec.to_json() for spec in header.outputs],
        "shapes": [_signature(each) for each in chosen],
        "sizes": [value_to_json(each) for each in header.sized.sizes] if header.sized else [],
        "ranges": {
            name: [one if isinstance(one, int) else str(one) for one in ranges]
            for name, ranges in header.input_ranges.items()
        },
        "code_bytes": variant.code_bytes,
        "weight_bytes": variant.weight_bytes,
        "packed_at_load": None if header.prologue is None else header.prologue.summary,
        "arena_bytes": max(each.arena_bytes for each in chosen),
        "weights_verified": verified,
        "precision": "fp32" if plan is None else plan.precision,
        "computes_in": {} if plan is None else plan.computes_in,
        "templates": _templates(header),
    }


def _signature(header: ArtifactHeader) -> JsonObject:
    plan, sized = header.known_plan, header.sized_signatures
    elsewhere = sized is not None and header.inputs != sized.typical.inputs
    return {
        "inputs": {spec.name: list(spec.shape) for spec in header.inputs},
        "outputs": {spec.name: list(spec.shape) for spec in header.outputs},
        "arena_bytes": header.arena_bytes,
        "predicted_us": None if plan is None or elsewhere else plan.predicted_us,
    }


def _show(artifact: Path, file: ArtifactFile, verified: bool, shapes: Mapping[str, Given]) -> None:
    variants = file.variants
    shown = file.loadable or variants[0]
    is_fat = bool(variants[0].name)
    what = f"fat file of {len(variants)} variants" if is_fat else "artifact"
    echo(f"{artifact}: neocpu {what}, {size(os.fstat(file.fd).st_size)}")
    if is_fat:
        columns: dict[str, Callable[[Variant], str]] = {
            "variant": lambda each: each.name,
            "machine": lambda each: each.header.machine,
            "target": lambda each: each.header.target,
            "computes in": lambda each: _computes_in(each.header),
            "size": lambda each: size(each.size),
            "here": lambda each: "loaded" if each is file.loadable else each.obstacle or "runs",
        }
        print_columns(variants, columns, ("size",))
        echo("", f"{shown.name}:")
    print_fields(_fields(shown, verified, shapes))


def _fields(variant: Variant, verified: bool, shapes: Mapping[str, Given]) -> list[tuple[str, str]]:
    from neocpu.runtime.header_text import planned_for

    header = variant.header
    chosen = [header.of(shapes)] if shapes else header.each
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    weights = "weights match their digest" if verified else "weights unchecked"
    templates = ", ".join(f"{count} {name}" for name, count in _templates(header).items())
    return [
        ("model", header.name),
        ("inputs", _tensors(header.inputs, header.input_texts)),
        ("outputs", _tensors(header.outputs, header.output_texts)),
        *_shapes(header, shapes),
        ("target", header.target),
        ("instructions", ", ".join(header.isa_features) or "no extensions"),
        ("runs here", f"no, {variant.obstacle}" if variant.obstacle else "yes"),
        ("threads", planned_for(header.threads, header.streams)),
        ("code", size(variant.code_bytes)),
        ("weights", size(variant.weight_bytes)),
        *packing_fields(header.prologue),
        ("activations", size(max(each.arena_bytes for each in chosen))),
        ("computes in", _computes_in(header)),
        ("schemes", templates or "none"),
        ("format", f"{header.format}, by {versions}"),
        ("checksums", f"code and header match their digest; {weights}"),
    ]


def _computes_in(header: ArtifactHeader) -> str:
    plan = header.known_plan
    return "fp32" if plan is None else precision_text(plan.precision, plan.computes_in)


def _templates(header: ArtifactHeader) -> dict[str, int]:
    plan = header.known_plan
    schemes = [] if plan is None else [op.scheme.algorithm for op in plan.ops if op.scheme]
    return dict(Counter(schemes).most_common())


def _shapes(header: ArtifactHeader, shapes: Mapping[str, Given]) -> list[tuple[str, str]]:
    if header.sized is not None:
        from neocpu.foundation.tensor_spec import shapes_text  # here: it loads numpy

        typical = ("planned for", shapes_text(header.inputs))
        if not shapes:
            return [typical]
        found = header.of(shapes)
        chosen = f"{shapes_text(found.inputs)} -> {shapes_text(found.outputs)}"
        return [typical, ("chosen", chosen)]
    if not header.others:
        return []
    texts = (signature_text({s.name: s.shape for s in each.inputs}) for each in header.each)
    return [("shapes", f"{len(header.each)}: {'; '.join(texts)}")]


def _tensors(specs: Sequence[TensorSpec], texts: Sequence[str]) -> str:
    pairs = zip(specs, texts, strict=True)
    return "; ".join(f"{text}{_picture_text(spec)}" for spec, text in pairs)


def _picture_text(spec: TensorSpec) -> str:
    picture = spec.picture
    return "" if picture is None else f", {picture.layout} {picture.colours} pictures"
