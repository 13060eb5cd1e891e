"""8-bit convolutions compared with the peak rate of their instructions."""

from __future__ import annotations

import pytest
from small_plans import small_operator, small_plan

from neocpu.bench.limits.dot_peak import DotSequence
from neocpu.bench.limits.roofline import Limits
from neocpu.bench.profile import network_profiles as module
from neocpu.bench.profile.network_profiles import average_share, integer_kernels, total_share
from neocpu.bench.profile.presentation import kernel_table
from neocpu.foundation.json_codec import fields_from_json
from neocpu.plan.operators import PlannedNumerics, PlannedScheme
from neocpu.plan.profiling.operator_times import Operator, ProfileReport, operators_of
from neocpu.schedules.vocabulary.numerics import Numerics

PAIRS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8", int16_sums=4)
WIDE = Numerics(data="uint8", weights="int8", sum="int32", output="float32")


def convolution(name, work, seconds, flops, sequence):
    slow = 2 * seconds
    return Operator(
        name=name,
        kernel=name,
        kind="convolution, dot",
        work=work,
        seconds=slow,
        fastest=seconds,
        flops=flops,
        weights=1,
        others=1,
        sequence=sequence,
    )


@pytest.fixture
def kernels(monkeypatch):
    operators = (
        convolution("a", "small", 1e-3, 2_000_000, DotSequence(PAIRS, 2)),
        convolution("b", "small", 3e-3, 2_000_000, DotSequence(PAIRS, 2)),
        convolution("c", "large", 2e-3, 8_000_000, DotSequence(WIDE, 1)),
        Operator(
            name="d",
            kernel="d",
            kind="convolution, winograd",
            work="other",
            seconds=1e-3,
            fastest=1e-3,
            flops=9,
            weights=1,
            others=1,
        ),
    )
    asked = []

    def peaks(target, threads, sequences):
        asked.append((target, threads, len(sequences)))
        return {s: 2e9 if s.groups == 2 else 4e9 for s in sequences}

    monkeypatch.setattr(module, "measure_dot_peaks", peaks)
    found = integer_kernels(
        ProfileReport(
            threads=2,
            seconds=0.01,
            instrumented=0.01,
            operators=operators,
            limits=Limits(threads=2, flops=1e11, dram=1e10),
        ),
        "haswell",
    )
    assert asked == [("haswell", 2, 2)]
    return found


def test_equal_shapes_are_one_row_beside_their_peak(kernels):
    rows = [(each.work, each.sequence, each.count, each.macs) for each in kernels]
    assert rows == [("small", "x2", 2, 2_000_000), ("large", "widened", 1, 4_000_000)]
    assert [each.share for each in kernels] == pytest.approx([0.25, 0.5])
    assert average_share(kernels) == pytest.approx(0.375)
    assert total_share(kernels) == pytest.approx(2e-3 / 6e-3)


def test_the_table_has_the_average(kernels):
    table = kernel_table("net", kernels)
    assert table.rows[0] == ("small", "x2", "2", "4000.0", "0.5", "2.0", "25%")
    assert "On average over the shapes 38% of the peak are reached" in table.notes[0]
    assert "all of their time 33%" in table.notes[0]


def test_a_plan_names_the_multiplying_instruction():
    assert sequence("conv2d_dot", PAIRS, int16_groups=2) == DotSequence(PAIRS, 2)
    assert sequence("conv2d_dot", WIDE, int16_groups=0) == DotSequence(WIDE, 1)
    assert sequence("conv2d_direct", None) is None
    assert sequence("conv2d_matrix", WIDE) is None  # its peak is not that of vectors


def sequence(template, numerics, **parameters):
    """Return the multiplying instructions of a convolution."""
    stored = numerics and fields_from_json(PlannedNumerics, numerics.to_json()["numerics"])
    scheme = PlannedScheme(template=template, parameters=parameters)
    op = small_operator("conv2d_0", kernel="k", scheme=scheme, numerics=stored)
    (found,) = operators_of(small_plan(ops=(op,)), [("k", 1e-3, 1e-3, 1, 1)])
    return found.sequence
