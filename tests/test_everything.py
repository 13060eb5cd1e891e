"""All checks run in turn, whatever fails, and one table has all outcomes."""

import sys

import pytest

from tests import everything
from tests.everything import CHECKS, Result, run_all, table

THREE = {name: ((number,), "") for number, name in (("1", "one"), ("2", "two"), ("3", "three"))}


def interrupted(command):
    if command == ["2"]:
        raise KeyboardInterrupt
    return 0


@pytest.mark.parametrize(
    ("run", "outcomes"),
    [
        (lambda command: int(command == ["2"]), ["passed", "failed (1)", "passed"]),
        (interrupted, ["passed", "interrupted", "not run"]),
    ],
    ids=["failure", "interrupt"],
)
def test_a_check_that_fails_does_not_stop_the_others_but_an_interrupt_does(run, outcomes):
    results = run_all(THREE, {}, run, iter(range(0, 6000, 90)).__next__)
    assert [each.outcome for each in results] == outcomes
    assert results[1].seconds == 90


def test_a_check_is_skipped_where_the_variable_that_it_needs_is_not_set():
    checks, ran = {"zoo": (("zoo", "$WHERE"), "WHERE")}, []
    (skipped,) = run_all(checks, {"WHERE": ""}, ran.append)
    assert (skipped.outcome, ran) == ("skipped: WHERE is not set", [])
    run_all(checks, {"WHERE": "/there"}, lambda command: ran.append(command) or 0)
    assert ran == [["zoo", "/there"]]


def test_the_table_has_names_outcomes_and_minutes():
    lines = table([Result("fresh", "passed", 1500), Result("zoo", "failed (2)", 6)]).splitlines()
    assert [line.split() for line in lines] == [
        ["check", "outcome", "minutes"],
        ["fresh", "passed", "25.0"],
        ["zoo", "failed", "(2)", "0.1"],
    ]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 1)])
def test_the_exit_status_says_whether_all_passed(monkeypatch, capfd, status, expected):
    command = (sys.executable, "-c", f"print('done'); raise SystemExit({status})")
    monkeypatch.setattr(everything, "CHECKS", dict.fromkeys(("one", "two"), (command, "")))
    assert everything.main(["two"]) == expected
    out = capfd.readouterr().out
    assert out.count("done") == 1
    assert "=== one" not in out


def test_an_unknown_check_is_refused_with_the_list_of_checks(capsys):
    with pytest.raises(SystemExit, match="2"):
        everything.main(["fuzzz"])
    assert "fresh, fuzz, soak, mutations" in capsys.readouterr().err


def test_every_check_is_a_target_of_make():
    makefile = (everything.ROOT / "Makefile").read_text()
    targets = [command[1] for command, _ in CHECKS.values() if command[0] == "make"]
    assert targets
    assert all(f"\n{target}: " in makefile for target in targets)
