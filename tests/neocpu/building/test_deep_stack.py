"""Calls on a stack of their own: depth, exceptions, and interruptions that leave no thread."""

import contextvars
import ctypes
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref

import pytest
import tvm_ffi
from tvm import tirx
from waiting import wait_until

from neocpu.building.deep_stack import on_deep_stack

SA_RESTART = 0x10000000


def test_values_arguments_and_context_pass():
    variable = contextvars.ContextVar("variable")
    variable.set(3)
    assert on_deep_stack(lambda a, b: (a, b, variable.get()), 1, b=2) == (1, 2, 3)


def test_errors_reach_the_caller_without_keeping_references():
    class Model:
        pass

    def work(model):
        raise ValueError("no")

    gc.disable()
    try:
        model = Model()
        held = weakref.ref(model)
        with pytest.raises(ValueError, match="no") as caught:
            on_deep_stack(work, model)
        del caught, model
        assert held() is None
    finally:
        gc.enable()


def test_expressions_of_ten_thousand_levels_are_walked():
    def depth() -> int:
        value = tirx.Var("x", "float32")
        for _ in range(10_000):
            value = tirx.Add(value, tirx.const(1.0, "float32"))
        count = 0

        def visit(node):
            nonlocal count
            count += 1

        tvm_ffi.structural_walk(value, (tirx.Add, visit))
        return count

    assert on_deep_stack(depth) == 10_000


def interrupt_when(condition):
    """Return a thread that interrupts this process once a condition holds."""

    def interrupt():
        wait_until(condition)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_an_interrupted_call_ends_before_the_caller_is_interrupted():
    steps = []

    def work():
        while True:
            steps.append(time.monotonic())
            time.sleep(0.001)

    timer = interrupt_when(lambda: steps)
    with pytest.raises(KeyboardInterrupt):
        on_deep_stack(work)
    count = len(steps)
    time.sleep(0.05)
    assert len(steps) == count > 0
    assert not [t for t in threading.enumerate() if t.name == "neocpu-compiler"]
    timer.join()


def test_functions_of_the_standard_library_are_not_left_in_the_middle():
    waits, done = threading.Event(), []

    def work():
        waits.set()
        threading.Event().wait(0.3)
        done.append("waited")
        while True:
            time.sleep(0.001)

    timer = interrupt_when(waits.is_set)
    with pytest.raises(KeyboardInterrupt):
        on_deep_stack(work)
    timer.join()
    assert done == ["waited"]


def test_a_process_ends_although_a_pass_does_not():
    """The pass also holds the lock for which `concurrent.futures` waits when Python ends."""
    script = """
import concurrent.futures, concurrent.futures.thread, os, signal, threading
from neocpu.building import deep_stack
deep_stack.PATIENCE = 0.2
waits = threading.Event()
def work():
    with concurrent.futures.thread._global_shutdown_lock:
        waits.set()
        stuck = threading.Lock(); stuck.acquire(); stuck.acquire()
def interrupt():
    waits.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    deep_stack.on_deep_stack(work)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "interrupted\n", "")


def prove():
    """Change the handler of SIGINT as Z3 does."""
    assert ctypes.CDLL(None).siginterrupt(signal.SIGINT, 0) == 0


def interrupts() -> bool:
    """Return whether SIGINT interrupts system calls: its flags in the C library's structure."""
    action = ctypes.create_string_buffer(256)
    assert ctypes.CDLL(None).sigaction(signal.SIGINT, None, action) == 0
    (flags,) = struct.unpack_from("i", action, 8 + 128)
    return not flags & SA_RESTART


def test_calls_can_be_interrupted_though_a_prover_changes_the_handler():
    proved = threading.Event()

    def work():
        prove()
        proved.set()
        while True:
            time.sleep(0.001)

    timer = interrupt_when(proved.is_set)
    with pytest.raises(KeyboardInterrupt):
        on_deep_stack(work)
    timer.join()
    assert interrupts()


def test_the_handler_is_put_back_as_python_has_it():
    assert interrupts()
    prove()
    assert not interrupts()
    on_deep_stack(prove)
    assert interrupts()


def test_other_threads_keep_their_stack_size():
    before = threading.stack_size()
    on_deep_stack(time.sleep, 0)
    assert threading.stack_size() == before


def test_a_limited_address_space_is_no_obstacle(monkeypatch):
    real, asked = threading.Thread.start, []

    def start(self):
        asked.append(threading.stack_size())
        if len(asked) < 3:
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert on_deep_stack(lambda: 5) == 5
    assert len(set(asked)) == 3
