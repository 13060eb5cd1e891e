"""The page of all commands equals their help."""

import tomllib

import click
import pytest
from help_page import PAGE, sections

HELPS = dict(sections())
PROJECT = PAGE.parents[1] / "pyproject.toml"


def words(text: str) -> str:
    """Return the words of a text, wherever its lines break, also within a hyphenated word."""
    return "".join(text.split())


@pytest.mark.parametrize("path", HELPS)
def test_the_page_has_every_command_and_what_it_takes(path):
    # Not letter for letter: click's versions word defaults and ranges differently.
    page = PAGE.read_text()
    assert f"\n## {path}\n" in page, "write it again: make docs"
    section = page.partition(f"\n## {path}\n")[2].partition("\n## ")[0]
    command, _ = HELPS[path]
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert max(param.opts, key=len) in section, "write it again: make docs"
            assert words(param.help or "") in words(section), "write it again: make docs"
    assert words(command.get_short_help_str(1000).rstrip(".")) in words(section)


@pytest.mark.parametrize(
    ("path", "option", "extra"),
    [
        ("neocpu compile", "--calibrate", "quantize"),
        ("neocpu compile", "--target", "cross"),
        ("neocpu quantize", "--calibrate", "quantize"),
        ("neocpu quantize", "--histograms", "quantize"),
        ("neocpu reduce", "--check", "bench"),
        ("neocpu bench race", "--vs", "bench"),
        ("neocpu bench race", "--chart", "bench"),
        ("neocpu bench race", "--precision", "nncf"),
    ],
)
def test_an_option_names_the_extra_that_it_needs(path: str, option: str, extra: str) -> None:
    command, _ = HELPS[path]
    (found,) = (each for each in command.params if option in each.opts)
    assert isinstance(found, click.Option)
    assert f"neocpu[{extra}]" in (found.help or "")
    assert extra in tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]


def test_there_are_no_other_commands_on_it():
    heads = [line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert heads == list(HELPS)
