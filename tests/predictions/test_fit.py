"""Fitting recovers the rates of simulated networks, and writes them as code."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from neocpu.building.kernel_report import KnownCalls
from neocpu.foundation.machine import network_rates
from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.schedules.estimates.kernel_work import CLASSES, LoopWork, work_seconds
from neocpu.schedules.vocabulary.target_parsing import parse_target
from tests.predictions.fit import Fit, source
from tests.predictions.measured import KernelTimes, Measurement
from tests.predictions.transformer import transformer

ZEN5 = parse_target("llvm -mcpu=znver5")


def kernel(
    kind: str, took: float, computing: float = 0.0, work: LoopWork | None = None
) -> KernelTimes:
    loops = [] if work is None else [work.to_json()]
    return KernelTimes(kind, kind, 1, 0.0, took, "" if work else kind, computing, 0.0, 0, loops)


def network(name: str, *kernels: KernelTimes) -> Measurement:
    return Measurement(name, 0.0, sum(k.took for k in kernels), 0.0, 1e6, list(kernels))


def test_paces_and_cycles_are_found():
    true = replace(NETWORK_RATES["znver5"], cycles=dict.fromkeys(CLASSES, 0.9))
    work = [
        LoopWork(
            tasks=8.0, forks=1.0, cycles=(1e6 * n,) * len(CLASSES), size=1e4, from_l2=1e4, again=0.0
        )
        for n in (1, 2, 3)
    ]
    before = NETWORK_RATES["znver5"]
    NETWORK_RATES["znver5"] = true
    took = [work_seconds((each,), ZEN5.in_network(1e6, 2), 2) for each in work]
    NETWORK_RATES["znver5"] = before
    found = [
        network("a", kernel("attention", 3e-3, 1e-3), kernel("x", took[0], work=work[0])),
        network("b", kernel("attention", 6e-3, 2e-3), kernel("x", took[1], work=work[1])),
        network("c", kernel("dense", 1e-3, 2e-3), kernel("x", took[2], work=work[2])),
    ]
    fit = Fit(found * 10, ZEN5, 2, 1.0)  # so large that changes of rates count little
    best = fit.best(before)
    assert fit.error(best) < 0.05 < fit.error(before)
    assert best.paces["attention"] == pytest.approx(3, rel=0.15)
    assert best.paces["dense"] == pytest.approx(0.5, rel=0.15)
    assert best.paces["product"] == before.paces["product"]  # without measurements
    assert NETWORK_RATES["znver5"] is before


def test_fitted_times_of_kernels_equal_the_compilers_predictions():
    network_costs = NetworkCosts.of(ZEN5, 2, 1e6)
    time = NetworkTime(1e-6, 1e-6, "dense", streamed=1e6)
    report = KnownCalls("dense", (time,), forks=True).report("dense", 3, network_costs, enters=True)
    times = KernelTimes(
        *("dense", "dense", 3, 0.0, report.seconds, report.pace, report.computing),
        *(report.moving, report.forks, []),
        streamed=report.streamed,
    )
    (found,) = Fit([network("a", times)], ZEN5, 2, 1.0).errors(NETWORK_RATES["znver5"])
    assert found == pytest.approx(1)


def test_written_rates_are_read_back():
    text = Path(network_rates.__file__).read_text()
    assert text.endswith(source(NETWORK_RATES))


def test_the_transformer_is_a_model():
    onnx.checker.check_model(transformer(32, 5), full_check=True)
