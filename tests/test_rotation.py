"""Every case runs at some commit, and a commit always runs the same cases."""

import subprocess
import sys
from pathlib import Path

import needs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import rotation

TESTS = Path(__file__).parent


@given(cases=st.integers(1, 30), count=st.integers(1, 12), offset=st.integers(0, 9999))
def test_every_case_runs_at_one_of_the_offsets(cases, count, offset):
    chosen = [
        {case for case in range(cases) if rotation.runs(case, cases, count, offset + later)}
        for later in range(count)
    ]
    assert set.union(*chosen) == set(range(cases))
    assert all(chosen)
    assert all(len(each) <= -(-cases // min(count, cases)) for each in chosen)


def test_the_first_case_runs_where_the_offset_is_zero():
    assert [case for case in range(7) if rotation.runs(case, 7, 3, 0)] == [0, 3, 6]


def git(folder, *arguments):
    own = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True)


@needs.programs("git")
def test_the_offset_follows_the_commit(tmp_path):
    git(tmp_path, "init")
    offsets = []
    for number in range(4):
        git(tmp_path, "commit", "--allow-empty", "-m", f"change {number}")
        offsets.append(rotation.offset(tmp_path, {}))
        assert rotation.offset(tmp_path, {}) == offsets[-1]
    assert len({*offsets}) > 1
    assert all(0 <= each < rotation.LARGEST for each in offsets)


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_the_offset_is_zero_without_git_or_without_a_commit(tmp_path, monkeypatch, path):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if path:
        monkeypatch.setenv("PATH", path)
    assert rotation.offset(tmp_path, {}) == 0


def test_the_environment_fixes_the_offset(tmp_path):
    assert rotation.offset(tmp_path, {rotation.VARIABLE: "17"}) == 17


def test_the_offset_is_left_to_the_other_processes_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    environment = {}
    rotation.offset(tmp_path, environment)
    assert environment == {rotation.VARIABLE: "0"}


def test_the_header_says_how_to_repeat_a_run(monkeypatch):
    monkeypatch.setenv(rotation.VARIABLE, "17")
    command = [sys.executable, "-B", "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    run = subprocess.run([*command, __file__], cwd=TESTS.parent, capture_output=True, text=True)
    assert f"one_in: set {rotation.VARIABLE}=17" in run.stdout
