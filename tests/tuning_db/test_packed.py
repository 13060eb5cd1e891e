"""Packed records: the round trip, shared parts of a file, damage, and the command."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import needs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_record import records
from tuning_records import RECORD, WORKLOAD, record

from neocpu.foundation.errors import DatabaseError
from neocpu.schedules.vocabulary import scheme
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.tuning_db.__main__ import main
from neocpu.tuning_db.packed import MAGIC, PackedRecords, pack
from neocpu.tuning_db.record import Record, TargetKey
from neocpu.tuning_db.record_file import read_packed, read_records
from neocpu.tuning_db.store import shipped_databases

OTHER = dataclasses.replace(WORKLOAD, height=57)
FAILED = record(1e-9, error="timeout: 3 s", reg_n=5)


@settings(deadline=None)
@given(st.lists(records, max_size=8))
def test_packed_records_are_read_back(made: list[Record]):
    packed = PackedRecords(pack(made))
    assert len(packed) == len(made)
    assert sorted(map(repr, packed)) == sorted(map(repr, made))
    assert [each.to_line() for each in PackedRecords(pack(packed))] == [
        each.to_line() for each in packed
    ]
    for each in made:
        same = [r for r in made if (r.workload, r.target) == (each.workload, each.target)]
        found = packed.find(each.workload, each.target)
        assert sorted(map(repr, found)) == sorted(map(repr, same))
        assert each.workload in packed.workloads(each.target)


def test_records_of_a_workload_keep_their_order():
    made = [record(seconds, reg_n=n) for seconds, n in ((3.0, 9), (1.0, 2), (2.0, 9), (4.0, 1))]
    other = dataclasses.replace(RECORD, workload=OTHER)
    packed = PackedRecords(pack([made[0], other, *made[1:], FAILED]))
    assert packed.find(WORKLOAD, RECORD.target) == [*made, FAILED]
    assert packed.find(OTHER, RECORD.target) == [other]
    assert list(packed) == [*made, FAILED, other]
    assert packed.workloads(RECORD.target) == [WORKLOAD, OTHER]


def test_missing_records_are_not_found():
    packed = PackedRecords(pack([RECORD]))
    elsewhere = dataclasses.replace(RECORD.target, threads=1)
    assert packed.find(OTHER, RECORD.target) == packed.find(WORKLOAD, elsewhere) == []
    assert packed.workloads(elsewhere) == []
    assert list(PackedRecords(pack([]))) == []


def test_features_outside_the_key_are_kept():
    later = dataclasses.replace(RECORD, target=TargetKey("znver5", ("avx2", "fma", "new"), 2))
    packed = PackedRecords(pack([RECORD, later]))
    assert packed.find(WORKLOAD, RECORD.target) == [RECORD, later]
    assert [target.features for target in packed.targets] == [
        ("avx2", "fma"),
        ("avx2", "fma", "new"),
    ]


def test_a_parameter_that_a_template_got_since_has_its_default(monkeypatch):
    data = pack([RECORD])

    @dataclasses.dataclass(frozen=True, slots=True)
    class Wider(DirectScheme):
        newest: int = 3

    monkeypatch.setitem(scheme.SCHEMES, "conv2d_direct", Wider)
    (found,) = PackedRecords(data)
    assert (found.scheme.reg_n, found.scheme.newest) == (7, 3)


@pytest.mark.parametrize("place", [0, len(MAGIC), len(MAGIC) + 3, 200, -1])
def test_any_change_is_noticed(place: int, tmp_path: Path):
    data = bytearray(pack([RECORD, FAILED]))
    data[place] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        PackedRecords(bytes(data))
    path = tmp_path / "x.records"
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match=r"cannot read tuning database .*x\.records: it is"):
        read_packed(path)


def test_a_packed_file_is_read_like_one_of_lines(tmp_path: Path):
    (tmp_path / "a.records").write_bytes(pack([RECORD, FAILED]))
    (tmp_path / "a.jsonl").write_text(RECORD.to_line() + FAILED.to_line())
    packed, lines = (read_records(tmp_path / name) for name in ("a.records", "a.jsonl"))
    assert [(line.line, line.text, line.record) for line in packed.lines] == [
        (line.line, line.text, line.record) for line in lines.lines
    ]


def test_the_command_packs_the_lines_that_count(tmp_path: Path):
    lines, packed = tmp_path / "lines.jsonl", tmp_path / "cpu.records"
    lines.write_text(record(9.0).to_line() + FAILED.to_line() + RECORD.to_line())
    main([str(lines), str(packed)])
    assert packed.read_bytes() == pack([RECORD, FAILED])
    for text, reason in (("torn", "lines.jsonl:1: skipped"), (None, "cannot read tuning")):
        lines.unlink()
        if text is not None:
            lines.write_text(text)
        with pytest.raises(SystemExit, match=reason):
            main([str(lines), str(packed)])
        lines.touch()
    assert packed.read_bytes() == pack([RECORD, FAILED])


def test_shipped_files_equal_their_packed_lines():
    paths = shipped_databases()
    assert sum(path.stat().st_size for path in paths) < 6e6
    for path in paths if needs.EVERYTHING else paths[1:2]:
        lines = [each.to_line().encode() for each in read_packed(path)]
        assert pack(map(Record.from_line, lines)) == path.read_bytes()
