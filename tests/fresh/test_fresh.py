"""`make fresh`: what it takes of this machine, and what it refuses. Making a machine needs root."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import environments, machine
from tests.fresh.__main__ import chosen_tests, parse, steps

ROOT = Path(__file__).parents[2]


def test_another_user_is_refused_and_a_missing_program_named(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="sudo make fresh"):
        machine.find_bootstrap()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"apt-get install .* mmdebstrap"):
        machine.find_bootstrap()
    (tmp_path / "debootstrap").touch(0o755)
    packages = "--include=python3,python3-venv,gcc,g++,make"
    assert machine.find_bootstrap() == ("debootstrap", "--variant=minbase", packages)
    assert machine.find_bootstrap(["libgl1"])[-1] == f"{packages},libgl1"


def test_pips_settings_are_passed_on_from_files_and_variables(monkeypatch, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nfind-links =\n  /wheels\n  /more wheels\ntimeout = 7\ncache-dir = /cache\n"
        "[install]\nuser = false\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    found = machine.pip_settings()
    assert found["PIP_FIND_LINKS"] == "/wheels /more wheels"
    assert found["PIP_TIMEOUT"] == "9"
    assert not {"PIP_CACHE_DIR", "PIP_USER"} & found.keys()


def test_folders_named_in_pip_settings_are_mounted_read_only(tmp_path):
    for name in ("wheels", "index/simple"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cert.pem").touch()
    settings = {
        "PIP_CERT": f"{tmp_path}/cert.pem",
        "PIP_FIND_LINKS": f"{tmp_path}/wheels {tmp_path}/none https://host/wheels",
        "PIP_EXTRA_INDEX_URL": f"file://{tmp_path}/index/simple https://host/simple",
    }
    named = [tmp_path / name for name in ("cert.pem", "wheels", "index")]
    assert machine.places(settings) == named
    folder = tmp_path / "machine"
    commands = machine.mounts(folder, settings)
    for path in named:
        inside = f"{folder}{path}"
        at = commands.index(f"mount --bind {path} {inside}")
        assert commands[at + 1] == f"mount -o remount,bind,ro {inside}"
        assert any(line.endswith(inside) for line in commands[:at])


def test_a_used_machine_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), machine.temporary_folder() as folder:  # noqa: PT012
        (folder / "etc").mkdir()
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


SOURCES = """Types: deb
# http://snapshot.example/archive/debian/20250520T000000Z
URIs: http://deb.example/debian
Suites: bookworm bookworm-updates
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.example/debian-security
"""


@pytest.mark.parametrize(
    ("tool", "system", "suite", "expected"),
    [
        ("mmdebstrap", "debian", "bookworm", "/etc/apt/sources.list.d/debian.sources"),
        ("mmdebstrap", "debian", "trixie", "http://deb.example/debian"),
        ("debootstrap", "debian", "bookworm", "http://deb.example/debian"),
        ("debootstrap", "debian", "forky", "http://deb.example/debian"),
        ("mmdebstrap", "ubuntu", "bookworm", None),
    ],
)
def test_packages_come_from_this_machines_sources(monkeypatch, tool, system, suite, expected):
    release = {"ID": system, "VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(Path, "is_file", lambda path: path.name == "debian.sources")
    monkeypatch.setattr(Path, "stat", lambda path: os.stat(__file__))
    monkeypatch.setattr(Path, "read_text", lambda path: SOURCES)
    assert machine.debian_sources(tool, suite) == ([expected] if expected else [])


def test_tests_are_all_run_where_nothing_else_is_installed():
    demo, test = steps(None, (), "7")
    assert demo == "make demo"
    options = "PYTEST='--random-order --random-order-seed=7 --durations=80'"
    assert test == f"NEOCPU_TESTS=all make test {options}"
    assert [*steps("torch", (), "7")][-1] == f"make test {options}"
    assert [*steps(None, None, "7")] == [demo]
    some = [*steps("torch", chosen_tests("tests/search tests/fresh/test_fresh.py"), "7")][-1]
    assert some.endswith(" --durations=80 tests/search tests/fresh/test_fresh.py'")
    assert chosen_tests("yes") == ()
    assert chosen_tests("no") is None


@pytest.mark.parametrize("name", environments.ENVIRONMENTS)
def test_an_environment_has_a_script(name):
    demo, install, script = steps(name, None, "7")
    assert (demo, script) == ("make demo", f".venv/bin/python tests/fresh/with_{name}.py")
    assert install.startswith(".venv/bin/pip install -q ")
    assert (ROOT / script.split()[1]).is_file()


def test_empty_options_from_make_mean_the_defaults():
    asked = parse(["--suite", "", "--with", "", "--test", "", "--seed", ""])
    assert (asked.suite, asked.beside, asked.test) == ("bookworm", "", "yes")
    assert asked.seed.isdigit()


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("SUITE=sarge", "bookworm, trixie, forky"),
        ("WITH=lisp", "torch, tensorflow, opencv"),
        ("TEST=maybe", "yes, no, tests/…"),
    ],
)
def test_an_unknown_name_is_refused_with_those_known(word, known):
    command = ["make", "-s", f"PYTHON={sys.executable}", "fresh", word]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"fresh: {word} is not known: choose of {known}"


def test_contributing_lists_every_suite_and_environment(monkeypatch):
    told = (ROOT / "CONTRIBUTING.md").read_text()
    for name in (*environments.SUITES, *environments.ENVIRONMENTS):
        assert re.search(rf"`\S*\b{name}`", told), name
