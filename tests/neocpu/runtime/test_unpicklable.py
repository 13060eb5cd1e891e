"""Objects with threads and memory of their process refuse to be copied or sent to another."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

import neocpu
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.errors import UsageError


@pytest.fixture
def holders(linear):
    with neocpu.load(linear.path, 1) as module, neocpu.ThreadPool(1) as pool:
        compiled = CompiledModule(linear.header, None)
        with compiled:
            yield {"Module": module, "ThreadPool": pool, "CompiledModule": compiled}


INSTEAD = {
    "Module": r"neocpu.load\(\) the artifact in each process, by its path",
    "ThreadPool": "make one in each process",
    "CompiledModule": r"export it to a file, and neocpu.load\(\) that in each process",
}


@pytest.mark.parametrize("name", INSTEAD)
@pytest.mark.parametrize(
    "send",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda thing: pickle.dumps({"in": [thing]}, 0),
        lambda thing: multiprocessing.reduction.ForkingPickler.dumps(thing),
    ],
)
def test_copies_are_refused_with_what_to_do(holders, name, send):
    words = f"a neocpu.{name} cannot be pickled or copied.*: {INSTEAD[name]}"
    for kind in (TypeError, UsageError):  # what libraries expect, and what ours are
        with pytest.raises(kind, match=words):
            send(holders[name])


def test_by_a_pool_of_processes(holders):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        future = processes.submit(repr, holders["Module"])
        with pytest.raises(TypeError, match=r"neocpu\.Module cannot be pickled"):
            future.result(timeout=60)


def test_it_runs_on_afterwards(holders, linear):
    with pytest.raises(UsageError):
        copy.deepcopy(holders["Module"])
    (x,) = linear.inputs()
    assert holders["Module"](x).shape == (4, 33)
