"""What an operator costs in each format: measured where a record exists, estimated otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from neocpu.planning.choice import ESTIMATED, Choice
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.weights import packed_bytes
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, Admission
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.scheme import Scheme, scheme_from_json
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# An unmeasured scheme is trusted less than a measured one of equal expectation.
ESTIMATE_PENALTY = 1.05

Keep: TypeAlias = Callable[[str, Callable[[], Any]], Any]
"""Returns what is kept of a subject, as JSON, or makes and keeps it; anew where our code changes.
"""


def make_anew(subject: str, make: Callable[[], Any]) -> Any:
    """Keep nothing."""
    return make()


def formats(workload: Conv2dWorkload, scheme: Scheme) -> tuple[Format, Format]:
    """Return the formats that a convolution reads and writes under ``scheme``."""
    numerics = workload.numerics
    return Format(scheme.in_layout, numerics.data), Format(scheme.out_layout, numerics.output)


@dataclass(frozen=True, slots=True)
class CostModel(MemoryCosts):
    """Costs of operators and transforms for one target and thread count.

    Attributes
    ----------
    templates : frozenset of str or None
        Templates to choose among; None for all.
    admission : Admission
        Which schemes are exact enough.
    byte_price : float
        Seconds that a plan may take longer per byte of packed weights it saves: the multiplier of
        a limit on them (`neocpu.planning.weight_limit`), 0 without one.
    keep : callable
        Where lists of schemes and their estimates may be found.
    """

    templates: frozenset[str] | None = None
    admission: Admission = EVERY_TILE
    byte_price: float = 0.0
    keep: Keep = make_anew

    def price(self, choice: Choice) -> float:
        """Return what the search minimises: a choice's seconds, and what its weights cost."""
        return choice.seconds + self.byte_price * choice.weight_bytes

    def conv_choices(self, workload: Conv2dWorkload) -> tuple[Choice, ...]:
        """Return the best choice for every pair of input and output formats, best first.

        Estimates are scaled by what this workload's measurements say of its estimates, so that
        the two kinds of cost compare.
        """
        found = self.measured(workload)
        records = found.seconds
        listed = self._listed(workload)
        # What was measured counts, even if the space does not list it: also a relative's schemes
        # fit this CPU's registers.
        legal = self._admitted(workload, dict.fromkeys((*listed, *records)))
        # Where every scheme failed, it was the measuring: a network still compiles.
        schemes = [s for s in legal if records.get(s, 0.0) is not None] or list(legal)
        estimates = {s: listed[s] if s in listed else self._estimate(workload, s) for s in schemes}
        ratios = [sec / estimates[s] for s, sec in records.items() if sec and s in estimates]
        scale = statistics.median(ratios) * ESTIMATE_PENALTY if ratios else 1.0
        best: dict[tuple[Format, Format], Choice] = {}
        for scheme in schemes:
            known = records.get(scheme)
            seconds = known if known is not None else estimates[scheme] * scale
            source = found.source if known is not None else ESTIMATED
            pair = formats(workload, scheme)
            # Splitting sums hardly takes time, so that the cost is the plain scheme's.
            exact = registry.exact_form(self.admission, scheme, workload)
            choice = Choice(*pair, seconds, source, exact, packed_bytes(workload, scheme))
            if pair not in best or self.price(choice) < self.price(best[pair]):
                best[pair] = choice
        return tuple(sorted(best.values(), key=self.price))

    def _listed(self, workload: Conv2dWorkload) -> dict[Scheme, float]:
        """Return every scheme of the templates' spaces, best first, with its estimate."""

        def estimated() -> list[tuple[Any, float]]:
            found = registry.schemes(workload, self.target)
            return [(scheme.to_json(), self._estimate(workload, scheme)) for scheme in found]

        # What is not ours may change without a new version of neocpu.
        keep = self.keep if registry.is_ours() else make_anew
        rows = keep(f"schemes {workload!r} {self.target!r} {self.threads}", estimated)
        return {scheme_from_json(scheme): seconds for scheme, seconds in rows}

    def _admitted(self, workload: Conv2dWorkload, known: Iterable[Scheme]) -> tuple[Scheme, ...]:
        every = registry.admitted(self.admission, known, workload)
        if self.templates is None:
            return every
        # A network always compiles: where no wanted algorithm applies, the others stay.
        return tuple(s for s in every if s.template in self.templates) or every

    def _estimate(self, workload: Conv2dWorkload, scheme: Scheme) -> float:
        return registry.estimate(workload, scheme, self.target, self.threads)
