"""The wheel holds every package, and the mapping of root folders is complete."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}


def packages_on_disk() -> set[str]:
    found = set()
    for top, package in FOLDERS.items():
        for source in (ROOT / top).rglob("*.py"):
            inner = source.parent.relative_to(ROOT / top).parts
            found.add(".".join((package, *inner)))
    return found


def test_the_mapped_folders() -> None:
    assert FOLDERS == {
        "neocpu": "neocpu",
        "schedules": "neocpu.schedules",
        "search": "neocpu.search",
        "tuning_db": "neocpu.tuning_db",
    }


def test_every_package_is_listed() -> None:
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages_on_disk())
    assert len(set(SETUPTOOLS["packages"])) == len(SETUPTOOLS["packages"])


@pytest.mark.parametrize("package", SETUPTOOLS["packages"])
def test_every_package_has_an_init_file(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).name == "__init__.py"
    assert Path(module.__file__).is_relative_to(ROOT)


def test_data_files_exist() -> None:
    assert (ROOT / "neocpu" / "py.typed").is_file()
    assert SETUPTOOLS["package-data"] == {
        "neocpu": ["py.typed"],
        "neocpu.tuning_db": ["records/*.jsonl"],
    }


def test_engines_to_compare_with_are_extras() -> None:
    project = PROJECT["project"]
    for engine in ("onnxruntime", "openvino", "ncnn"):
        assert not any(line.startswith(engine) for line in project["dependencies"])
        assert any(line.startswith(engine) for line in project["optional-dependencies"]["bench"])


def test_tvm_is_pinned() -> None:
    pinned = [line for line in PROJECT["project"]["dependencies"] if line.startswith("apache-tvm")]
    assert len(pinned) == 2
    assert all("==" in line for line in pinned)


def test_faces_import_nothing_heavy() -> None:
    script = (
        "import sys, neocpu, neocpu.search, neocpu.tuning_db, neocpu.schedules, neocpu.frontend; "
        "neocpu.load; "
        "print([m for m in ('tvm', 'onnx', 'scipy', 'xgboost') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n", done.stderr
