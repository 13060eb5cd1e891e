"""Code that is not ours fails as an error, whatever it raises."""

import pytest

from neocpu.foundation.errors import ModelError, UsageError
from neocpu.foundation.foreign_code import foreign_code, one_line


class Own(BaseException):
    """An exception that no ``except Exception`` catches."""


class Unprintable:
    def __repr__(self):
        raise ValueError


class Mute(Exception):
    """An exception that fails when it is converted to text."""

    def __str__(self):
        raise SystemExit(0)


class Wordless(Exception):
    """An exception whose ``__str__`` does not return text."""

    def __str__(self):
        return None


class Endless(SystemExit):
    """An exit that fails when it is asked for its code."""

    code = property(lambda self: 1 / 0)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (SystemExit(0), "it ends the program, by sys.exit(0)"),
        (SystemExit(), "it ends the program, by sys.exit()"),
        (SystemExit("no\nway"), r"it ends the program, by sys.exit('no\nway')"),
        (Own("why\nnot"), "Own: why not"),
        (ValueError(), "ValueError"),
        (ValueError("a\x1b[2J"), r"ValueError: a\x1b[2J"),
        (SystemExit(Unprintable()), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration(3), "StopIteration: 3"),
        (Mute(), "Mute"),
        (Wordless(), "Wordless"),
        (Endless(), "Endless"),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 987}…"),
    ],
)
def test_whatever_it_raises_is_an_error_on_one_line(raised, words):
    with pytest.raises(ModelError) as caught, foreign_code(lambda e: ModelError(one_line(e))):
        raise raised
    assert str(caught.value) == words
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), UsageError("its own")])
def test_ctrl_c_and_our_own_errors_are_not_wrapped(raised):
    with pytest.raises(type(raised)) as caught, foreign_code(lambda e: ModelError(one_line(e))):
        raise raised
    assert caught.value is raised
