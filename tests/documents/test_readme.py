"""The commands and snippets of the README run as they are printed."""

from __future__ import annotations

import shlex

import pytest
from document_blocks import Block, blocks, commands
from needs import programs, skip
from server_process import ServerProcess

DOCUMENT = "README.md"

#: What is not run here, and what runs it.
ELSEWHERE = {"make demo": "`make fresh` does, on a new machine"}


def _python() -> Block:
    (block,) = (block for block in blocks(DOCUMENT) if block.language == "python")
    return block


@pytest.mark.parametrize("block", [b for b in blocks(DOCUMENT) if not b.language], ids=str)
def test_the_commands_of_a_block_succeed(block, shell):
    if any(block.text.startswith(start) for start in ELSEWHERE):
        pytest.skip(next(why for start, why in ELSEWHERE.items() if block.text.startswith(start)))
    shell(block.text)


def test_the_example_exports_compiles_and_runs(place, shell):
    script = place / "example.py"
    script.write_text(f"{_python().text}\nassert y.shape == (1, 1000), y.shape\n")
    shell("python -P example.py", PYTHONPATH=str(place / "packages"))
    assert (place / "resnet50.so").is_file()


@pytest.mark.parametrize("command", commands(DOCUMENT), ids=str)
def test_a_command_in_a_sentence_succeeds(command, place, shell):
    if " fish " in command.text:
        skip(programs("fish"))
    if command.text.startswith("neocpu serve"):
        with ServerProcess(*shlex.split(command.text)[2:]) as server:
            server.terminate()
            assert server.wait() == 0
    else:
        shell(command.text)
