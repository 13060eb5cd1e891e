"""Profiles of networks for a page: where the time goes, by class of operators."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.bench.profile.network_profiles import ModelProfile
from neocpu.plan.result_pages.parts import Bars, Part


def pictures(profiles: Sequence[ModelProfile]) -> tuple[Part, ...]:
    """Return bars of each network, what takes most first."""
    return tuple(map(_bars, profiles))


def _bars(profile: ModelProfile) -> Bars:
    rows = sorted(profile.profile.classes, key=lambda row: -row.seconds)
    bars = tuple((f"{row.label}, {row.count}", row.seconds * 1e6) for row in rows)
    return Bars(f"{profile.name}, where a run's time goes", "us", bars)
