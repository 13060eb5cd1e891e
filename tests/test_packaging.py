"""The wheel holds every package, and the mapping of root folders is complete."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import needs
import pytest

from neocpu.cli.commands import COMMANDS
from wheels import runtime
from wheels.imports import closure, find_source

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS, LOOSE = 14, 3
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}


def packages_on_disk() -> set[str]:
    found = set()
    for top, package in FOLDERS.items():
        for source in (ROOT / top).rglob("*.py"):
            inner = source.parent.relative_to(ROOT / top).parts
            found.add(".".join((package, *inner)))
    return found


def folder(package: str) -> Path:
    path = find_source(package, runtime.FOLDERS)
    assert path is not None
    return path.parent


def test_the_mapped_folders() -> None:
    assert FOLDERS == {
        "neocpu": "neocpu",
        "core": "neocpu.core",
        "foundation": "neocpu.foundation",
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


def test_data_files_are_listed() -> None:
    listed = {
        path
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in folder(package).glob(pattern)
    }
    files = {path for top in FOLDERS for path in (ROOT / top).rglob("*") if path.is_file()}
    known = {".py", ".pyc", ".orig", ".so"}  # the last is built there
    assert {path for path in files if path.suffix not in known} <= listed
    assert ROOT / "neocpu" / "py.typed" in listed


def test_engines_to_compare_with_are_extras() -> None:
    project = PROJECT["project"]
    for engine in ("onnxruntime", "openvino", "ncnn"):
        assert not any(line.startswith(engine) for line in project["dependencies"])
        assert any(line.startswith(engine) for line in project["optional-dependencies"]["bench"])


def test_every_import_is_declared() -> None:
    # An undeclared one works wherever another package happens to have brought it.
    project = PROJECT["project"]
    names = ("bench", "nncf", "quantize", "images", "serve", "mlserver")
    extras = (project["optional-dependencies"][name] for name in names)
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
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


class TestRuntimeDistribution:
    """``neocpu-runtime``: `tests/neocpu/test_runtime_wheel.py` installs it."""

    def test_reaches_nothing_of_the_compiler(self) -> None:
        found = runtime.shipped()
        needed = [line for lines in runtime.requirements().values() for line in lines]
        declared = {canonical(re.split(r"[^\w-]", line)[0]) for line in needed}
        homes = packages_distributions()
        for name in found.others:
            assert {canonical(home) for home in homes.get(name, [name])} & declared, name
        assert not any(name.startswith("neocpu.search") for name in found.modules)

    def test_runs_with_numpy_alone(self) -> None:
        # Pictures need Pillow, an extra.
        roots = [
            name
            for name in runtime.shipped().modules
            if name.startswith("neocpu.runtime") and not name.startswith("neocpu.runtime.pictures")
        ]
        assert set(closure([*roots, "neocpu"], runtime.FOLDERS).others) == {"numpy"}

    @pytest.mark.slow
    @needs.everything()
    def test_keeps_to_what_python_3_10_has(self, tmp_path: Path) -> None:
        """The type checker's stubs know which Python version added each function."""
        pytest.importorskip("mypy")
        inner = tmp_path / "neocpu"
        inner.mkdir()
        for top, package in FOLDERS.items():
            for path in (ROOT / top).iterdir() if package == "neocpu" else (ROOT / top,):
                (inner / path.name).symlink_to(path)
        options = ("--python-version=3.10", "--follow-imports=silent", "--ignore-missing-imports")
        modules = [word for name in runtime.shipped().modules for word in ("-m", name)]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, "--cache-dir=cache", *modules],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert re.search(r"\((checked|errors prevented) \d|^Success", done.stdout, re.MULTILINE)
        lacking = r"\[(attr-defined|call-arg|call-overload|syntax|import-not-found)\]$"
        assert not [line for line in done.stdout.splitlines() if re.search(lacking, line)]

    def test_asks_for_its_version_under_either_name(self) -> None:
        # Code that asks only for the version of "neocpu" fails if just neocpu-runtime is installed.
        askers = [
            name
            for name, path in runtime.shipped().modules.items()
            if 'version("neocpu")' in path.read_text()
        ]
        assert askers == ["neocpu"]

    def test_has_what_the_command_line_offers(self) -> None:
        assert set(runtime.COMMANDS) < set(COMMANDS)

    def test_takes_its_requirements_from_the_project(self) -> None:
        needed = runtime.requirements()
        assert [line for line in needed["dependencies"] if line.startswith("numpy>=")]
        for extra in ("serve", "mlserver"):
            assert set(PROJECT["project"]["optional-dependencies"][extra]) <= set(needed[extra])

    def test_follows_imports_inside_functions_but_not_those_of_type_checkers(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "__init__.py").write_text("")
        (tmp_path / "a.py").write_text(
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import torch\n    from top import c\n"
            "else:\n    import json\n"
            "def f():\n    from top import b\n    import numpy.linalg\n"
        )
        (tmp_path / "b.py").write_text("import top.d.e\n")
        (tmp_path / "c.py").write_text("")
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "__init__.py").write_text("")
        (tmp_path / "d" / "e.py").write_text("")
        found = closure(["top.a"], {"top": tmp_path})
        assert sorted(found.modules) == ["top", "top.a", "top.b", "top.d", "top.d.e"]
        assert found.others == {"numpy": "top.a"}
        (tmp_path / "b.py").write_text("import top.none\n")
        with pytest.raises(LookupError, match=r"top\.b imports top\.none, which is not there"):
            closure(["top.a"], {"top": tmp_path})


def test_the_map_names_existing_folders() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+(?:\.(?:py|c)|/))`", text))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {
        room.relative_to(ROOT)
        for folder in FOLDERS
        for room in (ROOT / folder).iterdir()
        if (room / "__init__.py").exists()
    }
    assert not [room for room in rooms if f"`{room}/`" not in text]


def test_the_roof_has_few_rooms_and_files() -> None:
    roof = list((ROOT / "neocpu").iterdir())
    assert len([room for room in roof if (room / "__init__.py").exists()]) <= ROOMS
    loose = [path.name for path in roof if path.suffix == ".py" and path.stem[:2] != "__"]
    assert len(loose) <= LOOSE


def test_the_makefile_names_tests_that_are_there() -> None:
    named = re.findall(r"(?<![\w$(])tests/[\w/]+", (ROOT / "Makefile").read_text())
    assert "tests/neocpu/runtime" in named
    assert not [path for path in named if not list(ROOT.glob(f"{path}*"))]


def test_modules_that_tests_share_can_be_imported_by_name() -> None:
    shared = [
        source
        for source in (ROOT / "tests").rglob("*.py")
        if not source.name.startswith(("test_", "conftest", "__main__"))
    ]
    folders = {str(source.parent.relative_to(ROOT)) for source in shared}
    assert PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"] == [".", *sorted(folders)]
    assert len({source.name for source in shared}) == len(shared)
