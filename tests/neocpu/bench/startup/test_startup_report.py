"""``neocpu bench startup``: the steps of a start, and what processes share."""

import json
import os

import pytest

from neocpu.bench.startup.page_sharing import Mapping, Memory, measure_sharing, parse_smaps
from neocpu.cli.main import main
from neocpu.foundation.errors import ArtifactError

SMAPS = """\
55d5c8a00000-55d5c8a02000 r--p 00001000 08:01 1234                       /usr/bin/cat
Size:                  8 kB
KernelPageSize:        4 kB
Rss:                   8 kB
Pss:                   4 kB
Shared_Clean:          4 kB
Shared_Dirty:          4 kB
Private_Clean:         0 kB
VmFlags: rd mr mw me sd
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
Size:                  4 kB
Rss:                   4 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
7f1000000000-7f1000001000 r--p 00000000 fe:0a 77 /tmp/with a space: (deleted)
Rss:                   0 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
"""


def test_smaps_are_read():
    first, second, third = parse_smaps(SMAPS)
    assert first == Mapping((os.makedev(8, 1), 1234), 0x1000, 0x2000, Memory(8192, 8192))
    assert second == Mapping((0, 0), 0, 0x1000, Memory(4096, 0))
    assert third.file == (os.makedev(0xFE, 0xA), 77)
    assert (first.memory.share, second.memory.share, third.memory.share) == (1, 0, 1)


@pytest.mark.parametrize(
    ("part", "holds"),
    [
        (range(0x1000), False),
        (range(0x1001), True),
        (range(0x2FFF, 0x9000), True),
        (range(0x3000, 0x9000), False),
    ],
)
def test_a_mapping_holds_the_parts_it_overlaps(part, holds):
    first, *_ = parse_smaps(SMAPS)
    assert first.holds(first.file, part) == holds
    assert not first.holds((0, 0), part)


def test_two_processes_share_the_weights(linear):
    report = measure_sharing(linear.path, threads=1)
    for weights, total in zip(report.weights, report.total, strict=True):
        # One page is resident once it is read, whatever the kernel reads ahead.
        assert weights.resident >= sum(array.nbytes for array in linear.weights)
        assert weights.shared == weights.resident
        assert total.resident > total.shared > 0
    assert report.share == 1
    assert 1e6 < report.own_bytes < 1e9


def test_weights_that_are_not_found_are_no_success(linear, monkeypatch):
    monkeypatch.setattr(
        "neocpu.bench.startup.page_sharing.parse_smaps", lambda _: parse_smaps(SMAPS)
    )
    with pytest.raises(ArtifactError, match="no process has its weights mapped"):
        measure_sharing(linear.path, threads=1)


def test_an_artifact_that_does_not_run(linear, monkeypatch):
    monkeypatch.setattr(
        "neocpu.bench.startup.page_sharing._PROGRAM", "raise SystemExit('broken heart')"
    )
    with pytest.raises(ArtifactError, match=r"linear\.so does not run: broken heart"):
        measure_sharing(linear.path, threads=1)


def test_the_command(linear, linear_onnx, tmp_path, capsys):
    page = tmp_path / "startup.md"
    arguments = ("--rounds", "2", "--threads", "1", "--model", linear_onnx, "--vs", "onnxruntime")
    code = main(["bench", "startup", *map(str, (linear.path, *arguments, "--json", "-o", page))])
    assert code == 0
    document = json.loads(capsys.readouterr().out)
    (result,) = document["results"]
    assert result["model"] == "linear"
    own, peer = result["cold_start"]["results"]
    assert (own["label"], peer["label"]) == ("neocpu", "onnxruntime")
    assert len(own["seconds"]) == 2
    first = own["steps"]["interpreter"] + own["steps"]["imports"] + own["steps"]["load"]
    assert 0 < first < own["median"] * 2
    assert result["sharing"]["share"] == 1
    text = page.read_text()
    assert "# Startup of " in text
    assert "weights resident in each of 2 processes, 100.0% are shared" in text
    assert "| onnxruntime | " in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("startup", "net.onnx"),
            2,
            "bench startup needs an OUT.so: compile net.onnx first",
        ),
        (
            ("callers", "resnet50"),
            2,
            "bench callers needs an OUT.so: compile resnet50 first",
        ),
        (("startup", "missing.so"), 8, "missing.so"),
        (("startup", "a.so", "--shape", "x:1"), 2, "no option --shape"),
        (("startup",), 2, "missing argument"),
        (("callers", "a.so", "--rounds", "5"), 2, "no option --rounds"),
        (("callers", "a.so", "--callers", "0"), 2, "0 is not in the range"),
    ],
)
def test_bad_arguments(arguments, code, message, capsys):
    assert main(["bench", *arguments]) == code
    assert message in capsys.readouterr().err.splitlines()[-1]
