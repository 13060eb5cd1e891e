"""The section of an artifact that is written after its runs."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forgery import checked_header, forge, forge_header

from neocpu.building import link
from neocpu.building.elf import read_elf
from neocpu.building.link import write_outcome
from neocpu.foundation.errors import ArtifactError
from neocpu.plan.outcome import PhaseTime
from neocpu.runtime.header import HEADER_SECTION, OUTCOME_SECTION, ArtifactHeader
from neocpu.runtime.module import load


def section(path: Path, name: str) -> bytes:
    data = path.read_bytes()
    found = read_elf(memoryview(data)).find(name)
    assert found is not None
    return data[found.offset : found.offset + found.size]


def after_runs(toy: Any, **changes: Any) -> ArtifactHeader:
    return toy.header.with_plan(replace(toy.header.plan, **changes))


@pytest.fixture
def concluded(linear, tmp_path):
    """A file with an outcome, and its header."""
    path = tmp_path / "concluded.so"
    shutil.copyfile(linear.path, path)
    header = after_runs(linear, unchecked="no time", passes=(PhaseTime(name="build", seconds=2.5),))
    write_outcome(path, header)
    return path, header


def test_an_outcome_comes_back_and_the_header_section_stays(linear, concluded):
    path, header = concluded
    assert checked_header(path) == header
    assert header.plan.unchecked == "no time"
    assert section(path, HEADER_SECTION) == section(linear.path, HEADER_SECTION)
    with load(path, 1) as module:
        assert module.metadata == header
        assert module(*linear.inputs()).shape == (4, 33)


def test_a_later_outcome_replaces_the_earlier_one(linear, concluded):
    path, _ = concluded
    header = after_runs(linear, call_seconds=0.25)
    size = path.stat().st_size
    write_outcome(path, header)
    assert checked_header(path) == header
    assert path.stat().st_size < size


def test_a_file_without_an_outcome_is_read(linear, tmp_path):
    def edit(data):
        data[:] = data.replace(OUTCOME_SECTION.encode(), b".neocpu.nothing")

    assert checked_header(forge(linear.path, tmp_path / "old.so", edit)) == linear.header


@pytest.mark.parametrize("text", ["1", "[]", '{"plans":7}', '{"plans":[[]]}', '{"plans":[]}'])
def test_an_outcome_of_another_form_is_left_out(linear, concluded, tmp_path, text):
    path, _ = concluded
    old = section(path, OUTCOME_SECTION)

    def edit(data):
        data[:] = data.replace(old, text.encode().ljust(len(old)))

    assert checked_header(forge(path, tmp_path / "foreign.so", edit)) == linear.header


@pytest.mark.parametrize("text", [b"{", b"}", b'{}},{"', b"\0", b"NaN"])
def test_an_outcome_that_is_no_json_is_refused(concluded, tmp_path, text):
    path, _ = concluded
    old = section(path, OUTCOME_SECTION)

    def edit(data):
        data[:] = data.replace(old, text.ljust(len(old)))

    with pytest.raises(ArtifactError, match="malformed"):
        load(forge(path, tmp_path / "malformed.so", edit))


@pytest.mark.parametrize("prologue", [3, "x", []])
def test_a_foreign_prologue_is_left_alone(linear, tmp_path, prologue):
    header = {**linear.header.to_json(), "prologue": prologue, "outcome": {}}
    path = forge_header(linear.path, tmp_path / "foreign.so", header)
    assert checked_header(path).plan == linear.header.plan


def test_a_full_disk_is_named(linear, concluded, monkeypatch):
    path, header = concluded

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(link, "_add_outcome", full)
    with pytest.raises(ArtifactError, match="free space"):
        write_outcome(path, header)


def test_an_outcome_within_the_header_is_refused(linear, concluded, tmp_path):
    path, _ = concluded
    data = path.read_bytes()
    places = read_elf(memoryview(data))
    header, outcome = places.find(HEADER_SECTION), places.find(OUTCOME_SECTION)

    def edit(data):
        old, new = (place.offset.to_bytes(8, "little") for place in (outcome, header))
        data[:] = data.replace(old, new)

    with pytest.raises(ArtifactError, match="out of order"):
        load(forge(path, tmp_path / "disordered.so", edit))


def test_an_outcome_has_only_what_the_header_lacks(concluded):
    path, header = concluded
    outcome = json.loads(section(path, OUTCOME_SECTION))
    plan = header.to_json()["plan"]
    assert outcome == {
        "plans": [{name: plan[name] for name in ("passes", "unchecked")}],
        "packing_seconds": None,
    }
