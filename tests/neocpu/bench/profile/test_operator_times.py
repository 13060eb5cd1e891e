"""The time of a run by operators: attribution, limits, tables, and a real profile."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_plans import small_operator, small_plan, small_transform

import neocpu
from neocpu.bench.limits.dot_peak import DotSequence
from neocpu.bench.limits.roofline import Limits
from neocpu.bench.limits.tile_peak import TileSequence
from neocpu.bench.profile import network_profiles as module
from neocpu.bench.profile import presentation
from neocpu.bench.profile.network_profiles import (
    ModelProfile,
    average_share,
    product_kernels,
    total_share,
)
from neocpu.bench.profile.presentation import kernel_table
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.json_codec import fields_from_json
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.plan.operators import PlannedNumerics, PlannedScheme
from neocpu.plan.profiling import call_times
from neocpu.plan.profiling.operator_times import (
    Operator,
    ProfileReport,
    measure_profile,
    operators_of,
)
from neocpu.runtime.described_calls import DescribedCall
from neocpu.runtime.timeline import Timeline, TraceEvent
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, Numerics

LIMITS = Limits(threads=2, flops=1e11, dram=1e10, cache=1_000_000, cache_read=4e10)

PLAN = small_plan(
    ops=(
        *(
            small_operator(f"conv2d_{number}", "conv2d_winograd", kernel="conv2d_0", flops=8192)
            for number in range(2)
        ),
        *map(small_operator, ("global_pool_0", "gather_0", "relu_0")),
    ),
    transforms=(small_transform(),),
)


def _operator(name="op", kind="pool", seconds=1e-3, flops=0, weights=0, others=0):
    return Operator(
        name=name,
        kernel=name,
        kind=kind,
        work="",
        seconds=seconds,
        fastest=seconds,
        flops=flops,
        weights=weights,
        others=others,
    )


def _report(*operators):
    return ProfileReport(
        threads=2, seconds=0.010, instrumented=0.011, operators=operators, limits=LIMITS
    )


def test_calls_are_found_in_the_plan():
    calls = [
        ("transform_NCHW_to_NCHW8c", 1e-6, 1e-6, 0, 4096),
        ("conv2d_0", 2e-6, 1e-6, 256, 4096),
        ("conv2d_0", 3e-6, 1e-6, 256, 4096),
        ("fused_add_relu", 1e-6, 1e-6, 0, 4096),
        ("global_pool_0", 1e-6, 1e-6, 0, 2080),
        ("gather_0", 1e-6, 1e-6, 0, 4096),
        ("relu_0", 1e-6, 1e-6, 0, 4096),
    ]
    found = operators_of(PLAN, calls)
    assert [one.kind for one in found] == [
        *("transform", "convolution, winograd", "convolution, winograd"),
        *("other", "pool", "gather", "relu"),
    ]
    assert [one.name for one in found[1:3]] == ["conv2d_0", "conv2d_1"]
    assert [one.flops for one in found] == [0, 8192, 8192, 0, 0, 0, 0]
    assert found[0].work == "1x8x8x8"
    assert found[3].work == ""


def test_a_plan_that_says_nothing_costs_only_names():
    (found,) = operators_of(small_plan(), [("conv2d_0", 1e-6, 1e-6, 1, 2)])
    assert (found.name, found.kind) == ("conv2d_0", "other")


@pytest.mark.parametrize(
    ("flops", "weights", "others", "bound", "seconds"),
    [
        (10**9, 10**6, 10**6, "multiply-adds", 1e-2),
        # More weights than the cache holds come from memory, fewer from the cache.
        (10**6, 2 * 10**6, 10**6, "weights", 2e-4),
        (10**6, 8 * 10**5, 4 * 10**5, "weights", 2e-5),
        (0, 0, 8 * 10**5, "feature maps", 2e-5),
        (0, 0, 2 * 10**6, "feature maps", 2e-4),
        (0, 0, 0, "call", 0.0),
    ],
)
def test_the_nearest_limit_counts(flops, weights, others, bound, seconds):
    operator = _operator(flops=flops, weights=weights, others=others)
    found, least = _report(operator).least(operator)
    assert found == bound
    assert least == pytest.approx(seconds)


def test_equal_kernels_are_one_row_and_the_longest_comes_first():
    report = _report(
        _operator("a", "pool", 1e-3, others=400_000),
        _operator("b", "convolution, direct", 4e-3, flops=10**8),
        _operator("b", "convolution, direct", 4e-3, flops=10**8),
        _operator("c", "pool", 1e-3, others=400_000),
    )
    assert [(row.label, row.count) for row in report.kernels] == [("b", 2), ("a", 1), ("c", 1)]
    first, second = report.classes
    assert (first.label, second.label, second.count) == ("convolution, direct", "pool", 2)
    assert first.least == pytest.approx(2e-3)
    assert first.share_of_bound == pytest.approx(0.25)
    assert report.share(second) == pytest.approx(0.2)
    assert second.bytes == 800_000


def test_long_operators_that_are_no_convolutions_are_named():
    report = _report(
        _operator("conv", "convolution, direct", 0.5, flops=10**9),
        _operator("fc", "dense", 0.3, weights=10**7),
        _operator("runtime", "runtime", 0.1),
        _operator("resize", "other", 0.05, others=4_000_000),
        _operator("pool", "pool", 0.01, others=4_000),
    )
    assert [row.label for row in report.conspicuous] == ["resize"]
    note = presentation.conspicuous_note(report)
    assert "more than 3% of the run: resize (5.2%, limit: feature maps, 1% of it)" in note
    _, kernels = presentation.profile_tables("net", report)
    ((row, column),) = kernels.bold
    assert kernels.rows[row][0] == "resize"
    assert kernels.rows[row][column] == "5.2%"
    assert "no kernel takes more than 3%" in presentation.conspicuous_note(
        _report(_operator("conv", "convolution, direct"))
    )


def test_operators_far_below_their_limit_are_marked():
    report = _report(
        _operator("conv", "convolution, direct", 0.9, flops=10**9),
        _operator("good", "pool", 0.05, others=400_000_000),
        _operator("free", "other", 0.03),
        _operator("small", "pool", 0.015, others=4_000),
    )
    assert [row.label for row in report.far_below] == ["conv"]
    assert report.to_json()["far_below"] == ["conv"]
    _, kernels = presentation.profile_tables("net", report)
    limit = kernels.header.index("of the limit")
    assert [row[limit] for row in kernels.rows] == ["1% *", "80%", "", "0%"]
    assert (
        "* 1 kernel above 2% of the run below 10% of the limit, 90.5% of the run"
        in kernels.notes[1]
    )
    _, kernels = presentation.profile_tables("net", _report(_operator("free", "other", 0.03)))
    assert len(kernels.notes) == 1


def test_shortcomings_reported_by_the_compiler_are_shown():
    lacks = "gather (neighbours lie apart), about 30 µs"
    report = _report(
        replace(_operator("long", "other", 0.9), lacks=lacks),
        replace(_operator("short", "other", 0.001), lacks=lacks),
    )
    _, kernels = presentation.profile_tables("net", report)
    assert kernels.notes[1:] == (f"long is not as it should be: {lacks}.",)


def test_a_cache_of_unknown_speed_is_not_called_slow():
    report = replace(_report(_operator()), limits=replace(LIMITS, cache=0, cache_read=0.0))
    notes = " ".join(presentation.profile_tables("net", report)[0].notes)
    assert "10.0 GB/s from memory, unknown from the last-level cache." in notes


def test_a_bar_for_each_class():
    report = _report(_operator("a", "pool", 1e-3), _operator("b", "lrn", 2e-3), _operator("c"))
    (bars,) = presentation.present([ModelProfile("net", "llvm", report)]).parts
    assert bars.title.startswith("net")
    assert dict(bars.bars) == pytest.approx({"lrn, 1": 2000.0, "pool, 2": 2000.0})


def test_several_models_have_a_row_each():
    reports = [
        ModelProfile("one", "llvm", _report(_operator("p", "pool", others=4_000))),
        ModelProfile("two", "llvm", _report(_operator("d", "dense", weights=4_000))),
    ]
    table = presentation.profile_summary(reports)
    assert table.header[2:4] == ("dense", "pool")
    assert [row[:4] for row in table.rows] == [
        ("one", "1.00", "", "100.0%"),
        ("two", "1.00", "100.0%", ""),
    ]
    titles = [made.title for made in presentation.present(reports).tables]
    assert titles[:3] == [table.title, "Profile of one, threads: 2", "Kernels of one, threads: 2"]
    assert presentation.present(reports[:1]).tables[0].title == "Profile of one, threads: 2"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Artifact of a convolution, a pooling and a dense layer."""
    net = NetworkBuilder("tiny", (1, 3, 32, 32), seed=0)
    x = net.relu(net.batch_norm(net.conv(net.input, "c1", 16, 3, padding=1), "b1"), "r1")
    y = net.relu(net.batch_norm(net.conv(x, "c2", 16, 3, padding=1), "b2"), "r2")
    onnx_model = net.finish(net.classifier(y, "fc", 10))
    path = tmp_path_factory.mktemp("profile") / "tiny.so"
    with neocpu.compile(onnx_model, threads=1, verify=False) as made:
        made.export(path)
        return path, made.plan


def test_every_kernel_of_the_plan_is_timed_in_the_running_network(compiled):
    path, plan = compiled
    report = measure_profile(path, plan, replace(LIMITS, threads=1), rounds=2)
    assert report.seconds > 0
    assert report.instrumented > 0
    wanted = {op.kernel for op in plan.ops} | {each.kernel for each in plan.transforms}
    kernels = {one.kernel for one in report.operators}
    assert wanted - {None} <= kernels
    kinds = {one.kind.partition(",")[0] for one in report.operators}
    assert {"convolution", "pool", "dense", "runtime"} <= kinds
    (dense,) = (one for one in report.operators if one.kind == "dense")
    assert dense.flops == 2 * 16 * 10
    # Data, bias and output are read or written; the packed weights have at least 16 x 10 numbers.
    assert dense.weights >= 4 * (16 * 10 + 10)
    assert dense.others == 4 * (16 + 10)
    predicted = sum(row.predicted for row in report.kernels)
    assert predicted == pytest.approx(plan.predicted_us / 1e6)
    json.dumps(report.to_json())


def test_a_run_consists_of_its_calls_and_the_gaps_between():
    calls = (DescribedCall("conv", "conv2d_0", 40, 80), DescribedCall("pool", "pool_0", 0, 20))
    events = []

    def event(begin, end, run, call=-1, task=-1):
        times = {"begin": 1000 * run + begin, "end": 1000 * run + end}
        events.append(TraceEvent(**times, run=run, call=call, loop=task, task=task, thread=0))

    for run, (first, second, rest) in enumerate(((5, 3, 2), (7, 4, 1), (6, 3, 3))):
        event(0, first + second + rest, run)
        event(0, first, run, 0)
        event(0, first - 1, run, 0, task=0)
        event(first, first + second, run, 1)
    found = call_times.times_of(Timeline("net", calls, tuple(events)))
    (name, *seconds, weights, others), other = found["calls"]
    assert (name, weights, others) == ("conv2d_0", 40, 80)
    assert seconds == pytest.approx([6e-9, 5e-9])
    assert (other[0], *other[3:]) == ("pool_0", 0, 20)
    assert other[1:3] == pytest.approx((3e-9, 3e-9))
    assert found["between"] == pytest.approx(2e-9)


def test_an_artifact_that_does_not_run_is_an_error(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no artifact")
    with pytest.raises(ArtifactError, match=r"cannot profile broken\.so: .*not a complete"):
        measure_profile(broken, {}, LIMITS)


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

    monkeypatch.setattr(module, "measure_peaks", peaks)
    found = product_kernels(
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
    assert sequence("conv2d_matrix", WIDE) is None  # of pairs, on Arm
    tiled = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
    assert sequence("conv2d_split", None, target=tiled) == TileSequence(BFLOAT16_PRODUCTS, parts=2)
    in_integers = sequence("conv2d_matrix", WIDE, target=tiled)
    assert in_integers == TileSequence(replace(WIDE, output="int32"))


ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2"


def sequence(template, numerics, *, target=ARM, **parameters):
    """Return the multiplying instructions of a convolution."""
    stored = numerics and fields_from_json(PlannedNumerics, numerics.to_json()["numerics"])
    scheme = PlannedScheme(template=template, parameters=parameters)
    op = small_operator("conv2d_0", kernel="k", scheme=scheme, numerics=stored)
    (found,) = operators_of(small_plan(ops=(op,), target=target), [("k", 1e-3, 1e-3, 1, 1)])
    return found.sequence
