"""The curve by hand: choices count with another run's seconds."""

from __future__ import annotations

import dataclasses
import math

from fake_builder import WORKLOAD, request

from neocpu.search.tuner import TuneProgress
from neocpu.search.tuning_curve import CurvePoint, tuning_curve

OTHER = dataclasses.replace(WORKLOAD, height=16)
SLOW, FAST, OTHER_SLOW = request(1, 300), request(1, 100), request(1, 500, OTHER)
REFERENCE = {SLOW: 3.0, FAST: 1.0, OTHER_SLOW: 5.0}


def event(trials: int, seconds: float, chosen, workload=WORKLOAD, best=math.inf) -> TuneProgress:
    scheme = None if chosen is None else chosen.scheme
    return TuneProgress(
        doing="measure",
        trials=trials,
        total=9,
        failed=0,
        seconds=seconds,
        workload=workload,
        chosen=scheme,
        best=best,
    )


def test_every_measurement_is_a_point_at_the_seconds_of_the_reference():
    events = [
        event(1, 0.5, None, OTHER),
        event(2, 1.0, SLOW, best=0.1),
        event(3, 2.5, FAST, best=0.05),
    ]
    untuned = {WORKLOAD: SLOW.scheme, OTHER: OTHER_SLOW.scheme}
    curve = tuning_curve({WORKLOAD: 2, OTHER: 1}, untuned, events, REFERENCE)
    assert curve == (
        CurvePoint(0.0, 0, 11.0),
        CurvePoint(0.5, 1, 11.0),
        CurvePoint(1.0, 2, 11.0),
        CurvePoint(2.5, 3, 7.0),
    )
