"""The gain of each level of layout optimisation (the paper's Table 3), and of tuning.

``python -m tests.experiments.ablation [--suite NAME] [MODEL …]`` compiles each network at every
level of ``--opt`` and measures the results against each other. ``--untuned`` compares the artifact
with one that was compiled without any tuning record instead. Results are printed in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.engines.measured_model import compile_in_child, onnx_file
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.results.table import Table, interval, ms
from neocpu.cli.parsing.model_arguments import with_suite
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.planning.optimisation_levels import OptLevel
from neocpu.runtime.artifact import read_header

LEVELS = {str(level): ["--opt", str(level)] for level in OptLevel}
TUNING = {"untuned": ["--only-db"], "tuned": []}


def measure(
    model: str, variants: Mapping[str, Sequence[str]], threads: int, options: LatencyOptions
) -> LatencyReport:
    """Return the latencies of a model, compiled once with each variant's options."""
    with TemporaryFolder("ablation") as name:
        folder = Path(name)
        source = onnx_file(model, NO_SHAPES, folder)
        contenders = []
        for label, chosen in variants.items():
            path = folder / f"{label}.so"
            # No comparison with the reference: the outputs are compared with each other.
            compile_in_child(source, path, threads=threads, options=chosen)
            contenders.append(Contender(label, "neocpu", path))
        inputs = random_inputs(read_header(path).inputs, seed=0)
        return measure_latency(contenders, inputs, threads, options)


def table(reports: Mapping[str, LatencyReport], labels: Sequence[str]) -> Table:
    """Return each variant's speed-up over the first one, a row for each model."""
    first, *others = labels
    rows, gains = [], {label: [] for label in others}
    for name, report in reports.items():
        base, cells = report.find(first), []
        for label in others:
            found = report.find(label)
            if base is None or found is None:
                cells.append("-")
                continue
            ratio = report.ratio(base, found)
            gains[label].append(ratio.value)
            cells.append(interval(ratio))
        last = report.find(labels[-1])
        rows.append((name, *cells, "-" if last is None else ms(last.median)))
    if len(rows) > 1:
        means = (
            f"{statistics.geometric_mean(each):.3f}" if each else "-" for each in gains.values()
        )
        rows.append(("geometric mean", *means, "-"))
    notes = (f"{name}: {text}" for name, report in reports.items() for text in report.warnings)
    title, header = f"Speed-up over {first} (95 %)", ("model", *others, f"{labels[-1]} ms")
    return Table(title, header, tuple(rows), tuple(notes))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.ablation")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--suite")
    parser.add_argument("--untuned", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    chosen = parser.parse_args(arguments)
    variants = TUNING if chosen.untuned else LEVELS
    options = LatencyOptions(rounds=chosen.rounds)
    models = with_suite(chosen.models, chosen.suite)
    reports = {Path(one).stem: measure(one, variants, chosen.threads, options) for one in models}
    print(table(reports, tuple(variants)).markdown())


if __name__ == "__main__":
    main()
