"""``neocpu doctor --report``: the facts for a bug report, without the owner's identity."""

import getpass
import json
import os
import re
import socket

import pytest

from neocpu.cli.checks import health, machine_facts
from neocpu.cli.checks.machine_facts import without_secrets, without_values
from neocpu.cli.checks.runtime_health import Finding

TOKEN = "tok-3kX9"


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """A user whose names are known to the test; return their home."""
    home = tmp_path / "homes" / "marguerite"
    (home / "hush hush").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("API_TOKEN", TOKEN)
    monkeypatch.setenv("NEOCPU_CACHE_DIR", str(home / "hush hush" / "code"))
    monkeypatch.setattr(getpass, "getuser", lambda: "marguerite")
    monkeypatch.setattr(socket, "gethostname", lambda: "vault7.corp.example")
    return home


def is_clean(text, home):
    named = ("marguerite", "vault7", "corp.example", TOKEN, "hush", str(home), os.getcwd())
    return not [each for each in named if each in text] and not re.search(r"(?<![\w…])/\w", text)


def test_texts_name_nobody(stranger):
    database = stranger / "hush hush" / "code"
    assert without_values(f"{database}: torn") == "…/…: torn"
    assert without_values(f"token {TOKEN}!") == "token $API_TOKEN!"
    assert without_secrets(f"{stranger}/a/libneocpu.so, of vault7") == "…/libneocpu.so, of <host>"
    assert without_secrets("(/opt/marguerite/x y) marguerite's") == "(…/x y) <user>'s"
    assert without_secrets("g++ -I/opt/hush/a -L../hush/b") == "g++ -I…/a -L…/b"
    assert without_secrets("./hush/c.so, ../hush/c.so") == "…/c.so, …/c.so"
    assert without_secrets("https://me:hush@pypi.example/simple") == "https:/…/simple"
    assert without_secrets("read/write 3 GFLOP/s and/or 1.5") == "read/write 3 GFLOP/s and/or 1.5"


def test_findings_name_nobody(cli, monkeypatch, stranger):
    def checks():
        yield Finding("code", "failed", f"{stranger}/x.so of marguerite@vault7", f"unset {TOKEN}")

    monkeypatch.setattr(health, "CHECKS", (checks,))
    outcome = cli("doctor", "--report")
    assert outcome.code == 1
    assert "✗ code: …/x.so of <user>@<host>\n    unset $API_TOKEN\n" in outcome.out
    assert is_clean(outcome.out, stranger)
    outcome = cli("doctor", "--report", "--json")
    assert json.loads(outcome.out)["checks"][0]["detail"] == "…/x.so of <user>@<host>"
    assert is_clean(outcome.out, stranger)


def test_a_whole_report(cli, stranger):
    outcome = cli("doctor", "--report")
    first, *lines, last = outcome.out.splitlines()
    assert first == last == "```"
    text = "\n".join(lines)
    for name in machine_facts.FACTS:
        assert re.search(rf"(?m)^  {name} +\S", text), name
    for word in ("apache-tvm 0.27", "numpy ", "onnx ", "KiB", "affinity allows", "transparent: "):
        assert word in text
    assert "✓ smoke test: compiled and ran" in text
    assert "not to be found out" not in text
    assert "API_TOKEN" not in text
    assert "NEOCPU_CACHE_DIR" in text
    assert is_clean(text, stranger)
    assert outcome.code == 0
    assert lines[-1] == "neocpu works here"


def test_for_programs(cli, monkeypatch):
    def checks():
        yield Finding("good", "ok", "is well")

    monkeypatch.setattr(health, "CHECKS", (checks,))
    report = json.loads(cli("doctor", "--report", "--json").out)
    assert set(report["machine"]) == set(machine_facts.FACTS)
    assert report["checks"][0]["detail"] == "is well"
    assert "machine" not in json.loads(cli("doctor", "--json").out)


def test_a_failed_finding_does_not_hide_the_others(monkeypatch):
    def breaks():
        raise OSError("/home/somebody")

    monkeypatch.setitem(machine_facts.FACTS, "clock", breaks)  # type: ignore[arg-type]
    found = machine_facts.facts()
    assert found["clock"] == "not to be found out: OSError"
    assert found["python"].startswith("CPython 3.")
