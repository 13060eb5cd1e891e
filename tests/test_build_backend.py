"""Building and installing leaves nothing in the checkout, and omits no file."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import needs
import pytest

from wheels.backend import LIBRARY

ROOT = Path(__file__).parents[1]
INGREDIENTS = (
    *("neocpu", "core", "foundation", "schedules", "search", "tuning_db", "wheels"),
    *("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"),
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.so")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files that an installation needs."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in INGREDIENTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=IGNORED)
        else:
            shutil.copy(source, folder)
    return folder


def listing(folder):
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def pip(*arguments):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    offline = ("-q", "--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir")
    command = [sys.executable, "-m", "pip", *map(str, arguments), *offline]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("editable", [False, True], ids=["plain", "editable"])
@needs.one_in(2)
def test_an_installation_leaves_at_most_the_library_in_the_checkout(checkout, tmp_path, editable):
    before = listing(checkout)
    option = ["-e"] if editable else []
    # This checkout is installed already, and pip would replace it by the other.
    place = ("--ignore-installed", "--prefix", tmp_path / "installed")
    pip("install", *place, "--no-compile", *option, checkout)
    library = [checkout / "core" / LIBRARY] if editable else []
    assert listing(checkout) == sorted([*before, *library])
    (metadata,) = tmp_path.glob("installed/lib/*/site-packages/neocpu-*.dist-info")
    assert (metadata.parent / "neocpu" / "search").is_dir() != editable
    assert (metadata.parent / "neocpu" / "core" / LIBRARY).is_file() != editable


@needs.everything()
def test_the_archive_of_sources_builds_the_same_wheel(checkout, tmp_path):
    before = listing(checkout)
    script = "import sys; from wheels import backend; backend.build_sdist(sys.argv[1])"
    command = [sys.executable, "-B", "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert listing(checkout) == before
    (archive,) = tmp_path.glob("neocpu-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "sources")
    (unpacked,) = (tmp_path / "sources").iterdir()
    contents = []
    for number, source in enumerate((checkout, unpacked)):
        pip("wheel", "--wheel-dir", tmp_path / str(number), source)
        (wheel,) = (tmp_path / str(number)).iterdir()
        with zipfile.ZipFile(wheel) as members:
            contents.append({member.filename: member.CRC for member in members.infolist()})
    assert contents[0] == contents[1]
