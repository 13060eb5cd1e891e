"""What became of scaled networks and planted errors as a table, and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neocpu.bench.accuracy.planted_errors import PLACES, WRONG, RefusalReport, Trial
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.table import Table
from neocpu.schedules.vocabulary.accuracy import DEFAULT

METHOD: Final = (
    "Each network is run with its inputs, or compiled with the weights and biases of its "
    "convolutions and dense layers, multiplied by a factor; nothing else is adapted, so values may "
    "overflow. Then single elements of its outputs are replaced: by zero, their "
    "negative, their neighbour, and by values that are slightly larger and smaller; in "
    f"{PLACES} places of each output, where that changes an element by {100 * WRONG:g} % or more "
    "of itself and of its scale. A cell says how many of them were refused. Where outputs are not "
    "finite, as in numpy's float32, or float32 exceeds the bound, nothing is planted."
)


def refusal_table(reports: Sequence[RefusalReport], failures: Sequence[ModelFailure] = ()) -> Table:
    """Return a row per network and a column per factor; what was judged wrongly is bold."""
    heads = [(trial.kind, trial.scale) for trial in reports[0].trials] if reports else []
    rows = tuple((report.name, *map(_cell, report.trials)) for report in reports)
    bold = frozenset(
        (row, column)
        for row, report in enumerate(reports)
        for column, trial in enumerate(report.trials, 1)
        if not trial.right
    )
    notes = [f"{failure.name} failed: {failure.reason}" for failure in failures]
    for report in reports:
        notes += filter(None, (_note(report.name, trial) for trial in report.trials))
    trials = [trial for report in reports for trial in report.trials]
    if trials:
        refused = sum(bool(trial.refused) for trial in trials)
        planted, found = (sum(getattr(t, key) for t in trials) for key in ("planted", "found"))
        notes.append(
            f"{refused} of {len(trials)} right networks were refused, and {found} of {planted} "
            "planted errors."
        )
    header = ("network", *(f"{kind} x {scale:g}" for kind, scale in heads))
    return Table("Planted errors that were refused", header, rows, tuple(notes), bold)


def _cell(trial: Trial) -> str:
    if trial.refused:
        return "refused"
    return f"{trial.found} of {trial.planted}" if trial.planted else "-"


def _note(name: str, trial: Trial) -> str:
    """Return what is to be said of a trial; empty for most."""
    where = f"{name}, {trial.kind} x {trial.scale:g}"
    if trial.refused:
        return f"{where}: {trial.refused}"
    if trial.float32_error > DEFAULT.bound:
        return f"{where}: errs by {trial.norm_error:.1g}, float32 by {trial.float32_error:.1g}."
    if trial.missed:
        return f"{where}: compiled again, for it erred too much {', '.join(trial.missed)}."
    return ""


def render(
    title: str, reports: Sequence[RefusalReport], failures: Sequence[ModelFailure], run: Run
) -> str:
    """Return the document."""
    table = refusal_table(reports, failures).markdown().rstrip()
    return page(title, run, METHOD, ["## Results", table])
