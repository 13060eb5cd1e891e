"""The table of kernels' shortcomings that ``neocpu explain`` prints."""

from __future__ import annotations

from small_plans import small_kernel, small_plan

from neocpu.plan.kernels import KernelShortcoming
from neocpu.plan.text.lack_table import show_lacks


def plan(*lacks):
    return small_plan(kernels=(small_kernel("relu_0", lacks=lacks), small_kernel("conv2d_0")))


def lack(cost, kind="gather", reason=""):
    return KernelShortcoming(kind=kind, detail="neighbours lie apart", reason=reason, cost_us=cost)


def test_costly_shortcomings_are_listed_and_the_rest_counted(capsys):
    show_lacks(plan(lack(40.0), lack(3.0), lack(1.0), lack(50.0, "scalar", "so it is")))
    lines = capsys.readouterr().out.splitlines()
    first, second, rest = lines[-3:]
    assert first.split("  ")[0] == "relu_0"
    assert "scalar: neighbours lie apart" in first
    assert first.endswith("so it is")
    assert "4.0%" in second
    assert second.endswith("no reason is known: please report this model")
    assert rest == "2 shortcomings of kernels below 0.5% of the run each, 4.0 µs in total."


def test_small_ones_alone_are_one_line(capsys):
    show_lacks(plan(lack(2.0)))
    assert capsys.readouterr().out == (
        "\n1 shortcoming of kernels below 0.5% of the run each, 2.0 µs in total.\n"
    )


def test_kernels_without_shortcomings_are_not_mentioned(capsys):
    show_lacks(plan())
    assert not capsys.readouterr().out
