"""What tuning brings: a model beside itself compiled without any tuning record."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.engines.engine_session import Inputs
from neocpu.bench.engines.timed_compilation import compile_in_child
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.foundation.progress import ProgressCallback, silent

TUNED: Final = "tuned"
UNTUNED: Final = "untuned"


def measure_untuned(
    model: Path,
    tuned: Path,
    inputs: Inputs,
    threads: int,
    folder: Path,
    options: LatencyOptions,
    on_progress: ProgressCallback = silent,
) -> LatencyReport:
    """Compile a model from estimates alone and measure it against its artifact ``tuned``.

    Parameters
    ----------
    folder : Path
        For the other artifact.

    Raises
    ------
    NeoCPUError
        As `neocpu.compile`.
    """
    path = folder / f"{UNTUNED}.so"
    # No comparison with the reference: the outputs are compared with each other below.
    compile_in_child(model, path, threads=threads, only_databases=True, on_progress=on_progress)
    contenders = [Contender(TUNED, "neocpu", tuned), Contender(UNTUNED, "neocpu", path)]
    return measure_latency(contenders, inputs, threads, options, on_progress=on_progress)
