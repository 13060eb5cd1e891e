"""Code that is not ours fails as an error, whatever it raises."""

import pytest

from neocpu.foundation.errors import ModelError, UsageError
from neocpu.foundation.foreign_code import foreign_code, told


class Own(BaseException):
    """What no ``except Exception`` catches."""


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (SystemExit(0), "it ends the program, by sys.exit(0)"),
        (SystemExit(), "it ends the program, by sys.exit()"),
        (SystemExit("no\nway"), r"it ends the program, by sys.exit('no\nway')"),
        (Own("why\nnot"), "Own: why not"),
        (ValueError(), "ValueError"),
    ],
)
def test_whatever_it_raises_is_an_error_on_one_line(raised, words):
    with pytest.raises(ModelError) as caught, foreign_code(lambda e: ModelError(told(e))):
        raise raised
    assert str(caught.value) == words
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), UsageError("its own")])
def test_ctrl_c_and_our_own_errors_stay_what_they_are(raised):
    with pytest.raises(type(raised)) as caught, foreign_code(lambda e: ModelError(told(e))):
        raise raised
    assert caught.value is raised
