"""A bundle built with make, once, and programs linked with its library."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from neocpu.runtime.bundle.write_bundle import write_bundle
from tests.neocpu.runtime import test_bounded_outputs, test_repeats

SOURCES = Path(__file__).parent / "native"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RACES = ("-g", "-fsanitize=thread")

counted = test_bounded_outputs.counted
looped = test_repeats.looped


@dataclass(frozen=True)
class Built:
    """A folder with a bundle and the programs built in it."""

    folder: Path
    flags: tuple[str, ...]

    def run(
        self, program: str, *arguments: object, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program without any environment but the one given."""
        command = [str(self.folder / program), *map(str, arguments)]
        return subprocess.run(
            command, env=environment or {}, capture_output=True, text=True, check=False
        )

    def compile(self, source: str) -> str:
        """Compile a C or C++ program of the tests against the bundle; return its name."""
        name = Path(source).stem
        language = ["g++", "-std=c++17"] if source.endswith(".cc") else ["gcc", "-std=c11"]
        command = [
            *(*language, *WARNINGS, *self.flags, "-D_GNU_SOURCE", "-I.", str(SOURCES / source)),
            *("libneocpu.a", "-o", name, "-pthread", "-lm"),
        ]
        subprocess.run(command, cwd=self.folder, check=True)
        return name


def build(folder: Path, *flags: str) -> Built:
    """Run make in a bundle."""
    options = " ".join((*WARNINGS, *flags))
    subprocess.run(["make", "-s", "-j2", f"CFLAGS={options}"], cwd=folder, check=True)
    return Built(folder, flags)


@pytest.fixture(scope="session")
def built(linear, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The bundle of a toy, built as its user would."""
    folder = tmp_path_factory.mktemp("bundle") / "linear"
    write_bundle(linear.path, folder)
    return build(folder, "-O1")


@pytest.fixture(scope="session")
def sanitized(linear, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same bundle, built to end at any wrong access, overflow or leak."""
    folder = tmp_path_factory.mktemp("sanitized") / "linear"
    write_bundle(linear.path, folder)
    return build(folder, "-O1", *SANITIZERS)


@pytest.fixture(scope="session")
def watched(linear, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same bundle, built to fail at any race between its threads."""
    folder = tmp_path_factory.mktemp("watched") / "linear"
    write_bundle(linear.path, folder)
    return build(folder, "-O1", *RACES)


@pytest.fixture
def run(built: Built) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the bundle's own program."""

    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        return built.run("neocpu_run", *arguments)

    return command
