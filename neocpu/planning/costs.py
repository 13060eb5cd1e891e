"""The cost of an operator in each format: measured where a record exists, estimated otherwise."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from neocpu.planning.choice import ESTIMATED, Choice
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.weights import Packing, packed_bytes, packing
from neocpu.schedules import registry
from neocpu.schedules.convolutions.matrix_products import conv2d_split
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, Admission
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.scheme import Scheme, SplitScheme, scheme_from_json
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

_log = logging.getLogger("neocpu")

ESTIMATE_PENALTY = 1.05  # unmeasured schemes are trusted less than measured ones
# Packings that are offered besides the best, because another plan may need them: at most so many
# for a pair of formats, each at most so many times as slow as the best.
PACKINGS = 4
SLOWER = 1.2
# Rounds that leave out recorded schemes without a kernel; then all that no template lists go.
UNLISTED_ROUNDS = 4

_Kind: TypeAlias = tuple[Format, Format, Packing | None]
Keep: TypeAlias = Callable[[str, Callable[[], Any]], Any]
"""Returns the JSON value that is kept under a key, made anew if there is none or code changed."""


def make_anew(key: str, make: Callable[[], Any]) -> Any:
    """Return what ``make`` returns, and keep nothing."""
    return make()


def formats(workload: Conv2dWorkload, scheme: Scheme) -> tuple[Format, Format]:
    numerics = workload.numerics
    return Format(scheme.in_layout, numerics.data), Format(scheme.out_layout, numerics.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel(MemoryCosts):
    """Costs of operators and transforms for one target and thread count."""

    templates: frozenset[str] | None = None  # templates to choose among; None for all
    admission: Admission = EVERY_TILE  # bound on errors that schemes have to keep
    byte_price: float = 0.0  # see `neocpu.planning.weight_limit`
    keep: Keep = make_anew  # keeps lists of schemes with their estimates, and choices: see `Keep`
    keeps_choices: bool = True  # not for one price of bytes after another
    by_packing: bool = False  # offers packings that other plans may need
    sparing: bool = False  # whether slower schemes with fewer bytes of weights are offered as well

    @property
    def splits_values(self) -> bool:
        """Whether float32 values may be multiplied as sums of two bfloat16 values."""
        named = self.templates is None or SplitScheme.template in self.templates
        admitted = self.admission.error_factor >= conv2d_split.ERROR_FACTOR
        return named and admitted and self.target.bfloat16_tiles is not None

    def price(self, choice: Choice) -> float:
        """Return what the search minimises: a choice's seconds plus the price of its weights."""
        return choice.seconds + self.byte_price * choice.weight_bytes

    def conv_choices(self, workload: Conv2dWorkload) -> tuple[Choice, ...]:
        """Return the best choice for every pair of input and output formats, best first.

        Estimates are scaled by this workload's median ratio of measurements to estimates.
        """
        found = self.measured(workload)
        records = found.seconds
        listed = self._listed(workload)
        # Measured schemes count even if unlisted: those of a related CPU fit its registers, too.
        legal = self._admitted(workload, dict.fromkeys((*listed, *records)))
        # If every scheme failed, the measuring was at fault: the network still has to compile.
        schemes = [s for s in legal if records.get(s, 0.0) is not None] or list(legal)
        estimates = {s: listed[s] if s in listed else self._estimate(workload, s) for s in schemes}
        ratios = [sec / estimates[s] for s, sec in records.items() if sec and s in estimates]
        scale = statistics.median(ratios) * ESTIMATE_PENALTY if ratios else 1.0
        every = []
        for scheme in schemes:
            known = records.get(scheme)
            seconds = known if known is not None else estimates[scheme] * scale
            source, day = (ESTIMATED, "") if known is None else (found.source, found.day)
            in_format, out_format = formats(workload, scheme)
            every.append(
                Choice(
                    in_format=in_format,
                    out_format=out_format,
                    seconds=seconds,
                    source=source,
                    scheme=scheme,
                    day=day,
                )
            )
        best = self._best_runnable(workload, every, listed)
        return tuple(self._exact(workload, each) for each in best)

    def _best_runnable(
        self, workload: Conv2dWorkload, choices: Sequence[Choice], listed: Container[Scheme]
    ) -> tuple[Choice, ...]:
        """Return the best choice of each pair of formats for which a kernel can be made.

        Only schemes that no template lists are tried, in milliseconds each: records, which anybody
        may have written, have them, and one without a kernel would end the compilation later.
        """
        for _ in range(UNLISTED_ROUNDS):
            best = BestChoices(self, workload)
            for choice in choices:
                best.offer(choice)
            found = best.in_order()
            unlisted = (c.scheme for c in found if c.scheme and c.scheme not in listed)
            broken = {
                scheme
                for scheme in unlisted
                if not registry.can_lower(workload, scheme, self.target, self.threads)
            }
            if not broken:
                return found
            for scheme in sorted(map(str, broken)):
                _log.warning("record skipped: no kernel can be made of %s by %s", workload, scheme)
            choices = [choice for choice in choices if choice.scheme not in broken]
        return self._best_runnable(workload, [c for c in choices if c.scheme in listed], listed)

    def _exact(self, workload: Conv2dWorkload, choice: Choice) -> Choice:
        """Return a choice with sums split as admitted, which hardly takes time: the cost stays."""
        assert choice.scheme is not None
        next_best = choice.runner_up and self._exact(workload, choice.runner_up)
        scheme = registry.exact_form(self.admission, choice.scheme, workload)
        return replace(choice, scheme=scheme, runner_up=next_best)

    def _listed(self, workload: Conv2dWorkload) -> dict[Scheme, float]:
        def estimated() -> list[tuple[Any, float]]:
            found = registry.schemes(workload, self.target, self.threads)
            return [(scheme.to_json(), self._estimate(workload, scheme)) for scheme in found]

        rows = self.keep(f"schemes {workload!r} {self.target!r} {self.threads}", estimated)
        listed = {scheme_from_json(scheme): seconds for scheme, seconds in rows}
        for scheme in registry.sparing_schemes(workload, self.target) if self.sparing else ():
            listed[scheme] = self._estimate(workload, scheme)
        return listed

    def _admitted(self, workload: Conv2dWorkload, known: Iterable[Scheme]) -> tuple[Scheme, ...]:
        every = registry.admitted(self.admission, known, workload)
        if self.templates is None:
            return every
        # A network always compiles: if none of the requested templates applies, the others stay.
        return tuple(s for s in every if s.template in self.templates) or every

    def _estimate(self, workload: Conv2dWorkload, scheme: Scheme) -> float:
        return registry.estimate(workload, scheme, self.target, self.threads)


class BestChoices:
    """The cheapest and the second cheapest convolution per pair of formats, ``known`` included."""

    def __init__(
        self, costs: CostModel, workload: Conv2dWorkload, known: Iterable[Choice] = ()
    ) -> None:
        self._costs, self._workload, self._price = costs, workload, costs.price
        self._best: dict[_Kind, Choice] = {}
        for choice in known:
            assert choice.scheme is not None
            self._best[self._kind(choice.in_format, choice.out_format, choice.scheme)] = choice

    def offer(self, choice: Choice) -> None:
        """Take a way to run it if it is cheaper than the two best ones, with its weights' price."""
        assert choice.scheme is not None
        kind, price = self._kind(choice.in_format, choice.out_format, choice.scheme), self._price
        best = self._best.get(kind)
        second = best and best.runner_up
        # The price is at least the seconds, so that few choices need their weights counted.
        if second is not None and choice.seconds >= price(second):
            return
        choice = replace(choice, weight_bytes=packed_bytes(self._workload, choice.scheme))
        if best is None:
            self._best[kind] = choice
        elif price(choice) < price(best):
            self._best[kind] = replace(choice, runner_up=replace(best, runner_up=None))
        elif second is None or price(choice) < price(second):
            self._best[kind] = replace(best, runner_up=choice)

    def in_order(self) -> tuple[Choice, ...]:
        """Return the cheapest way of each pair, best first."""
        found = sorted(self._best.values(), key=self._costs.price)
        return tuple(_near(found, self._costs) if self._costs.by_packing else found)

    def _kind(self, in_format: Format, out_format: Format, scheme: Scheme) -> _Kind:
        kept = packing(self._workload, scheme) if self._costs.by_packing else None
        return in_format, out_format, kept


def _near(choices: Sequence[Choice], costs: CostModel) -> Iterator[Choice]:
    """Yield choices that are not much slower than the best one between their formats."""
    best: dict[tuple[Format, Format], list[Choice]] = {}
    for choice in choices:
        others = best.setdefault((choice.in_format, choice.out_format), [])
        others.append(choice)
        if len(others) <= PACKINGS and costs.price(choice) <= SLOWER * costs.price(others[0]):
            yield choice
