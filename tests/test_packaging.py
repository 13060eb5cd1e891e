"""The wheel holds every package, and the mapping of root folders is complete."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
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
        "neocpu.search": ["rpc_harness.c"],
        "neocpu.tuning_db": ["records/*.jsonl"],
    }


def test_engines_to_compare_with_are_extras() -> None:
    project = PROJECT["project"]
    for engine in ("onnxruntime", "openvino", "ncnn"):
        assert not any(line.startswith(engine) for line in project["dependencies"])
        assert any(line.startswith(engine) for line in project["optional-dependencies"]["bench"])


def test_every_import_is_declared() -> None:
    # An undeclared one works wherever another package happens to have brought it.
    project = PROJECT["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["bench"]]
    declared = {canonical(re.split(r"[^\w.-]", line)[0]) for line in lines}
    homes = packages_distributions()
    for folder in FOLDERS:
        for source in (ROOT / folder).rglob("*.py"):
            for name in imports(source) - sys.stdlib_module_names - {"neocpu"}:
                found = {canonical(home) for home in homes.get(name, [name])}
                assert found & declared, f"{source}: {name} is in no dependency"


def imports(source: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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


def test_modules_that_tests_share_can_be_imported_by_name() -> None:
    shared = [
        source
        for source in (ROOT / "tests").rglob("*.py")
        if not source.name.startswith(("test_", "conftest"))
    ]
    folders = {str(source.parent.relative_to(ROOT)) for source in shared}
    assert PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"] == [".", *sorted(folders)]
    assert len({source.name for source in shared}) == len(shared)
