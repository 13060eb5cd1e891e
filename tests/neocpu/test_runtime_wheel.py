"""The distribution ``neocpu-runtime``, installed where there is nothing but numpy."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import numpy as np
import pytest

import neocpu
from neocpu.runtime.native import WHEEL_LIBRARIES
from wheels import runtime

INSTALLED = "lib/python{}.{}/site-packages".format(*sys.version_info)


class Site:
    """A virtual environment with the wheel, and numpy from this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.packages = folder / INSTALLED
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "neocpu"
        # Nothing else of this environment may be found.
        self.beside = folder / "beside"
        self.beside.mkdir()
        for name in ("numpy", "numpy.libs"):
            source = Path(str(distribution("numpy").locate_file(name)))
            if source.exists():
                (self.beside / name).symlink_to(source)
        (self.packages / "beside.pth").write_text(f"{self.beside}\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q"]
        subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return _run(self.python, "-c", *arguments)

    def neocpu(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return _run(self.command, *arguments)


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    words = list(map(str, command))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, capture_output=True, text=True, env=clean, cwd="/")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return runtime.build(os.uname().machine, folder / "dist", folder / "stage")


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site") / "venv", wheel)


def test_is_for_this_machine_and_any_python(wheel: Path) -> None:
    machine = os.uname().machine
    assert wheel.name == (
        f"neocpu_runtime-{neocpu.__version__}-py3-none-manylinux_2_28_{machine}.whl"
    )
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"neocpu_runtime-{neocpu.__version__}.dist-info/METADATA").decode()
    requirements = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    always = [line for line in requirements if "extra" not in line]
    assert [line.split()[1].split(">")[0] for line in always] == ["numpy"]
    assert "neocpu/runtime/lib/libtvm_runtime.so" in names
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    of_tvm = {f"{name}-{owner}" for name in ("LICENSE", "NOTICE") for owner in WHEEL_LIBRARIES}
    assert licences >= {"LICENSE", "LICENSE-libbacktrace", *of_tvm}
    # Six megabytes of libraries; the compiler's would be a quarter of a gigabyte.
    assert wheel.stat().st_size < 8e6


def test_runs_what_the_compiler_wrote_bit_for_bit(linear, site: Site, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", *linear.inputs())
    script = f"""
import sys
import numpy as np
import neocpu
with neocpu.load({str(linear.path)!r}, threads=2) as module:
    np.save({str(tmp_path / "y.npy")!r}, module(np.load({str(tmp_path / "x.npy")!r})))
print(neocpu.__file__, "tvm_ffi" in sys.modules)
"""
    done = site.run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(site.packages / "neocpu" / "__init__.py"), "False"]
    with neocpu.load(linear.path, threads=2) as module:
        expected = module(*linear.inputs())
    assert np.load(tmp_path / "y.npy").tobytes() == expected.tobytes()


def test_says_what_it_does_not_have(site: Site) -> None:
    done = site.run("import neocpu; print(neocpu.__version__); neocpu.compile")
    assert done.stdout.split() == [version("neocpu")]
    assert done.stderr.splitlines()[-1].startswith(
        "AttributeError: neocpu.compile needs the compiler, which neocpu-runtime does not have: "
        "pip install neocpu"
    )


def test_the_command_line_is_an_extra(linear, site: Site) -> None:
    done = site.neocpu("run", linear.path)
    assert done.returncode == 2
    assert done.stderr == (
        "neocpu: error: the command line needs click and rich: pip install 'neocpu-runtime[cli]'\n"
    )


@pytest.fixture
def command_line(site: Site) -> Iterator[None]:
    """Install what the extra would: by links, for nothing may be downloaded."""
    links = [site.beside / name for name in ("click", "rich", "pygments", "markdown_it", "mdurl")]
    for link in links:
        spec = importlib.util.find_spec(link.name)
        assert spec is not None
        assert spec.origin is not None
        link.symlink_to(Path(spec.origin).parent)
    yield
    for link in links:
        link.unlink()


@pytest.mark.usefixtures("command_line")
class TestWithTheCommandLine:
    def test_runs_an_artifact(self, linear, site: Site) -> None:
        done = site.neocpu("run", linear.path, "--repeat", 2)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("linear\n")

    def test_doctor_finds_the_libraries_inside(self, site: Site) -> None:
        done = site.neocpu("doctor")
        assert done.returncode == 0, done.stdout
        assert f"in {site.packages / 'neocpu' / 'runtime' / 'lib'}\n" in done.stdout

    def test_lists_the_commands_it_has(self, site: Site) -> None:
        done = site.neocpu("--help")
        names = re.findall(r"^  (\w+)  ", done.stdout.partition("Commands:")[2], re.MULTILINE)
        assert sorted(names) == sorted(runtime.COMMANDS)

    @pytest.mark.parametrize("command", ["compile", "tune", "bench"])
    def test_says_what_a_missing_command_needs(self, site: Site, command: str) -> None:
        done = site.neocpu(command, "--help")
        assert done.returncode == 2
        assert done.stderr == (
            f"neocpu: error: neocpu {command} needs the compiler: pip install neocpu\n"
        )
