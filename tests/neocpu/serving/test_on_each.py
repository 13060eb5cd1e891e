"""The same work with all modules of a model at once, and exceptions that end it."""

import os
import signal
import threading

import pytest

from neocpu.foundation.errors import ArtifactError
from neocpu.serving.batches.batched_plans import on_each


class Module:
    """Has calls under way until it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


def test_all_are_at_it_at_the_same_time():
    together = threading.Barrier(3, timeout=60)
    assert sorted(on_each([Module()] * 3, lambda _: together.wait())) == [0, 1, 2]


def damaged():
    raise ArtifactError("damaged")


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("what", "error"), [(damaged, ArtifactError), (interrupted, KeyboardInterrupt)]
)
def test_whatever_is_raised_closes_them(what, error):
    first, *others = modules = [Module(), Module(), Module()]

    def work(module):
        if module is first:
            what()
        assert module is first or module.closed.wait(60)

    with pytest.raises(error):
        on_each(modules, work)
    assert all(module.closed.is_set() for module in others)
