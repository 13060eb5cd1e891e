"""``neocpu doctor``: a fit machine, every defect it reports, and reports that name nobody."""

import getpass
import os
import re
import signal
import socket
import subprocess
import sys
from importlib import metadata

import needs
import pytest

from neocpu.cli.checks import health, machine_facts, runtime_health
from neocpu.cli.checks.machine_facts import without_secrets, without_values
from neocpu.cli.checks.runtime_health import Finding, examine
from neocpu.foundation import requirements
from neocpu.foundation.errors import UsageError
from neocpu.foundation.python_child import module_command, program_command
from neocpu.foundation.requirements import Misfit
from neocpu.runtime import binding
from neocpu.runtime.guarding import GUARD_VARIABLE


def one(check):
    (finding,) = examine((check,))
    return finding


def test_this_machine_is_fit(cli):
    outcome = cli("doctor", "--json")
    report = outcome.json
    failed = [check for check in report["checks"] if check["status"] == "failed"]
    assert failed == []
    assert report["fit"] is True
    assert outcome.code == 0
    names = [check["name"] for check in report["checks"]]
    for name in ("python", "neocpu", "apache-tvm", "apache-tvm-ffi", "ffi self-test", "smoke test"):
        assert name in names
    assert f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} CPUs" in outcome.out


def test_text_and_exit_code(cli, monkeypatch):
    def checks():
        yield Finding("good", "ok", "is well", "not shown")
        yield Finding("odd", "warning", "is odd", "look at it")

    def bad():
        yield Finding("bad", "failed", "is broken", "mend it")

    monkeypatch.setattr(health, "CHECKS", (checks,))
    outcome = cli("doctor").succeeds()
    assert outcome.out == "✓ good: is well\n! odd: is odd\n    look at it\nneocpu works here\n"
    monkeypatch.setattr(health, "CHECKS", (checks, bad))
    outcome = cli("doctor")
    assert outcome.code == 1
    assert outcome.out.endswith(
        "✗ bad: is broken\n    mend it\nneocpu does not work here: see the lines with ✗\n"
    )


def test_where_models_are_only_run(cli, monkeypatch):
    monkeypatch.setattr("neocpu.cli.doctor.installed", lambda *_: False)
    report = cli("doctor", "--json").json
    assert report["fit"] is True
    names = [check["name"] for check in report["checks"]]
    assert names == ["python", "neocpu-runtime", "runtime library", "CPU", "threads"]


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setattr(binding, "LIBRARY", tmp_path / "libneocpu.so")
    binding.library.cache_clear()
    finding = one(runtime_health.runtime_library)
    binding.library.cache_clear()
    assert finding.status == "failed"
    assert f"there is no {tmp_path}/libneocpu.so; install neocpu or neoc" in finding.detail


def test_the_compiler_needs_a_newer_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    assert one(runtime_health.python_version).status == "ok"
    finding = one(health.python_version)
    assert (finding.status, finding.fix) == ("failed", "use Python 3.11 or newer")


def test_selftest_adds_to_the_checks(cli, monkeypatch):
    def quick():
        yield Finding("quick", "ok", "is well")

    def long():
        yield Finding("long", "ok", "is well too")

    for module in (health, runtime_health):
        monkeypatch.setattr(module, "CHECKS", (quick,))
        monkeypatch.setattr(module, "SELF_TESTS", (long,))
    for installed in (True, False):
        monkeypatch.setattr("neocpu.cli.doctor.installed", lambda *_, found=installed: found)
        assert cli("doctor").out == "✓ quick: is well\nneocpu works here\n"
        outcome = cli("doctor", "--selftest")
        assert outcome.out == "✓ quick: is well\n✓ long: is well too\nneocpu works here\n"


def test_packages_that_do_not_fit(monkeypatch):
    misfit = Misfit(by="onnx 2", package="numpy", wanted=">=2.1", found="1.26.4")
    pinned = Misfit(by="neocpu", package="apache-tvm-ffi", wanted="==0.1", found=None)
    monkeypatch.setattr(requirements, "find_misfits", lambda: [pinned, misfit])
    finding = one(health.packages)
    assert (finding.name, finding.status) == ("numpy", "failed")
    assert finding.detail == "onnx 2 needs numpy>=2.1, and 1.26.4 is installed"
    assert finding.fix.startswith("pip install 'numpy>=2.1'")


@pytest.mark.slow
@needs.everything()
def test_kernels_keep_to_their_tensors_here():
    finding = one(health.guarded)
    assert finding.status == "ok"
    assert "operators keep to their tensors" in finding.detail


def test_without_a_compiler_kernels_are_not_tested():
    assert one(runtime_health.guarded).status == "warning"


class TestChildren:
    @pytest.mark.parametrize(
        ("script", "detail"),
        [
            (f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})", "crashed: SIGSEGV"),
            ("raise ImportError('no tvm')", "ImportError: no tvm"),
            ("import sys; sys.exit(1)", "no message"),
        ],
    )
    def test_that_fail(self, monkeypatch, script, detail):
        real = subprocess.run

        def run(command, **settings):
            assert command == module_command("neocpu.cli.checks.self_test", "ffi")
            return real(program_command(script), **settings)

        monkeypatch.setattr(subprocess, "run", run)
        finding = one(health.ffi)
        assert (finding.status, finding.detail) == ("failed", detail)
        wanted = next(r for r in metadata.requires("neocpu") or () if "ffi==" in r)
        assert f"pip install apache-tvm==0.27.0.post1 {wanted}" in finding.fix

    def test_a_kernel_that_steps_out_is_named(self, monkeypatch):
        real = subprocess.run

        def run(command, **settings):
            assert command == module_command("neocpu.cli.checks.self_test", "guard")
            assert settings["env"][GUARD_VARIABLE] == "1"
            script = (
                "import ctypes, faulthandler;"
                "from neocpu.runtime.guarding.guard import under_the_name;"
                "faulthandler.enable();"
                "under_the_name('kernel pool, at the end', lambda: ctypes.string_at(8))()"
            )
            return real(program_command(script), **settings)

        monkeypatch.setattr(subprocess, "run", run)
        finding = one(health.guarded)
        assert finding.status == "failed"
        assert finding.detail == "crashed: SIGSEGV, kernel pool, at the end"
        assert "NEOCPU_GUARD=1" in finding.fix

    def test_that_hang(self, monkeypatch):
        def run(command, **settings):
            raise subprocess.TimeoutExpired(command, settings["timeout"])

        monkeypatch.setattr(subprocess, "run", run)
        assert one(health.smoke).detail == "no answer within 120 s"


def test_wrong_and_missing_versions(monkeypatch):
    found = {"neocpu": "0.1.0", "apache-tvm": "0.25.0"}

    def version(package):
        if package not in found:
            raise metadata.PackageNotFoundError(package)
        return found[package]

    monkeypatch.setattr(metadata, "version", version)
    findings = {finding.name: finding for finding in examine((health.pinned_versions,))}
    assert findings["apache-tvm"].status == "failed"
    assert findings["apache-tvm"].detail.startswith("0.25.0 instead of 0.27")
    assert findings["apache-tvm-ffi"].detail == "not installed"
    assert findings["apache-tvm-ffi"].fix.startswith("pip install apache-tvm-ffi==")


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    finding = one(health.linker)
    assert finding.status == "failed"
    assert "install g++" in finding.detail


def test_no_vectors(monkeypatch):
    from neocpu.schedules.vocabulary import target_parsing

    old = target_parsing.parse_target("llvm -mcpu=nehalem -mtriple=x86_64-linux-gnu")
    monkeypatch.setattr(target_parsing, "host_target", lambda: old)
    finding = one(health.cpu)
    assert finding.status == "warning"
    assert "nehalem, sse of 128 bits" in finding.detail


def test_a_quota_limits_the_threads(monkeypatch):
    from neocpu.foundation import host

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(host, "usable_cpus", lambda: 2)
    assert "2 by default: affinity allows 4 of" in one(runtime_health.threads).detail
    assert "the control group's quota 2" in one(runtime_health.threads).detail


def test_databases(tmp_path, monkeypatch):
    from neocpu.tuning_db import store

    monkeypatch.setattr(store, "shipped_databases", lambda: ())
    database = tmp_path / "records.jsonl"
    monkeypatch.setattr(store, "default_database", lambda: database)
    assert one(health.databases).detail == f"{database}, not made yet"
    database.write_text("torn\n")
    finding = one(health.databases)
    assert finding.status == "warning"
    assert "0 usable records, 1 lines skipped (line 1: " in finding.detail
    database.unlink()
    database.mkdir()
    assert one(health.databases).status == "failed"


def test_a_check_that_fails_is_a_finding():
    def fails():
        raise UsageError("what and how to mend it")

    def breaks():
        raise ValueError("first\nlast")

    findings = list(examine((fails, breaks)))
    assert [finding.detail for finding in findings] == [
        "what and how to mend it",
        "ValueError: last",
    ]
    assert {finding.status for finding in findings} == {"failed"}


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
    assert outcome.json["checks"][0]["detail"] == "…/x.so of <user>@<host>"
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
    report = cli("doctor", "--report", "--json").json
    assert set(report["machine"]) == set(machine_facts.FACTS)
    assert report["checks"][0]["detail"] == "is well"
    assert "machine" not in cli("doctor", "--json").json


def test_a_failed_finding_does_not_hide_the_others(monkeypatch):
    def breaks():
        raise OSError("/home/somebody")

    monkeypatch.setitem(machine_facts.FACTS, "clock", breaks)  # type: ignore[arg-type]
    found = machine_facts.facts()
    assert found["clock"] == "not to be found out: OSError"
    assert found["python"].startswith("CPython 3.")
