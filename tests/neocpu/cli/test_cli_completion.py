"""``neocpu completion``: shells complete commands by the script that it prints."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import environment

from neocpu.cli.commands import COMMANDS
from neocpu.cli.completion import SHELLS

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(cli, monkeypatch):
    """Return completions of a line's last word, which may be empty, as bash asks for them."""

    def ask(line):
        monkeypatch.setenv("_NEOCPU_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        outcome = cli()
        monkeypatch.delenv("_NEOCPU_COMPLETE")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("neocpu exp", ["plain,explain"]),
        ("neocpu ", [f"plain,{name}" for name in COMMANDS]),
        ("neocpu compile --tu", ["plain,--tune-budget"]),
        (
            "neocpu compile m.onnx --precision ",
            ["plain,auto", "plain,int8", "plain,bf16", "plain,fp32"],
        ),
        ("neocpu compile m --target llvm -mcpu=znver4 --no-v", ["plain,--no-verify"]),
        ("neocpu compile m --operators no.module:x --op", ["plain,--operators", "plain,--opt"]),
        ("neocpu compile resnet5", ["plain,resnet50"]),
        ("neocpu compile ", ["file,"]),
        ("neocpu compile net", ["file,net"]),
        ("neocpu quantize m.onnx --calibrate ph", ["file,ph"]),
        ("neocpu run ", ["file,"]),
        ("neocpu models export resnet5", ["plain,resnet50"]),
        ("neocpu db ch", ["plain,check"]),
        ("neocpu db check tu", ["file,tu"]),
        ("neocpu bench sc", ["plain,scaling"]),
        ("neocpu bench resnet5", ["plain,resnet50"]),
        ("neocpu bench resnet50 --round", ["plain,--rounds"]),
        ("neocpu bench served ", ["file,"]),
        ("neocpu complie net", []),
        ("neocpu completion ", [f"plain,{shell}" for shell in SHELLS]),
    ],
)
def test_completes(complete, line, found):
    assert complete(line) == found


def test_a_file_comes_before_a_network(complete):
    Path("resnet50.onnx").touch()
    assert complete("neocpu compile resnet5") == ["file,resnet5"]


def test_completing_commands_imports_none():
    script = (
        "import sys; from neocpu.cli.main import main; assert main([]) == 0; "
        "print([m for m in sys.modules if m.startswith('neocpu.')], file=sys.stderr)"
    )
    asked = {"_NEOCPU_COMPLETE": "bash_complete", "COMP_WORDS": "neocpu ", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment(), **asked}, check=True
    )
    assert "plain,compile" in done.stdout
    for name in COMMANDS:
        assert f"'neocpu.cli.{name}'" not in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_prints_what_the_shell_reads(cli, shell):
    outcome = cli("completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"_NEOCPU_COMPLETE={shell}_complete" in outcome.out
    document = cli("completion", shell, "--json").json
    assert document == {"shell": shell, "script": document["script"]}
    assert outcome.out.split() == document["script"].split()


def test_bash_reads_it(cli):
    Path("completion").write_text(cli("completion", "bash").out)
    done = subprocess.run(
        ["bash", "--norc", "-c", ". ./completion; complete -p neocpu"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "complete -o nosort -F _neocpu_completion neocpu\n"


def test_another_shell(cli):
    cli("completion", "bsh").fails(2, "'bsh' is not one of bash, zsh, fish; did you mean 'bash'?")
