"""The page of all commands is what they say of themselves."""

from help_page import PAGE, page

from neocpu.cli.commands import COMMANDS


def test_the_page_says_what_the_commands_say():
    # Lines may break elsewhere with another version of click.
    assert PAGE.read_text().split() == page().split(), "write it again: make docs"


def test_every_command_is_on_it():
    text = page()
    for name, line in COMMANDS.items():
        assert f"\n## neocpu {name}\n" in text
        assert line in text
    assert "\n## neocpu db prune\n" in text
