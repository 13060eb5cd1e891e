"""The entry point: help, errors in one line, exit codes, quick start."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_line import environment, imported

from neocpu.cli import commands, options
from neocpu.cli.commands import COMMANDS
from neocpu.cli.main import BROKEN_PIPE
from neocpu.cli.main import cli as group
from neocpu.foundation import errors
from neocpu.foundation.console.terminal import KINDS, Terminal

HEAVY = {"tvm", "onnx", "numpy", "rich", "scipy", "xgboost"}


@pytest.fixture
def failing(monkeypatch):
    """A command ``doctor`` that raises what is put into the list."""
    raised = []

    @click.command()
    @options.common
    def command(terminal):
        raise raised[0]

    monkeypatch.setattr("neocpu.cli.doctor.command", command)
    return raised


class TestHelp:
    def test_names_every_command(self, cli):
        for arguments in ((), ("--help",), ("-h",)):
            outcome = cli(*arguments).succeeds()
            assert outcome.err == ""
            for code in (*KINDS, BROKEN_PIPE):
                assert f"{code} " in outcome.out.partition("Exit codes: ")[2]
            for name, line in COMMANDS.items():
                assert f"  {name} " in outcome.out
                assert line.split()[0] in outcome.out
        assert "Exit codes: 0 success, 1 a bug in neocpu, 2 usage" in outcome.out

    @pytest.mark.parametrize("name", COMMANDS)
    def test_of_each_command_has_an_example_and_the_common_options(self, cli, name):
        command = group.get_command(click.Context(click.Command("x")), name)
        assert command is not None
        leaves = [[name]]
        if isinstance(command, click.Group):
            leaves = [[name, leaf] for leaf in command.commands]
        for leaf in leaves:
            outcome = cli(*leaf, "--help").succeeds()
            assert "Example" in outcome.out
            assert f"  neocpu {' '.join(leaf)}" in outcome.out
            for option in ("--json", "--debug", "--quiet", "--verbose"):
                assert option in outcome.out

    @pytest.mark.parametrize("arguments", [["compile"], ["models", "list"], ["bench", "served"]])
    def test_by_a_letter(self, cli, arguments):
        outcome = cli(*arguments, "-h")
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == cli(*arguments, "--help").out

    @pytest.mark.parametrize("name", ["db", "models", "bench"])
    def test_of_a_group_that_is_asked_for_nothing(self, cli, name):
        outcome = cli(name)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith(f"Usage: neocpu {name} [OPTIONS] ")
        assert outcome.out == cli(name, "--help").out == cli(name, "-h").out

    def test_every_command_is_a_file(self):
        folder = Path(commands.__file__).parent
        assert all((folder / f"{name}.py").is_file() for name in COMMANDS)

    def test_version(self, cli):
        import neocpu

        assert cli("--version").out == f"neocpu {neocpu.__version__}\n"

    def test_needs_no_command_and_no_library(self):
        found = imported("from neocpu.cli.main import main; assert main(['--help']) == 0")
        assert not found & {*HEAVY, *(f"neocpu.cli.{name}" for name in COMMANDS)}

    def test_of_a_command_needs_no_library(self):
        script = (
            "import importlib; from neocpu.cli.commands import COMMANDS; "
            "[importlib.import_module(f'neocpu.cli.{name}') for name in COMMANDS]"
        )
        assert not imported(script) & HEAVY


class TestUsageErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["complie"], "no command 'complie'; did you mean 'compile'?"),
            (["zzz"], "no command 'zzz'; known: compile, quantize, tune,"),
            (["version"], "no command 'version'; did you mean '--version'?"),
            (["help"], "no command 'help'; did you mean '--help'?"),
            (["db", "stat"], "no command 'stat'; did you mean 'stats'?"),
            (["models", "zzz"], "no command 'zzz'; known: export, list (see 'neocpu models --"),
            (["-q", "compile"], "no option -q here: options follow the command"),
            (
                ["bench", "--rounds", "3"],
                "name a MODEL or a --suite (see 'neocpu bench race --help",
            ),
            (["compile", "m", "--tune-bugdet", "9"], "did you mean '--tune-budget'?"),
            (["compile", "m", "--opt", "globel"], "did you mean 'global'?"),
            (
                ["compile", "m", "--tune-budget", "9w"],
                "'9w' is not a duration: write 90, 2ms, 60s,",
            ),
            (["compile", "m", "--threads", "0"], "0 is not in the range x>=1"),
            (["compile", "m", "--algorithms", "direct,"], "is not a list such as direct,depthwise"),
            (["compile"], "missing argument 'MODEL'"),
            (["tune"], "missing argument"),
            (["run", "a.so", "b.so"], "unexpected extra argument"),
            (["compile", "m", "--shape", "x"], "'x' is not of the form NAME:1,3,224,224"),
            (["compile", "m", "--shape", "x:1,-3"], "'x:1,-3' is not of the form"),
            (["compile", "m", "--shape", f"x:{'9' * 5000}"], "is not of the form"),
            (["compile", "m", "--batch", "9" * 20], "no tensor has an extent of 9999"),
            (["tune", "m", "--shape", "x:1", "--shape", "x:2"], "the same input is named twice"),
            (["compile", "m", "--shape", "x:{},3"], "'{}' is an empty set"),
            (["compile", "m", "--typical", "h=1.5"], "'h=1.5' is not of the form 1,3,736,1280, NA"),
            (["compile", "m", "--typical", "h=1,5"], "'h=1,5' is not of the form 1,3,736,1280, NA"),
            (["compile", "m", "--typical", "1,-3"], "'1,-3' is not of the form 1,3,736,1280, NAME"),
            (["compile", "m", "--typical", "5"], "--typical is for ranges of sizes"),
            (
                ["compile", "m", "--shape", "h=1..9", "--typical", "5"],
                "--typical 5: the ranges are of named dimensions; name these, as h=3",
            ),
            (
                ["compile", "m", "--shape", "x:1..9", "--typical", "5", "--typical", "x:5"],
                "give each its name, as in x:1,3,736,1280",
            ),
            (["compile", "m", "--shape", "x:{1,1},3"], "--shape x:1,3 is given twice"),
            (["compile", "m", "--samples", "9"], "--samples says how to read the data of --calib"),
            (["compile", "m", "--fit", "crop"], "--fit says how to read the data of --calibrate"),
            (["compile", "m", "--target"], "'--target' requires an argument"),
        ],
    )
    def test_exit_with_2_and_one_line(self, cli, arguments, message):
        outcome = cli(*arguments)
        assert outcome.code == 2
        assert outcome.out == ""
        assert message in outcome.error

    def test_name_the_help_of_their_command(self, cli):
        assert cli("compile").error.endswith("(see 'neocpu compile --help')")


class TestFailures:
    def test_unexpected_point_to_debug(self, cli, failing):
        failing.append(ZeroDivisionError("first line\nsecond line"))
        outcome = cli("doctor")
        assert outcome.code == 1
        assert outcome.error == (
            "neocpu: error: ZeroDivisionError: first line; run again with --debug for the traceback"
        )

    def test_show_a_traceback_with_debug(self, cli, failing):
        failing.append(errors.ModelError("bad"))
        outcome = cli("doctor", "--debug")
        assert outcome.code == 3
        assert "Traceback" in outcome.err
        assert "raise raised[0]" in outcome.err
        assert outcome.err.endswith("neocpu: error: bad\n")

    @pytest.mark.parametrize(
        ("raised", "words"),
        [
            (SystemExit(0), "nothing was finished: it ends the program, by sys.exit(0)"),
            (GeneratorExit("odd"), "GeneratorExit: odd; run again with --debug"),
        ],
    )
    def test_an_end_that_nobody_meant(self, cli, failing, raised, words):
        """A command is not successful if foreign code ends the process."""
        failing.append(raised)
        outcome = cli("doctor")
        assert outcome.code == 1
        assert outcome.error.startswith(f"neocpu: error: {words}")

    def test_interruption(self, cli, failing):
        failing.append(KeyboardInterrupt())
        outcome = cli("doctor")
        assert outcome.code == 130
        assert outcome.error == "neocpu: error: interrupted; nothing was written"

    def test_interruption_while_an_error_is_printed(self, cli, failing, monkeypatch):
        failing.append(errors.ModelError("bad"))
        fail = Terminal.fail

        def interrupted_once(terminal, message, code):
            if message == "bad":
                raise KeyboardInterrupt
            return fail(terminal, message, code)

        monkeypatch.setattr(Terminal, "fail", interrupted_once)
        outcome = cli("doctor")
        assert outcome.code == 130
        assert outcome.error == "neocpu: error: interrupted; nothing was written"

    def test_interruption_while_source_is_executed(self, tmp_path):
        """Dataclasses execute source at import, and CPython would die of a pending interrupt."""
        script = (
            "from neocpu.cli import doctor, main\n"
            "doctor.command.callback = lambda **_: exec('raise KeyboardInterrupt')\n"
            "main.run()\n"
        )
        (tmp_path / "interrupted.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "-m", "interrupted", "doctor"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment(),
        )
        assert done.stderr == "neocpu: error: interrupted; nothing was written\n"
        assert done.returncode == 130

    @pytest.mark.parametrize(
        ("arguments", "lines"),
        [
            (["explain", "ARTIFACT"], 0),
            (["explain", "ARTIFACT", "--json"], 0),
            (["run", "missing.so", "--json"], 1),
        ],
    )
    def test_a_reader_that_went_away_is_no_error(self, artifact, arguments, lines):
        words = [str(artifact) if word == "ARTIFACT" else word for word in arguments]
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as stream:
            done = subprocess.run(
                [sys.executable, "-m", "neocpu", *words],
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
        assert done.stderr.startswith("neocpu: error: " if lines else "")
        assert (done.returncode, done.stderr.count("\n")) == (141, lines)

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_a_terminal_that_lacks_a_character_is_no_error(self, artifact, encoding):
        script = (
            "from neocpu.cli import main; from neocpu.foundation.console import terminal; "
            "main.main = lambda *_: [terminal.echo('\u5165\u529b \u2713'), "
            "terminal.print_table(['\xb5s\u2026'], [['\u5165\u529b']])] and 0; main.run()"
        )
        for arguments in (["-c", script], ["-m", "neocpu", "explain", str(artifact)]):
            done = subprocess.run(
                [sys.executable, *arguments],
                capture_output=True,
                encoding=encoding,
                env={**environment(), "PYTHONIOENCODING": encoding},
            )
            assert (done.returncode, done.stderr) == (0, "")
            micro = {"ascii": "\\xb5s", "latin-1": "\xb5s"}[encoding]
            assert micro in done.stdout


class TestJsonErrors:
    """A failure under ``--json`` is a document too, besides its line on standard error."""

    @staticmethod
    def error_of(outcome):
        document = outcome.json
        assert outcome.out.count("\n") == 1
        assert document.keys() == {"error"}
        assert document["error"].keys() == {"message", "exit_code", "kind"}
        assert outcome.error == f"neocpu: error: {document['error']['message']}"
        assert document["error"]["exit_code"] == outcome.code
        return document["error"]

    @pytest.mark.parametrize(
        ("raised", "code", "kind"),
        [
            (errors.UsageError("what\nwhere, fix"), 2, "usage"),
            (errors.ModelError("x"), 3, "model"),
            (errors.UnsupportedError("x"), 4, "unsupported"),
            (errors.TargetError("x"), 5, "target"),
            (errors.AccuracyError("x"), 6, "accuracy"),
            (errors.DatabaseError("x"), 7, "database"),
            (errors.ArtifactError("x"), 8, "artifact"),
            (KeyboardInterrupt(), 130, "interrupted"),
            (ZeroDivisionError("x"), 1, "bug"),
        ],
    )
    def test_of_every_kind(self, cli, failing, raised, code, kind):
        failing.append(raised)
        error = self.error_of(cli("doctor", "--json"))
        assert (error["exit_code"], error["kind"]) == (code, kind)
        outcome = cli("doctor")
        assert (outcome.code, outcome.out) == (code, "")
        assert outcome.error == f"neocpu: error: {error['message']}"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--json", "compile"],
            ["compile", "--json"],
            ["compile", "m", "--no-such-option", "--json"],
            ["complie", "--json"],
            ["compile", "m", "--threads", "none", "--json"],
            ["db", "--json", "stats"],
            ["run", "--json", "missing.so", "more"],
        ],
    )
    def test_of_usage(self, cli, arguments):
        assert self.error_of(cli(*arguments))["kind"] == "usage"

    def test_not_where_it_is_an_argument(self, cli):
        outcome = cli("run", "--", "--json")
        assert outcome.code == 8
        assert outcome.out == ""

    def test_one_document_at_most(self, cli, monkeypatch):
        @click.command()
        @options.common
        def command(terminal):
            terminal.result({"a": 1}, lambda: None)
            raise errors.DatabaseError("late")

        monkeypatch.setattr("neocpu.cli.doctor.command", command)
        outcome = cli("doctor", "--json")
        assert outcome.code == 7
        assert outcome.json == {"a": 1}

    def test_every_exit_code_has_a_name(self):
        for kind in errors.NeoCPUError.__subclasses__():
            assert kind.exit_code in KINDS


def test_json_leaves_standard_output_to_the_document(cli, artifact):
    outcome = cli("run", artifact, "--json", "--verbose")
    assert outcome.json["name"] == "small"
    assert outcome.out.count("\n") == 1


def test_python_m_neocpu(shell):
    outcome = shell("--version").succeeds()
    assert outcome.out.startswith("neocpu ")
