"""A folder with the files that documents speak of, in which their commands run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import stand_ins
from document_blocks import run_as_reader

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def stand_in_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small files under the names that documents use."""
    folder = tmp_path_factory.mktemp("stand-ins")
    onnx.save(stand_ins.classifier(), folder / "resnet50.onnx")
    stand_ins.write_photos(folder / "photos")
    stand_ins.write_torch(folder / "packages")
    for command in (
        "neocpu compile resnet50.onnx -o resnet50.so",
        "neocpu quantize resnet50.onnx --calibrate photos/ -o resnet50.int8.onnx",
    ):
        done = run_as_reader(command, folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(stand_in_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a test's own folder with the stand-ins, and make it the current one."""
    folder = tmp_path / "place"
    shutil.copytree(stand_in_files, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def shell(place: Path) -> Shell:
    """Return a function that runs commands as a reader's shell does; each has to succeed."""

    def run(commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
        done = run_as_reader(commands, place, variables)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run
