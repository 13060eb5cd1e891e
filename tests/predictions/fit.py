"""The rates of a CPU, fitted so that predictions come nearest to networks' measured times."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from neocpu.bench.limits.roofline import measure_limits
from neocpu.foundation.machine import network_rates
from neocpu.foundation.machine.network_rates import NETWORK_RATES, NetworkRates
from neocpu.planning.operators.network_costs import MOVING
from neocpu.schedules.estimates.kernel_work import DEFAULT, KernelWork, work_seconds
from neocpu.schedules.estimates.memory_traffic import overlapped, stream_seconds
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.target import CpuTarget
from tests.predictions.measured import KernelTimes, Measurement

# Factors by which rates are changed, one after the other, as long as that helps.
STEPS = (1.3, 1.1, 1.03)
# The decrease of the error from which a fit counts as better.
LEAST = 1e-5
# The weight of a rate's change, by its logarithm, against one network's error.
CHANGE = 0.02
# The weight of a kernel's error against a network's, and the largest factor that counts.
KERNELS, WORST = 0.4, 4.0
# The share of last-level cache bandwidth that a core gets while it computes.
BEYOND = 0.8


def measured_rates(target: CpuTarget, threads: int) -> NetworkRates:
    """Return a new CPU's measured rates, without cycles and paces."""
    limits, unit = measure_limits(threads), target.dot_unit(FLOAT32)
    cache = limits.cache_read or limits.dram
    known = NETWORK_RATES[DEFAULT]
    return NetworkRates(
        frequency=limits.flops / (2 * unit.macs * unit.per_cycle * threads),
        own=known.own,
        beyond=BEYOND * cache / threads,
        memory=limits.dram,
        cache=cache,
        fork=known.fork,
        cycles=known.cycles,
    )


def company(found: Sequence[Measurement]) -> float:
    """Return the time of a run divided by the sum of its kernels' fastest rounds."""
    return statistics.median(each.median / each.took for each in found)


class Fit:
    """Measurements of networks on a CPU, and the errors of predictions at other rates.

    Only cycles, paces, `own` and `fork` may differ from the rates they were compiled with.
    ``company`` is the time of a run divided by the sum of its kernels' fastest rounds.
    """

    def __init__(
        self, found: Sequence[Measurement], target: CpuTarget, threads: int, company: float
    ) -> None:
        self._found, self._target, self._threads = found, target, threads
        self._company = company
        self._loops = {id(k): k.loops() for each in found for k in each.kernels}
        self._kept: dict[str, dict[int, float]] = {}

    @property
    def paces(self) -> list[str]:
        """The kinds of kernels, sorted by how much their pace matters."""
        shares: dict[str, float] = defaultdict(float)
        for each in self._found:
            for kernel in each.kernels:
                shares[kernel.pace] += kernel.took / each.took
                shares[MOVING] += kernel.moving / each.took
        return sorted(shares.keys() - {""}, key=lambda kind: -shares[kind])

    def best(self, rates: NetworkRates) -> NetworkRates:
        """Return the rates near ``rates`` that fit best.

        Paces of kinds that hardly matter to these networks stay.
        """
        paces = dict.fromkeys(self.paces, 1.0) | dict(rates.paces)
        rates = best = replace(rates, paces=dict(sorted(paces.items())))
        error = self.error(best) + self._change(rates, best)
        for step in STEPS:
            improved = True
            while improved:
                improved = False
                for name, kind, factor in self._changes(best, step):
                    candidate = _changed(best, name, kind, factor)
                    found = self.error(candidate) + self._change(rates, candidate)
                    if found < error - LEAST:
                        best, error, improved = candidate, found, True
        return best

    def _changes(self, rates: NetworkRates, step: float) -> list[tuple[str, str, float]]:
        """Return the names of rates, the kind for those by kind, and the change of each."""
        single = (("own", ""), ("fork", ""))
        by_kind = (("cycles", kind) for kind in rates.cycles), (("paces", k) for k in self.paces)
        every = [*single, *itertools.chain(*by_kind)]
        return [(*each, factor) for each in every for factor in (step, 1 / step)]

    def _change(self, rates: NetworkRates, other: NetworkRates) -> float:
        pairs = [(rates.own, other.own), (rates.fork, other.fork)]
        pairs += zip(rates.cycles.values(), other.cycles.values(), strict=True)
        pairs += zip(rates.paces.values(), other.paces.values(), strict=True)
        return CHANGE * sum(abs(math.log(b / a)) for a, b in pairs) / len(self._found)

    def error(self, rates: NetworkRates) -> float:
        """Return the error of predictions: that of networks, and a part of that of kernels."""
        return statistics.fmean(
            abs(math.log(of_run)) + KERNELS * of_kernels
            for of_run, of_kernels in self._errors(rates)
        )

    def errors(self, rates: NetworkRates) -> list[float]:
        """Return predicted over measured time of each network."""
        return [of_run for of_run, _ in self._errors(rates)]

    def _errors(self, rates: NetworkRates) -> Iterator[tuple[float, float]]:
        known = self._by_rates(rates)
        for each in self._found:
            total = of_kernels = 0.0
            for kernel in each.kernels:
                seconds = self._seconds(kernel, rates, known)
                took = self._company * kernel.took
                off = abs(math.log(max(seconds, 1e-9) / max(took, 1e-9)))
                of_kernels += kernel.took / each.took * min(off, math.log(WORST))
                total += seconds
            yield total / (self._company * each.took), of_kernels

    def _seconds(self, kernel: KernelTimes, rates: NetworkRates, known: dict[int, float]) -> float:
        if not kernel.pace:
            return known.get(id(kernel), kernel.predicted)
        entered = kernel.forks * rates.fork * (self._threads > 1)
        moving = kernel.moving * rates.paces.get(MOVING, 1.0)
        whole = kernel.computing * rates.paces.get(kernel.pace, 1.0) + moving
        return overlapped(whole, known[id(kernel)]) + entered

    def _by_rates(self, rates: NetworkRates) -> dict[int, float]:
        """Return the seconds of kernels by their loops, or of streaming if they have none."""
        key = repr(replace(rates, paces={}))
        if key not in self._kept:
            before = NETWORK_RATES.get(self._target.mcpu)
            NETWORK_RATES[self._target.mcpu] = rates
            self._kept[key] = dict(self._computed())
            if before is None:
                del NETWORK_RATES[self._target.mcpu]
            else:
                NETWORK_RATES[self._target.mcpu] = before
        return self._kept[key]

    def _computed(self) -> Iterator[tuple[int, float]]:
        for each in self._found:
            target = self._target.in_network(each.weight_bytes, self._threads)
            for kernel in each.kernels:
                loops: KernelWork = self._loops[id(kernel)]
                if kernel.pace:
                    size = math.ceil(kernel.streamed)
                    yield id(kernel), kernel.calls * stream_seconds(size, target, self._threads)
                elif loops:
                    yield id(kernel), kernel.calls * work_seconds(loops, target, self._threads)


def _changed(rates: NetworkRates, name: str, kind: str, factor: float) -> NetworkRates:
    value = getattr(rates, name)
    if not kind:
        return replace(rates, **{name: _rounded(value * factor)})
    return replace(rates, **{name: {**value, kind: _rounded(value[kind] * factor)}})


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def write(rates: dict[str, NetworkRates]) -> Path:
    """Write the rates of CPUs to the module that has them."""
    path = Path(network_rates.__file__)
    head, _, _ = path.read_text().partition("NETWORK_RATES: Final")
    path.write_text(head + source(rates))
    return path


def _number(value: float) -> str:
    return f"{value:.3e}".replace("e+", "e")


def source(rates: dict[str, NetworkRates]) -> str:
    """Return the table of CPUs as Python code."""
    lines = ["NETWORK_RATES: Final[dict[str, NetworkRates]] = {"]
    for name, known in sorted(rates.items()):
        lines.append(f'    "{name}": NetworkRates(')
        for field in fields(known):
            value = getattr(known, field.name)
            if isinstance(value, float):
                lines.append(f"        {field.name}={_number(value)},")
            else:
                items = (f'            "{kind}": {each!r},' for kind, each in value.items())
                lines += [f"        {field.name}={{", *items, "        },"]
        lines.append("    ),")
    return "\n".join([*lines, "}", '"""Rates by LLVM\'s name of the CPU."""', ""])
