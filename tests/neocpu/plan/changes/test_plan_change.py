"""Two plans: their operators are matched, changes are listed, and gains add up."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_plans import small_plan

from neocpu.foundation.errors import UsageError
from neocpu.plan.changes.plan_change import Side, changed, compare_plans
from neocpu.plan.changes.steps import Step, bare, pair_up, steps_of
from neocpu.plan.operators import PlannedScheme
from neocpu.plan.result_pages.plan_change_page import plan_change_sections

DIRECT = PlannedScheme(
    template="conv2d_direct", parameters={"ic_bn": 16, "oc_bn": 16, "unroll_ker": True}
)
WINOGRAD = PlannedScheme(template="conv2d_winograd", parameters={"ic_bn": 16, "tile": 4})
OTHER_TILE = {"ic_bn": 16, "oc_bn": 32, "unroll_ker": False}
RUNTIME_STEP = Step(name="runtime", kind="runtime", predicted_us=2.0)


def conv(name, us, *values, **more):
    workload = more.pop("workload", "1x64x56x56 -> 64, 3x3 +bias_add +relu")
    settings = {"scheme": DIRECT, "layouts": ("NCHW16c", "NCHW16c"), "precision": "fp32", **more}
    shapes = tuple((value, (64, 56, 56)) for value in values)
    return Step(
        name=name, kind="conv2d", workload=workload, predicted_us=us, values=shapes, **settings
    )


def move(us, times=1, to="NCHW32c"):
    layouts = ("NCHW16c", to)
    return Step(
        name=" → ".join(layouts),
        kind="transform",
        workload="1x64",
        layouts=layouts,
        predicted_us=us,
        times=times,
    )


def side(*steps, label="a.so"):
    header = SimpleNamespace(
        name="net", target="llvm", threads=2, plan=small_plan(), calls=(), arena_bytes=4
    )
    return Side(label, header, steps)


def names(before, after):
    pairs = pair_up(before, after)
    return [(p.before and p.before.name, p.after and p.after.name, p.by) for p in pairs]


def test_changes_list_tensors_first_then_operators_in_order():
    # Numbers of operators shift after an additional one; tensors identify them.
    before = [conv("conv_0", 1, "x"), conv("conv_1", 1, "y"), conv("conv_2", 1), conv("conv_3", 1)]
    after = [conv("conv_0", 1, "y"), conv("conv_1", 1, "x"), conv("conv_2", 1), conv("conv_3", 1)]
    assert names(before, after) == [
        *(("conv_1", "conv_0", "tensor"), ("conv_0", "conv_1", "tensor")),
        *(("conv_2", "conv_2", "workload"), ("conv_3", "conv_3", "workload")),
    ]


def test_a_tensor_of_that_name_and_another_shape_is_another():
    other = replace(conv("b", 1), workload="1x8 -> 9", values=(("x", (9,)),))
    assert names([conv("a", 1, "x")], [other]) == [("a", None, ""), (None, "b", "")]


def test_the_same_operator_with_other_things_fused():
    fused = conv("b", 1, workload="relu+ 1x64x56x56 -> 64, 3x3 +bias_add +add, int8")
    assert names([conv("a", 1)], [fused]) == [("a", "b", "operator")]


def test_removed_operators_are_listed_in_their_old_place():
    before = [conv("a", 1, "x"), conv("b", 1, workload="gone"), conv("c", 1, "z")]
    after = [conv("a", 1, "x"), conv("d", 1, workload="new"), conv("c", 1, "z")]
    assert [pair[:2] for pair in names(before, after)] == [
        *(("a", "a"), ("b", None), (None, "d"), ("c", "c"))
    ]


def test_a_transform_that_holds_an_operators_tensor_is_no_counterpart():
    held = replace(move(1), values=(("x", (64, 56, 56)),))
    assert names([conv("a", 1, "x")], [held]) == [("a", None, ""), (None, held.name, "")]


@pytest.mark.parametrize(
    ("workload", "computed"),
    [
        ("1x64x56x56 -> 64, 3x3 /2 +bias_add +relu", "1x64x56x56 -> 64, 3x3 /2"),
        ("mul+add+ 1x8x7x7 -> 4, 1x1 g2, u8 x s8", "1x8x7x7 -> 4, 1x1 g2"),
        ("1x2048 -> 1000 +bias_add", "1x2048 -> 1000"),
        ("", ""),
    ],
)
def test_workloads_are_shown_without_fused_steps(workload, computed):
    assert bare(workload) == computed


def test_changes_give_their_reason_and_their_gain():
    before = side(
        conv("same", 10, "s"),
        conv("scheme", 10, "a"),
        conv("algorithm", 20, "b"),
        conv("layout", 5, "c"),
        conv("integers", 30, "d"),
        conv("fused", 5, "e"),
        conv("known", 5, "f", source="estimated"),
        Step(name="fused_add", kind="other", predicted_us=3.0),
        move(4, times=3),
        RUNTIME_STEP,
    )
    after = side(
        conv("same", 10, "s"),
        conv("scheme", 8, "a", scheme=replace(DIRECT, parameters=OTHER_TILE)),
        conv("algorithm", 12, "b", scheme=WINOGRAD),
        conv("layout", 6, "c", layouts=("NCHW16c", "NCHW32c")),
        conv("integers", 10, "d", precision="int8", scheme=WINOGRAD),
        conv("fused", 6, "e", workload="1x64x56x56 -> 64, 3x3 +bias_add +add +relu"),
        conv("known", 4, "f", source="measured"),
        move(1, times=1),
        RUNTIME_STEP,
        label="b.so",
    )
    found = compare_plans(before, after)
    told = {change.step.name: (change.reason, change.words) for change in found.changes}
    assert told == {
        "same": ("same", ()),
        "scheme": ("scheme", ("oc_bn 16 → 32", "unroll_ker yes → no")),
        "algorithm": ("algorithm", ("direct → winograd",)),
        "layout": ("layout", ("writes NCHW16c → NCHW32c",)),
        "integers": ("precision", ("fp32 → int8", "direct → winograd")),
        "fused": ("fusion", ("fused: add",)),
        "known": ("cost", ("as before; measured, was estimated",)),
        "fused_add": ("gone", ("gone",)),
        "NCHW16c → NCHW32c": ("transforms", ("3 → 1 times",)),
        "runtime": ("same", ()),
    }
    assert found.bought_us == pytest.approx(94 - 59)
    assert sum(change.bought_us for change in found.changes) == pytest.approx(found.bought_us)
    assert sum(us for _, us in found.by_reason.values()) == pytest.approx(found.bought_us)
    assert [change.step.name for change in changed(found)][:2] == ["integers", "algorithm"]
    document = found.to_json()
    assert document["before"]["predicted_us"] == 94
    assert document["before"]["convolutions_in"] == {"fp32": 7}
    assert document["after"]["convolutions_in"] == {"fp32": 6, "int8": 1}
    assert document["after"]["transforms"] == 1
    assert document["steps"][1]["before"]["scheme"] == DIRECT.to_json()


def test_measured_times_count_where_there_are_any():
    before, after = side(conv("a", 10, "x", measured_us=7.0)), side(conv("a", 10, "x"))
    assert compare_plans(before, after).bought_us == -3


def test_convolutions_that_change_places_compute_in_as_many_numbers():
    steps = [conv("a", 1, "x"), conv("b", 1, "y"), conv("c", 1, "z", precision="int8")]
    before, after = side(*steps), side(*reversed(steps), label="b.so")
    texts = [str(part) for part in plan_change_sections(compare_plans(before, after), ())[0].parts]
    assert "convolutions after" not in "".join(texts)
    assert list(after.convolutions_in.items()) == [("fp32", 2), ("int8", 1)]


def test_different_models():
    other = [conv(f"c{i}", 1, f"v{i}", workload=f"1x{i} -> 3") for i in range(4)]
    mine = [conv("a", 1, "x"), *(conv(f"b{i}", 1, workload=f"2x{i} -> 3") for i in range(4))]
    with pytest.raises(UsageError, match="of 4 operators they have 0 in common"):
        compare_plans(side(*mine), side(*other, label="b.so"))
    with pytest.raises(UsageError, match="of 0 operators"):
        compare_plans(side(*mine), side())
    # Nothing can be said about models without an operator in the plan.
    assert compare_plans(side(), side()).bought_us == 0


def test_steps_of_an_artifact_add_up(small):
    header = small.header
    steps = steps_of(header)
    assert sum(step.us for step in steps) == pytest.approx(header.plan.predicted_us)
    assert {name for step in steps for name, _ in step.values} >= {"r1", "y"}
    assert steps[-1].kind == "runtime"
    # A plan of an older version has no kernels.
    older = replace(header.plan, kernels=())
    steps = steps_of(header.with_plan(older))
    assert sum(step.us for step in steps) == pytest.approx(
        sum(op.cost_us for op in older.ops) + sum(each.cost_us for each in older.transforms)
    )
