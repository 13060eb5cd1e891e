"""``neocpu quantize``: write a model in 8 bits, as standard ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.cli.calibration import calibration_options
from neocpu.cli.databases import own_and_named
from neocpu.cli.parsing.model_arguments import ModelName, operators
from neocpu.foundation.console.terminal import Terminal, echo, print_fields, print_table
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.own_process import collect_rarely, wait_idly
from neocpu.foundation.units import plural, size

if TYPE_CHECKING:
    from neocpu.quantiser.quantisation_report import QuantisationReport

EPILOG = """\b
Examples:
  neocpu quantize resnet50.onnx --calibrate photos/ -o resnet50.int8.onnx
  neocpu quantize detector.onnx --calibrate images.npz --method percentile
  neocpu quantize net.onnx --calibrate loader.py:samples --exclude Gemm
  neocpu compile resnet50.int8.onnx -o resnet50.so"""


@click.command(epilog=EPILOG)
@click.argument("model", type=ModelName())
@calibration_options.calibrate(required=True)
@click.option(
    "-o",
    "output",
    type=options.PATH,
    metavar="FILE",
    help="The file to write; by default MODEL.int8.onnx.",
)
@options.shape
@operators
@options.batch
@options.threads
@calibration_options.data
@calibration_options.rounding
@click.option(
    "--histograms",
    type=options.PATH,
    metavar="FILE",
    help="Draw the distribution and the range of each tensor as .svg, .png or .pdf. Needs "
    "matplotlib, of neocpu[quantize].",
)
@options.common
def command(
    terminal: Terminal,
    model: str,
    calibrate: str,
    output: Path | None,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
    threads: int | None,
    fit: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    bgr: bool,
    per: str,
    int16_sums: str,
    histograms: Path | None,
    **others: Any,
) -> None:
    """Quantise MODEL, an .onnx file or the name of a built-in network, to 8 bits.

    The result is standard ONNX in QDQ form, for any engine. Convolutions, dense layers and sums of
    feature maps compute in integers. Their scales are found by running the model in float32 on
    calibration data: about a hundred samples like those the model will see. Nothing leaves this
    machine.
    """
    import neocpu
    from neocpu.foundation.files import check_destination

    collect_rarely()
    wait_idly()
    path = output if output is not None else Path(f"{Path(model).stem}.int8.onnx")
    read: tuple[str | Path, ...] = (model, *own_and_named(), *calibration_options.files(calibrate))
    check_destination(path, others=read)
    check_destination(histograms, "--histograms", (*read, path))
    if histograms is not None:
        from neocpu.quantiser.quantisation_report import check_drawing, draw

        check_drawing(histograms)
    import_tvm()
    how = neocpu.QuantiseOptions(
        per_channel=per == "channel",
        int16_sums=int(int16_sums),
        pictures=calibration_options.preprocessing(fit, mean, std, bgr),
        **others,
    )
    with terminal.progress() as on_progress:
        quantised = neocpu.quantize(
            model,
            calibrate,
            how,
            shapes=shapes,
            batch=batch,
            threads=threads,
            on_progress=on_progress,
        )
    quantised.save(path)
    if histograms is not None:
        draw(quantised.report, histograms)
    document = {"model": str(path), "bytes": path.stat().st_size, **quantised.report.to_json()}
    terminal.result(document, lambda: _show(path, quantised.report, quiet=terminal.quiet))


def _show(path: Path, report: QuantisationReport, *, quiet: bool) -> None:
    echo(f"{path}: {size(path.stat().st_size)}")
    if quiet:
        return
    outputs = ", ".join(f"{name} {_decibels(value)}" for name, value in report.outputs.items())
    agreement = [] if report.agreement is None else [("agreement", f"{report.agreement:.1%}")]
    print_fields(
        [
            ("samples", str(report.samples)),
            ("layers", str(len(report.layers))),
            ("tensors", str(len(report.tensors))),
            ("bias", report.correction),
            ("signal/noise", outputs),
            *agreement,
        ]
    )
    for note in report.notes:
        echo(f"note: {note}")
    if report.poor:
        echo(f"{plural(len(report.poor), 'layer')} with much noise, to leave out with --exclude:")
        print_table(
            ("layer", "operator", "weights", "output"),
            [
                (each.name, each.operator, _decibels(each.weights_db), _decibels(each.output_db))
                for each in report.poor[:10]
            ],
            right=("weights", "output"),
        )


def _decibels(value: float) -> str:
    return f"{value:.1f} dB" if value < float("inf") else "exact"
