"""Settings and checks of every test run."""

import logging
import os
import resource
import signal
from collections import Counter
from pathlib import Path

import pytest
from checkout_tree import broken_bytecode, differences, snapshot
from hypothesis import HealthCheck, settings

from neocpu.foundation.own_process import collect_rarely
from tests import rotation

# Before numpy is imported, here and in what the tests start: threads of its own for each of several
# processes wait for each other, busily.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CHECKOUT = Path(__file__).parents[1]
BEFORE = pytest.StashKey[dict[str, str]]()
LEFT = pytest.StashKey[list[str]]()


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write what golden tests compare with anew"
    )


def pytest_configure():
    collect_rarely()
    # The background jobs of a shell ignore Ctrl-C, and the processes they start inherit that: the
    # tests that interrupt one would wait forever.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests assert nothing about time, because machines may be busy; and every run is the same:
    # `make fuzz` looks for new failures.
    settings.register_profile(
        "repeatable",
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("repeatable")
    # Children that crash on purpose would leave core dumps beside the tests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def pytest_report_header():
    return (
        f"one_in: set {rotation.VARIABLE}={rotation.offset(CHECKOUT)} to run the same cases again"
    )


def pytest_collection_modifyitems(items):
    """Leave out cases that are much like others, unless all tests are asked for."""
    marked = [item for item in items if item.get_closest_marker("one_in") is not None]
    cases = Counter(map(_test_of, marked))
    seen = Counter()
    for item in marked:
        import needs  # and with it numpy, see above

        test, (count,) = _test_of(item), item.get_closest_marker("one_in").args
        if not rotation.runs(seen[test], cases[test], count, rotation.offset(CHECKOUT)):
            item.add_marker(needs.everything())
        seen[test] += 1


def _test_of(item):
    return item.nodeid.partition("[")[0]


@pytest.fixture(scope="session", autouse=True)
def kept_code(request, tmp_path_factory):
    """Share the code of kernels among all tests and processes of this run only."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEOCPU_CACHE_DIR", str(shared / "kept-code"))
        yield


@pytest.fixture(autouse=True)
def as_a_process_begins():
    """Undo what commands and provers leave in the process, before the next test.

    A command sets the level of the logger; TVM's prover has signals restart system calls.
    """
    signal.siginterrupt(signal.SIGINT, True)
    logger = logging.getLogger("neocpu")
    logger.setLevel(logging.NOTSET)
    logger.handlers.clear()


def pytest_sessionstart(session):
    # Workers of pytest-xdist do not check; and golden files are written on purpose.
    if not (hasattr(session.config, "workerinput") or session.config.option.update_golden):
        session.config.stash[BEFORE] = snapshot(CHECKOUT)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session):
    """Fail the run if the checkout has changed once the workers have ended."""
    result = yield
    before = session.config.stash.get(BEFORE, None)
    if before is not None:
        left = [*differences(before, snapshot(CHECKOUT)), *broken_bytecode(CHECKOUT)]
        session.config.stash[LEFT] = left
        if left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return result


def pytest_terminal_summary(terminalreporter, config):
    left = config.stash.get(LEFT, [])
    if left:
        terminalreporter.section("the checkout is not as it was before the tests", red=True)
        terminalreporter.write_line("A test changed it, or someone else meanwhile:")
        for line in left:
            terminalreporter.write_line(line)
