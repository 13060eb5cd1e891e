"""The small parts of the command line: values of options, units, progress."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from small_plans import small_kernel, small_operator, small_plan, verified
from waiting import wait_until

from neocpu.cli.options import NAMES, SHAPE
from neocpu.foundation.console.progress_line import (
    PLAIN_INTERVAL,
    PlainProgress,
    live_progress,
    show_progress,
)
from neocpu.foundation.console.terminal import print_table
from neocpu.foundation.progress import Progress
from neocpu.foundation.units import duration, parse_size, plural, size
from neocpu.plan.kernels import KernelShortcoming
from neocpu.plan.outcome import BrokenPromise, CalibratedLayer, Calibration, Promise, WeightSizes
from neocpu.plan.text.plan_screen import show_lacks
from neocpu.plan.text.plan_text import error_text, missed_text
from neocpu.plan.text.tuning_summary import weights_hint
from neocpu.runtime.header_text import kept_bound
from neocpu.schedules.vocabulary.accuracy import BFLOAT16, DEFAULT
from neocpu.verification.reference.comparison import FLOAT32_FACTOR


def test_shapes_may_have_colons_in_the_name():
    assert SHAPE.convert("x:1,3,224,224", None, None) == ("x", (1, 3, 224, 224))
    assert SHAPE.convert("import/x:0:7", None, None) == ("import/x:0", (7,))


def test_names():
    assert NAMES.convert("direct, depthwise", None, None) == ("direct", "depthwise")


def test_units():
    assert [duration(s) for s in (3.24e-6, 0.018, 2.44, 365.2)] == [
        "3.2 µs",
        "18.00 ms",
        "2.4 s",
        "6 min 5 s",
    ]
    assert [size(n) for n in (812, 14_200, 102_630_000)] == ["812 B", "14.2 kB", "102.6 MB"]
    assert [plural(n, "line") for n in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]


class TestPlainProgress:
    def test_prints_phases_at_once_and_steps_now_and_then(self):
        stream, now = io.StringIO(), 0.0
        report = PlainProgress(stream, clock=lambda: now)
        report(Progress("import"))
        for step in range(9):
            now += PLAIN_INTERVAL / 4
            report(Progress("tune", step, 9, f"conv {step}"))
        report(Progress("build", detail="llvm"))
        assert stream.getvalue().splitlines() == [
            "neocpu: import",
            "neocpu: tune 0/9 conv 0",
            "neocpu: tune 4/9 conv 4",
            "neocpu: tune 8/9 conv 8",
            "neocpu: build llvm",
        ]

    def test_the_first_step_is_reported_at_once(self):
        stream = io.StringIO()
        report = PlainProgress(stream, clock=lambda: 0.0)
        for detail in ("", "", "estimating", "choosing"):
            report(Progress("tune", detail=detail))
        assert stream.getvalue() == "neocpu: tune\nneocpu: tune estimating\n"

    @pytest.mark.parametrize(
        ("is_terminal", "quiet", "shown"),
        [(False, False, "neocpu: build\n"), (True, False, "neocpu: build\n"), (False, True, "")],
    )
    def test_is_for_what_cannot_redraw_a_line(self, monkeypatch, is_terminal, quiet, shown):
        monkeypatch.setenv("TERM", "dumb")
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
        with show_progress(stream, quiet=quiet) as report:
            report(Progress("build"))
        assert stream.getvalue() == shown


def said(capsys, before):
    """Return all that was written to the standard error so far."""
    before.append(capsys.readouterr().err)
    return "".join(before)


def test_live_progress_takes_brackets_for_what_they_are(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "120", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    shown = []
    with live_progress() as report:
        report(Progress("tune", 3, 9, "NCHW[16]c [/bold]"))
        wait_until(lambda: "NCHW[16]c [/bold]" in said(capsys, shown))
    assert "tune" in said(capsys, shown)
    assert "3/9" in said(capsys, shown)


def test_errors_name_rows_that_moved_or_have_no_partner():
    same = (
        "1e-06 norm-wise (within the 0.0001 promised), 1e-05 absolute, 2e-06 of the largest "
        "value, against the reference"
    )
    none = small_plan(verification=verified(1e-6))
    some = small_plan(verification=verified(1e-6, moved_rows=2, unmatched_rows=1))
    assert error_text(none) == same
    layers = (CalibratedLayer(name="conv2d_0", saved_us=1.0, noise=0.0),)
    calibration = Calibration(
        layers=layers,
        max_error=None,
        min_agreement=None,
        error=0.0,
        agreement=None,
        samples=1,
        integers_us=None,
        float32_us=None,
    )
    integers = replace(none, calibration=calibration)
    assert error_text(integers) == f"{same} on the model in integers"
    assert error_text(integers, integers=False) == same
    assert error_text(some) == f"{same}; 2 rows in another place; 1 row only on one side"


@pytest.mark.parametrize(
    ("accuracy", "errors", "kept"),
    [
        (DEFAULT, (1e-4, None), "0.0001 norm-wise (within the 0.0001 promised),"),
        (
            DEFAULT,  # of integers
            (0.0065, 0.0021),
            "0.0065 norm-wise (above the 0.0001 promised, within 4 times the 0.0021 of numpy in "
            "float32),",
        ),
        (
            DEFAULT,
            (None, None),
            "infinite norm-wise (above the 0.0001 promised, within 4 times the infinite error of "
            "numpy in float32),",
        ),
        (BFLOAT16, (2e-3, None), "0.002 norm-wise (within the 0.00391 promised of each operator),"),
        (
            BFLOAT16,
            (0.01, 0.02),
            "0.01 norm-wise (above the 0.00391 promised of each operator, within 4 times the 0.02 "
            "of numpy rounded to bfloat16),",
        ),
    ],
)
def test_errors_are_reported_with_their_bound(accuracy, errors, kept):
    norm_error, float32_error = errors
    plan = small_plan(
        accuracy=Promise(name=accuracy.name, bound=accuracy.bound),
        verification=verified(norm_error, float32_error=float32_error),
    )
    assert error_text(plan).startswith(kept)


def test_the_factor_in_words_is_that_of_verdicts():
    kept = kept_bound(Promise(name="default", bound=1e-4), verified(1.0))
    assert f"within {FLOAT32_FACTOR:g} times" in kept


def test_skipped_checks_give_their_reason():
    assert error_text(small_plan(unchecked="--no-verify")) == "not checked: --no-verify"
    assert error_text(small_plan()) == "not checked"


def test_plans_that_broke_their_promise_are_listed_with_their_errors():
    missed = tuple(
        BrokenPromise(admission=admission, verification=verified(error, float32_error=1e-6))
        for admission, error in (("with Winograd", 4e-4), ("with less", None))
    )
    assert missed_text(small_plan(missed=missed, admission="without")) == (
        "0.0004 with Winograd (numpy in float32 1e-06), infinite with less "
        "(numpy in float32 1e-06); compiled again without"
    )
    assert missed_text(small_plan()) == ""


def test_a_narrow_terminal_cuts_no_cell_short(monkeypatch, capsys):
    monkeypatch.setattr("neocpu.foundation.console.terminal.PLAIN_WIDTH", 12)
    print_table(("model", "milliseconds"), [("squeezenet1_0", "840.00")], right=("milliseconds",))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "squeezenet1_0" in "".join(line[:5].strip() for line in printed.splitlines())


class TestWeightsHint:
    WEIGHTS = WeightSizes(given_bytes=20_000_000, packed_bytes=61_000_000, limit_bytes=None)
    PLAN = small_plan(
        weights=WEIGHTS,
        ops=tuple(map(small_operator, "abc", ("conv2d_winograd", "conv2d_direct", ""))),
    )

    def test_where_winograd_tripled_them(self):
        text = weights_hint(self.PLAN)
        assert text is not None
        assert text.startswith("weights are 3.0 times the model's, because Winograd stores")
        assert "(1 convolution); --max-weights 40.0MB would" in text
        assert parse_size("40.0MB") == 40_000_000

    @pytest.mark.parametrize(
        "change",
        [
            {"ops": (small_operator("a", "conv2d_direct"),)},
            {"weights": replace(WEIGHTS, limit_bytes=70_000_000)},
            {"weights": replace(WEIGHTS, packed_bytes=39_000_000)},
        ],
        ids=["no Winograd", "a limit", "small"],
    )
    def test_not_elsewhere(self, change):
        assert weights_hint(replace(self.PLAN, **change)) is None


def test_live_progress_has_lines_below(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "120", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    with live_progress() as report:
        report(Progress("tune", 3, 9, "30 s left", ("now us  layer", "  12.0  [b]conv\x1b[2J")))
        wait_until(lambda: "30 s left" in capsys.readouterr().err)
        report(Progress("tune", 3, 9, "building"))
        shown = []
        wait_until(lambda: "building" in said(capsys, shown))
    assert "  12.0  [b]conv\\x1b[2J" in said(capsys, shown)


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


def test_small_shortcomings_alone_are_one_line(capsys):
    show_lacks(plan())
    assert not capsys.readouterr().out
    show_lacks(plan(lack(2.0)))
    assert capsys.readouterr().out == (
        "\n1 shortcoming of kernels below 0.5% of the run each, 2.0 µs in total.\n"
    )
