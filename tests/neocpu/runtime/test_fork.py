"""Processes that fork: a child and the modules that its parent loaded."""

import subprocess
import sys

import pytest
from scripts import run_script

PRELUDE = """
import os, sys, threading, time
import numpy as np
import neocpu
from neocpu.foundation.errors import UsageError
path = sys.argv[1]
x = np.ones((4, 64), 'float32')

def refused(call):
    try:
        call()
    except UsageError as error:
        return str(error)
    return 'not refused'

def in_child(work):
    '''Run it in a child, which then ends as programs do; fail if it does not within 20 seconds.'''
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            if status:
                os._exit(status)
        sys.exit(0)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, status
            return
        time.sleep(0.005)
    os.kill(pid, 9)
    sys.exit('the child hangs')
"""


def test_a_child_is_refused_at_once_and_loads_its_own(linear):
    script = """
pool = neocpu.ThreadPool(2)
module, shared = neocpu.load(path, 2), neocpu.load(path, pool=pool)
expected = module(x)
def work():
    begin = time.monotonic()
    for one in (module, shared):
        submit = lambda: one.submit(x)
        for use in (
            lambda: one(x), lambda: one.run({'x': x}), submit, one.warmup, one.wait_verified,
        ):
            message = refused(use)
            assert message == (
                "model 'linear' was loaded before this process forked: load it in the child"
                if use is not submit else
                "the pool was made before this process forked: make one in the child"
            ), message
    assert 'made before this process forked' in refused(lambda: neocpu.load(path, pool=pool))
    assert time.monotonic() - begin < 5
    assert len(os.listdir('/proc/self/task')) == 1
    module.close(); shared.close(); pool.close()
    with neocpu.load(path, 2) as own:
        assert (own(x) == expected).all()
in_child(work)
for one in (module, shared):
    assert (one(x) == expected).all()
module.close(); shared.close(); pool.close()
print('done')
"""
    assert run_script(PRELUDE + script, linear.path) == "done\n"


def test_a_child_may_drop_what_it_inherited(linear):
    script = """
import gc
modules = [neocpu.load(path, 2) for _ in range(2)]
expected = modules[0](x)
def work():
    modules.clear()
    gc.collect()
    with neocpu.load(path, 1) as own:
        assert (own(x) == expected).all()
in_child(work)
assert all((one(x) == expected).all() for one in modules)
print('done')
"""
    assert run_script(PRELUDE + script, linear.path) == "done\n"


def test_forks_amid_calls_and_loads_of_other_threads(linear):
    """Any lock may be locked at the moment of a fork."""
    script = """
module = neocpu.load(path, 2)
expected = module(x)
stop = threading.Event()
def call():
    while not stop.is_set():
        assert (module(x) == expected).all()
def load():
    while not stop.is_set():
        neocpu.load(path, 1).close()
threads = [threading.Thread(target=work) for work in (call, call, call, load)]
for thread in threads:
    thread.start()
def work():
    assert 'forked' in refused(lambda: module(x))
    module.close()
for _ in range(15):
    in_child(work)
stop.set()
for thread in threads:
    thread.join()
assert (module(x) == expected).all()
print('done')
"""
    assert run_script(PRELUDE + script, linear.path) == "done\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(linear, tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing, sys
import numpy as np
import neocpu

def work(queue, path):
    with neocpu.load(path, 1) as own:
        queue.put(own(np.ones((4, 64), 'float32')))

if __name__ == '__main__':
    method, path = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with neocpu.load(path, 2) as module:
        expected = module(np.ones((4, 64), 'float32'))
        queue = context.Queue()
        children = [context.Process(target=work, args=(queue, path)) for _ in range(2)]
        for child in children:
            child.start()
        for _ in children:
            assert (queue.get(timeout=60) == expected).all()
        for child in children:
            child.join(60)
            assert child.exitcode == 0, child.exitcode
        assert (module(np.ones((4, 64), 'float32')) == expected).all()
    print('done')
"""
    )
    done = subprocess.run(
        [sys.executable, str(script), method, str(linear.path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "done\n", done.stderr
