"""The distribution ``neocpu-runtime``, installed in an environment with only numpy."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import neocpu
from neocpu.runtime.binding import LIBRARY
from wheels import runtime
from wheels.platforms import needs_of

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
        self.link(["numpy"])
        (self.packages / "beside.pth").write_text(f"{self.beside}\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q"]
        subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)

    def link(self, requirements: Iterable[str]) -> list[Path]:
        """Install distributions and their requirements by links: nothing may be downloaded."""
        waiting, links = [Requirement(line) for line in requirements], list[Path]()
        seen = set()
        while waiting:
            requirement = waiting.pop()
            if requirement.name in seen:
                continue
            seen.add(requirement.name)
            found = distribution(requirement.name)
            needed = map(Requirement, found.requires or ())
            waiting += (r for r in needed if not r.marker or r.marker.evaluate({"extra": ""}))
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                link = self.beside / top
                if not link.exists():
                    link.symlink_to(Path(str(found.locate_file(top))))
                    links.append(link)
        return links

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return _run(self.python, "-c", *arguments)

    def neocpu(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return _run(self.command, *arguments)


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, env=_environment(), cwd="/")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return runtime.build(os.uname().machine, folder / "dist", folder / "stage")


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site") / "venv", wheel)


def test_the_wheel_is_for_this_machine_and_any_python(wheel: Path) -> None:
    assert wheel.name == f"neocpu_runtime-{neocpu.__version__}-py3-none-{needs_of(LIBRARY)}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(member.file_size for member in archive.infolist())
        metadata = archive.read(f"neocpu_runtime-{neocpu.__version__}.dist-info/METADATA").decode()
    assert "Requires-Python: >=3.10" in metadata.splitlines()
    requirements = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    always = [line for line in requirements if "extra" not in line]
    assert [line.split()[1].split(">")[0] for line in always] == ["numpy"]
    assert [name for name in names if name.endswith(".so")] == ["neocpu/core/libneocpu.so"]
    assert not [name for name in names if "tvm" in name]
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE"}
    assert "neocpu/py.typed" in names
    # GCC 15 makes 5 kB more of the library than GCC 12.
    assert wheel.stat().st_size < 0.36e6
    assert installed < 0.775e6


@pytest.fixture(params=["no TVM", "a TVM that cannot be imported", "this TVM"])
def beside(request: pytest.FixtureRequest, site: Site) -> Iterator[None]:
    """Whatever else is installed there."""
    if request.param == "no TVM":
        yield
        return
    links = [site.beside / name for name in ("tvm", "tvm_ffi")]
    for link in links:
        if request.param == "this TVM":
            link.symlink_to(Path(str(distribution("apache-tvm").locate_file(link.name))))
        else:
            link.mkdir()
            (link / "__init__.py").write_text("raise ImportError('another TVM')")
    yield
    for link in links:
        link.unlink() if link.is_symlink() else shutil.rmtree(link)


@pytest.mark.usefixtures("beside")
def test_the_runtime_wheel_and_the_compiler_agree_bit_for_bit(
    linear, site: Site, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", *linear.inputs())
    script = f"""
import sys
import numpy as np
import neocpu
with neocpu.load({str(linear.path)!r}, threads=2) as module:
    np.save({str(tmp_path / "y.npy")!r}, module(np.load({str(tmp_path / "x.npy")!r})))
print(neocpu.__file__)
print({{"tvm", "tvm_ffi"}} & set(sys.modules), "libtvm" in open("/proc/self/maps").read())
"""
    done = site.run(script)
    assert done.returncode == 0, done.stderr
    installed = site.packages / "neocpu" / "__init__.py"
    assert done.stdout.splitlines() == [str(installed), "set() False"]
    with neocpu.load(linear.path, threads=2) as module:
        expected = module(*linear.inputs())
    assert np.load(tmp_path / "y.npy").tobytes() == expected.tobytes()


def test_missing_parts_of_the_runtime_wheel_are_named(site: Site) -> None:
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
    """Install what the extra would."""
    links = site.link(runtime.requirements()["cli"])
    yield
    for link in links:
        link.unlink()


@pytest.mark.usefixtures("command_line")
class TestWithTheCommandLine:
    def test_runs_an_artifact(self, linear, site: Site) -> None:
        done = site.neocpu("run", linear.path, "--repeat", 2)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("linear\n")

    def test_inspects_an_artifact(self, linear, site: Site) -> None:
        done = site.neocpu("inspect", linear.path, "--verify")
        assert done.returncode == 0, done.stderr
        assert re.search(r"^ *runs here +yes$", done.stdout, re.MULTILINE)

    def test_writes_a_bundle(self, linear, site: Site, tmp_path: Path) -> None:
        done = site.neocpu("bundle", linear.path, "-o", tmp_path / "bundle")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "bundle" / "neocpu.h").is_file()

    def test_doctor_finds_the_library_inside(self, site: Site) -> None:
        done = site.neocpu("doctor")
        assert done.returncode == 0, done.stdout
        assert (
            f"runtime library: {site.packages / 'neocpu' / 'core' / LIBRARY.name}\n" in done.stdout
        )

    def test_lists_the_commands_it_has(self, site: Site) -> None:
        done = site.neocpu("--help")
        names = re.findall(r"^  (\w+)  ", done.stdout.partition("Commands:")[2], re.MULTILINE)
        assert sorted(names) == sorted(runtime.COMMANDS)

    @pytest.mark.parametrize("command", ["compile", "tune", "bench"])
    def test_a_missing_command_names_the_package_it_needs(self, site: Site, command: str) -> None:
        done = site.neocpu(command, "--help")
        assert done.returncode == 2
        assert done.stderr == (
            f"neocpu: error: neocpu {command} needs the compiler: pip install neocpu\n"
        )


def test_serves(linear, site: Site) -> None:
    links = site.link(runtime.requirements()["serve"])
    with subprocess.Popen(
        [site.command, "serve", linear.path, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        cwd="/",
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if (address := re.search(r"http://\S+", line)) is not None:
            with urllib.request.urlopen(f"{address[0]}/v2/models/linear") as answer:
                assert answer.status == 200
        process.terminate()
        _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, ""), line
    assert address is not None
    for link in links:
        link.unlink()
