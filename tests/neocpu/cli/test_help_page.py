"""The page of all commands is what they say of themselves."""

import click
import pytest
from help_page import PAGE, sections

HELPS = dict(sections())


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


def test_there_are_no_other_commands_on_it():
    heads = [line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert heads == list(HELPS)
