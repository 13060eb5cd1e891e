"""All checks run in turn, whatever fails, and one table has all outcomes."""

import sys

import pytest

from tests import everything
from tests.everything import CHECKS, Check, Result, run_all, table

CHECKS_OF_THREE = (Check("one", ("1",)), Check("two", ("2",)), Check("three", ("3",)))


def ticking():
    return iter(range(0, 6000, 90)).__next__


def test_a_check_that_fails_does_not_stop_the_others():
    ran = []
    results = run_all(
        CHECKS_OF_THREE, {}, lambda command: ran.append(command) or int(command == ["2"]), ticking()
    )
    assert ran == [["1"], ["2"], ["3"]]
    assert [(each.outcome, each.seconds, each.is_good) for each in results] == [
        ("passed", 90, True),
        ("failed (1)", 90, False),
        ("passed", 90, True),
    ]


def test_a_check_is_skipped_where_the_variable_that_it_needs_is_not_set():
    check = Check("zoo", ("zoo", "$WHERE"), "WHERE")
    ran = []
    (skipped,) = run_all([check], {"WHERE": ""}, ran.append)
    assert (skipped.outcome, skipped.is_good, ran) == ("skipped: WHERE is not set", True, [])
    run_all([check], {"WHERE": "/there"}, lambda command: ran.append(command) or 0)
    assert ran == [["zoo", "/there"]]


def test_the_table_comes_after_an_interrupt_too():
    def run(command):
        if command == ["2"]:
            raise KeyboardInterrupt
        return 0

    outcomes = [each.outcome for each in run_all(CHECKS_OF_THREE, {}, run)]
    assert outcomes == ["passed", "interrupted", "not run"]


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
    monkeypatch.setattr(everything, "CHECKS", (Check("one", command), Check("two", command)))
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
    targets = [check.command[1] for check in CHECKS if check.command[0] == "make"]
    assert targets
    assert all(f"\n{target}: " in makefile for target in targets)
