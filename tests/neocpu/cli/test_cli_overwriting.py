"""No command overwrites a file that it reads, or another of its outputs."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from neocpu.tuning_db import store
from neocpu.tuning_db.record_file import read_packed

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
