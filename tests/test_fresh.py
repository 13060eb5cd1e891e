"""`make fresh`: what it takes of this machine, and what it refuses. Making a machine needs root."""

import os

import fresh
import pytest


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match=r"^fresh: only root .*: sudo make fresh$"):
        fresh.find_bootstrap()


def test_a_missing_program_is_named_with_what_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^fresh: needs .*apt-get install .* mmdebstrap$"):
        fresh.find_bootstrap()
    (tmp_path / "debootstrap").touch(0o755)
    packages = "--include=python3,python3-venv,gcc,g++,make"
    assert fresh.find_bootstrap() == ("debootstrap", "--variant=minbase", packages)


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
    found = fresh.pip_settings()
    assert found["PIP_FIND_LINKS"] == "/wheels /more wheels"
    assert found["PIP_TIMEOUT"] == "9"
    assert not {"PIP_CACHE_DIR", "PIP_USER"} & found.keys()


def test_what_they_name_is_mounted_read_only(tmp_path):
    for name in ("wheels", "index/simple"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cert.pem").touch()
    settings = {
        "PIP_CERT": f"{tmp_path}/cert.pem",
        "PIP_FIND_LINKS": f"{tmp_path}/wheels {tmp_path}/none https://host/wheels",
        "PIP_EXTRA_INDEX_URL": f"file://{tmp_path}/index/simple https://host/simple",
    }
    named = [tmp_path / name for name in ("cert.pem", "wheels", "index")]
    assert fresh.places(settings) == named
    machine = tmp_path / "machine"
    commands = fresh.mounts(machine, settings)
    for path in named:
        inside = f"{machine}{path}"
        at = commands.index(f"mount --bind {path} {inside}")
        assert commands[at + 1] == f"mount -o remount,bind,ro {inside}"
        assert any(line.endswith(inside) for line in commands[:at])


def test_nothing_is_left_when_the_machine_is_done_with(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), fresh.temporary_folder() as machine:  # noqa: PT012
        (machine / "etc").mkdir()
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
