"""Packages whose versions conflict are named, with the fix."""

import os
import re
import subprocess
import sys

import needs
import pytest

import neocpu
from neocpu.foundation import requirements
from neocpu.foundation.errors import DependencyError, dependency_error
from neocpu.foundation.pinned_packages import pinned
from neocpu.foundation.requirements import Misfit, find_misfits, mended

#: The failure of an environment into which another program brought protobuf 5.29.6.
OLD_PROTOBUF = """
from google.protobuf import runtime_version as runtime
runtime.MAJOR, runtime.MINOR, runtime.PATCH = 5, 29, 6
"""
PROTOBUF = "needs protobuf>=6.31.1,<8, and 5.29.6 is installed: pip install 'protobuf<8,>=6.31.1'"


@pytest.fixture
def plant(tmp_path):
    """Return a function that puts a package where it is found before all others."""

    def put(name, version, *requires, source=None):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        lines = (f"Requires-Dist: {line}\n" for line in requires)
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(head + "".join(lines))
        if source is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(source)

    return put


@pytest.fixture
def run(tmp_path):
    """Return a function that runs neocpu with the planted packages."""

    def start(*command):
        paths = filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))
        return subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    return start


def said(done):
    """Return the line of a command that failed by a fault of its environment."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("neocpu: error: ")


def test_this_environment_has_no_misfits():
    assert find_misfits() == []


class TestOldProtobuf:
    def command(self, *arguments):
        return ("-c", f"{OLD_PROTOBUF}from neocpu.cli.main import run; run()", *arguments)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("compile", "resnet18"),
            ("models", "export", "resnet18"),
            ("quantize", "resnet18", "--calibrate", "x.npz"),
        ],
    )
    def test_a_command_names_both_versions_and_the_fix(self, run, arguments):
        line = said(run(*self.command(*arguments)))
        assert line.startswith("onnx ")
        assert line.endswith(PROTOBUF)

    def test_the_python_api_names_both_versions_and_the_fix(self, run):
        script = f"{OLD_PROTOBUF}import neocpu; neocpu.compile('resnet18')"
        done = run("-c", script)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("neocpu.foundation.errors.DependencyError: onnx ")
        assert last.endswith(PROTOBUF)

    def test_the_doctor_reports_the_misfit(self, run):
        script = (
            f"{OLD_PROTOBUF}from neocpu.cli.checks import health;"
            "from neocpu.cli.checks.runtime_health import examine;"
            "(found,) = examine((health.onnx,)); print(found.status, found.detail)"
        )
        done = run("-c", script)
        assert done.stdout.startswith("failed onnx "), done.stderr
        assert done.stdout.endswith(f"{PROTOBUF}\n")


def test_a_package_of_a_wrong_version_is_named_where_it_cannot_be_imported(run, plant):
    plant("onnx_ir", "0.1.0", source="raise ImportError('this version has no such thing')")
    line = said(run("-m", "neocpu", "compile", "resnet18"))
    assert f"neocpu {neocpu.__version__} needs onnx-ir<2,>=1.1, and 0.1.0 is installed" in line
    assert ": pip install 'onnx-ir<2," in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "resnet18"),
        ("tune", "resnet18"),
        ("quantize", "resnet18", "--calibrate", "x.npz"),
        ("compare", "resnet18", "x.so"),
        ("reduce", "resnet18", "--check", "compiles"),
        ("bench", "resnet18"),
        ("db", "stats"),
        (),
    ],
)
@needs.one_in(4)
def test_another_ffi_of_tvm_is_named_before_it_is_imported(run, plant, arguments):
    """The import would crash without an explanation."""
    plant("tvm_ffi", "0.0", source="import os; os.abort()")
    plant("apache_tvm_ffi", "0.1.2")
    if arguments:
        line = said(run("-m", "neocpu", *arguments))
    else:
        done = run("-c", "import neocpu; neocpu.compile('resnet18')")
        name, _, line = done.stderr.splitlines()[-1].partition(": ")
        assert name == "neocpu.foundation.errors.DependencyError"
    (wanted,) = (version for name, version in pinned() if name == "apache-tvm-ffi")
    needs = f"needs apache-tvm-ffi=={wanted}, and 0.1.2 is installed"
    assert line.startswith(f"neocpu {neocpu.__version__} {needs}; apache-tvm ")
    assert re.search(r": pip install 'apache-tvm-ffi==\S+'$", line)


def test_a_later_failure_names_the_misfit_too(run, plant):
    plant("onnxscript", "0.9.0")
    script = (
        "from neocpu.cli import main, models; import sys\n"
        "def _run(*_): raise TypeError('unexpected keyword')\n"
        "main._invoke = _run; sys.exit(main.main(['models', 'list']))"
    )
    line = said(run("-c", script))
    wanted = "onnxscript<0.8,>=0.7"
    assert line == (
        f"TypeError: unexpected keyword; most likely because neocpu {neocpu.__version__} needs "
        f"{wanted}, and 0.9.0 is installed: pip install '{wanted}'"
    )


def test_a_broken_package_of_the_right_version_is_to_be_reinstalled(run, tmp_path):
    (tmp_path / "onnx_ir").mkdir()
    (tmp_path / "onnx_ir" / "__init__.py").write_text("raise ImportError('a file is missing')")
    line = said(run("-m", "neocpu", "compile", "resnet18"))
    assert "cannot be imported (ImportError: a file is missing): pip install --force" in line


def test_a_bug_is_not_blamed_on_packages():
    assert dependency_error(TypeError("unexpected keyword")) is None
    assert dependency_error(MemoryError()) is None
    assert (
        dependency_error(ImportError("cannot import name", name="neocpu.compilation.compiler"))
        is None
    )
    assert isinstance(dependency_error(ImportError(name="onnx")), DependencyError)


def test_looking_for_a_reason_never_hides_an_error(monkeypatch):
    def broken():
        raise ValueError("a version that is none")

    monkeypatch.setattr(requirements, "find_misfits", broken)
    assert dependency_error(ImportError(name="onnx")) is None


def test_a_missing_requirement_is_a_misfit(monkeypatch, plant, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    plant("click", "8.2.0", "no-such-package>=2", "nor-this; extra == 'much'")
    (found,) = find_misfits()
    assert str(found) == "click 8.2.0 needs no-such-package>=2, and it is not installed"


def test_unreadable_requirements_are_ignored(monkeypatch, plant, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    plant("click", "8.2.0", "not a requirement ><", "no-such-package>=2")
    assert [found.package for found in find_misfits()] == ["no-such-package"]


def test_a_fix_that_breaks_other_packages_says_so(monkeypatch, plant, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    plant("old_program", "1.0", "protobuf<6.0.0,>=3.20")
    plant("new_program", "1.0", "protobuf>=7.0")
    text = mended([Misfit(by="onnx 2", package="protobuf", wanted=">=6.31.1,<8", found="5.29.6")])
    end = ", in another environment than old_program 1.0, which needs protobuf<6.0.0,>=3.20"
    assert text == f"onnx 2 {PROTOBUF}{end}"
