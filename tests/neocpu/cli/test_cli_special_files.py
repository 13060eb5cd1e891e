"""Devices, pipes and links in place of files, and files that no command may overwrite."""

import os
import shutil
import stat
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from forgery import checked_header

from neocpu.tuning_db import store
from neocpu.tuning_db.record_file import read_packed


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "MODEL", "-o", "/dev/null", "--quiet"],
        ["run", "ARTIFACT", "--outputs", "/dev/null"],
        ["models", "export", "squeezenet1_0", "-o", "/dev/null"],
    ],
)
def test_a_device_is_written_to(cli, onnx_file, artifact, arguments):
    named = {"MODEL": onnx_file, "ARTIFACT": artifact}
    assert cli(*(named.get(word, word) for word in arguments)).code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_databases_are_files(cli, onnx_file):
    for arguments in (
        ["db", "export", "-o", "/dev/null"],
        ["db", "merge", "/dev/null", "/dev/null"],
        ["db", "prune", "/dev/null"],
        ["tune", onnx_file, "--db", "/dev/null", "--trials", 1],
        ["compile", onnx_file, "--db", "/dev/zero", "-o", "out.so"],
    ):
        cli(*arguments).fails(7, "it is a device, not a file")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not os.path.exists("/dev/null.lock")


def test_an_artifact_through_a_pipe(cli, onnx_file, tmp_path):
    os.mkfifo("pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_bytes()))
    reader.start()
    assert cli("compile", onnx_file, "-o", "pipe", "--quiet").code == 0
    reader.join(60)
    path = tmp_path / "received.so"
    path.write_bytes(received[0])
    assert checked_header(path).name
    assert Path("pipe").is_fifo()


def test_a_link_to_an_artifact_stays(cli, onnx_file):
    Path("models").mkdir()
    Path("current.so").symlink_to("models/v1.so")
    assert cli("compile", onnx_file, "-o", "current.so", "--quiet").code == 0
    assert os.readlink("current.so") == "models/v1.so"
    assert cli("run", "models/v1.so").code == 0


@pytest.mark.parametrize("place", ["/dev/zero", "/", "/proc/kmsg", "pipe"])
def test_inputs_are_files(cli, artifact, place):
    os.mkfifo("pipe")
    for arguments, code in (
        (["compile", place, "-o", "out.so"], 3),
        (["run", place], 8),
        (["inspect", place], 8),
        (["explain", place], 8),
        (["run", artifact, "--input", place], 2),
        (["run", artifact, "--inputs", place], 2),
        (["bundle", place, "-o", "bundle"], 8),
    ):
        outcome = cli(*arguments)
        assert (outcome.code, outcome.out) == (code, ""), arguments
        assert place in outcome.error
    assert os.listdir() == ["pipe"]


def test_a_model_from_standard_input(shell, onnx_file):
    with open(onnx_file, "rb") as file:
        outcome = shell("compile", "/dev/stdin", "-o", "out.so", "--quiet", stdin=file)
    assert outcome.code == 0, outcome.err
    image = np.zeros((1, 3, 16, 16), np.float32)
    np.save("x.npy", image)
    assert shell("run", "out.so", "--input", "x.npy").code == 0


FILES = (
    *("net.onnx", "net.md", "net.so", "x.npy", "data.npz", "tuned.jsonl"),
    *("apart.onnx", "apart.data"),
)
OWN = "../data/neocpu/records.jsonl"
"""The user's own database."""
WRITTEN_OVER = (
    "compile net.onnx -o net.onnx",
    "compile net.onnx -o tuned.jsonl --db tuned.jsonl",
    "compile net.onnx -o new.jsonl --db new.jsonl",
    "compile net.onnx -o data.npz --calibrate data.npz",
    "compile net.onnx -o link.so",
    "compile apart.onnx -o apart.data",
    f"compile net.onnx -o {OWN}",
    f"bench net.onnx --html {OWN}",
    f"quantize net.onnx --calibrate data.npz -o {OWN}",
    f"reduce net.onnx --check false -o {OWN}",
    f"tune net.onnx --db tuned.jsonl --html {OWN}",
    "quantize apart.onnx --calibrate data.npz -o weights.onnx",
    "tune apart.onnx --html apart.data",
    "quantize net.onnx --calibrate data.npz -o data.npz",
    "quantize net.onnx --calibrate data.npz -o new.svg --histograms new.svg",
    "reduce net.onnx --check false -o link.so",
    "reduce net.onnx --check false --inputs data.npz -o data.onnx",
    "run net.so -o net.so",
    "run net.so --inputs data.npz -o data.npz",
    "run net.so --input x.npy -o x.npy",
    "run net.so --input image=x.npy --trace x.npy",
    "run net.so -o new.npz --trace new.npz",
    "explain net.so --html net.so",
    "explain net.so net.so --html net.so",
    "compare net.onnx net.so --html net.onnx",
    "tune net.onnx --html link.so",
    "tune net.onnx --db new.jsonl --html new.jsonl",
    "bench net.md -o net.md",
    "bench net.onnx -o new.md --html new.svg",
    "bench net.onnx --vs onnxruntime --chart new.svg --html new.svg",
    "bench race net.so --model net.onnx --html net.onnx",
    "bench profile net.so --html net.so",
    "bench served net.so --html net.so",
    "bench served net.so -o new.md --html new.md",
    "db export --db tuned.jsonl -o tuned.jsonl",
    "db export --db tuned.jsonl --model net.onnx -o net.onnx",
)
OF_ANOTHER_KIND = (
    "tune net.onnx --db net.onnx --trials 1",
    "compile net.onnx --db net.onnx --tune-budget 1 -o new.so",
    "db merge net.so tuned.jsonl",
    "db prune net.onnx",
    "db prune data.npz",
    "db export --db tuned.jsonl -o x.npy",
)


@pytest.fixture
def files(onnx_file, artifact, monkeypatch):
    """The current folder's files, and what is in them."""
    (shipped,) = (path for path in store.shipped_databases() if path.stem == "znver3")
    monkeypatch.setattr(store, "shipped_databases", lambda: ())
    for name in ("net.onnx", "net.md"):
        shutil.copy(onnx_file, name)
    shutil.copy(artifact, "net.so")
    Path("link.so").symlink_to("net.onnx")
    weights = {"save_as_external_data": True, "location": "apart.data", "size_threshold": 0}
    onnx.save(onnx.load(onnx_file), "apart.onnx", **weights)
    Path("weights.onnx").symlink_to("apart.data")
    Path(OWN).parent.mkdir(parents=True)
    image = np.zeros((1, 3, 16, 16), np.float32)
    np.save("x.npy", image)
    np.savez("data.npz", image=image)
    Path("tuned.jsonl").write_text(next(iter(read_packed(shipped))).to_line())
    return {name: Path(name).read_bytes() for name in FILES}


@pytest.mark.parametrize("words", WRITTEN_OVER)
def test_files_that_are_read_or_written_too_stay(cli, files, words):
    outcome = cli(*words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert "would be written over; choose another -" in outcome.error
    assert {name: Path(name).read_bytes() for name in files} == files
    assert not list(Path().glob("new.*"))


@pytest.mark.parametrize("words", OF_ANOTHER_KIND)
def test_a_file_of_another_kind_becomes_no_database(cli, files, words):
    outcome = cli(*words.split())
    assert (outcome.code, outcome.out) == (7, "")
    assert "it is a file of another kind" in outcome.error
    assert {name: Path(name).read_bytes() for name in files} == files


def test_a_device_may_be_written_to_twice(cli, files):
    assert cli("run", "net.so", "-o", "/dev/null", "--trace", "/dev/null").code == 0
