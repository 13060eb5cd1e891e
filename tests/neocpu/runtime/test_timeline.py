"""Timelines of runs, and their files for viewers."""

import itertools
import json
import threading

import numpy as np
import pytest
from small_plans import small_operator

from neocpu import load
from neocpu.foundation.errors import UsageError
from neocpu.runtime.described_calls import DescribedCall, describe_calls, operators_in_turn
from neocpu.runtime.timeline import Timeline, TraceEvent, seconds_of_calls


def contains(outer: TraceEvent, inner: TraceEvent) -> bool:
    return outer.begin <= inner.begin <= inner.end <= outer.end and outer.run == inner.run


@pytest.fixture(scope="module", params=[1, 2])
def traced(small, request):
    """A timeline of three runs among five, and their outputs."""
    inputs = small.inputs()
    with load(small.path, request.param) as module:
        outputs = [module(inputs)]
        module.start_trace()
        outputs += [module(inputs) for _ in range(3)]
        timeline = module.stop_trace()
        outputs.append(module(inputs))
        return timeline, outputs


def test_outputs_are_the_same_bits(traced):
    _, (first, *others) = traced
    for output in others:
        np.testing.assert_array_equal(output, first)


def test_runs_have_all_calls_in_order(traced, small):
    timeline, _ = traced
    assert timeline.name == "small"
    assert [call.kernel for call in timeline.calls] == [name for name, _ in small.header.calls]
    assert timeline.events == tuple(sorted(timeline.events, key=lambda event: event.begin))
    runs = [event for event in timeline.events if event.kind == "run"]
    assert [event.run for event in runs] == [0, 1, 2]
    calls = [event for event in timeline.events if event.kind == "kernel"]
    assert [event.call for event in calls] == [*range(len(timeline.calls))] * 3
    assert all(contains(runs[event.run], event) for event in calls)
    for row in (runs, calls):
        assert all(one.end <= next_one.begin for one, next_one in itertools.pairwise(row))
    assert {event.thread for event in (*runs, *calls)} == {0}
    seconds = seconds_of_calls(timeline.events, len(timeline.calls))
    assert [len(times) for times in seconds] == [3] * len(timeline.calls)


def test_tasks_lie_in_their_calls_one_after_another(traced):
    timeline, _ = traced
    calls = {(event.run, event.call): event for event in timeline.events if event.kind == "kernel"}
    last: dict[int, TraceEvent] = {}
    tasks = [event for event in timeline.events if event.kind == "task"]
    assert tasks
    for task in tasks:
        assert contains(calls[task.run, task.call], task)
        if (before := last.get(task.thread)) is not None:
            assert before.end <= task.begin
        last[task.thread] = task
    assert len({(task.run, task.call, task.loop, task.task) for task in tasks}) == len(tasks)


def test_nothing_is_noted_unless_asked(linear):
    inputs = linear.inputs()
    with load(linear.path, 1) as module:
        module(inputs)
        with pytest.raises(UsageError, match="no trace of the model was started"):
            module.stop_trace()
        module.start_trace()
        assert module.stop_trace().events == ()
        module(inputs)
        with pytest.raises(UsageError, match="no trace"):
            module.stop_trace()
        module.start_trace()
        module(inputs)
        module.start_trace()  # anew
        module(inputs)
        assert [event.run for event in module.stop_trace().events if event.kind == "run"] == [0]
    for refused in (module.start_trace, module.stop_trace):
        with pytest.raises(UsageError, match="is closed"):
            refused()


def test_calls_of_several_threads_are_runs_in_turn(two_way):
    inputs = two_way.inputs()
    with load(two_way.path, 2) as module:
        module.start_trace()
        callers = [threading.Thread(target=module, args=(inputs,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        runs = [event for event in module.stop_trace().events if event.kind == "run"]
    assert [event.run for event in runs] == [0, 1, 2, 3]
    assert all(one.end <= later.begin for one, later in itertools.pairwise(runs))


def test_calls_have_their_operators_and_bytes(small):
    with load(small.path, 1) as module:
        calls = describe_calls(module.metadata)
    header = small.header
    names = [op.name for op in header.plan.ops if op.kernel == calls[0].kernel]
    assert calls[0].name == names[0]
    assert sum(call.weights for call in calls) >= 4 * (8 * 3 * 3 * 3 + 5 * 8)
    image = 4 * 3 * 8 * 8
    assert any(call.others > image for call in calls)


def test_equal_operators_share_a_kernel():
    operators = [small_operator(name, kernel="k") for name in ("a", "b")]
    named = operators_in_turn(operators, ("k", "other", "k", "k"))
    assert [operator and operator.name for operator in named] == ["a", None, "b", "b"]
    assert list(operators_in_turn((), ("k",))) == [None]


def test_a_viewer_gets_rows_of_threads_in_microseconds(tmp_path):
    call = DescribedCall('conv "1"', "conv2d_0", 40, 80)
    start = 10**15
    events = (
        TraceEvent(begin=start, end=start + 9_000, run=0, call=-1, loop=-1, task=-1, thread=0),
        TraceEvent(
            begin=start + 1_000, end=start + 7_500, run=0, call=0, loop=-1, task=-1, thread=0
        ),
        TraceEvent(begin=start + 1_500, end=start + 7_000, run=0, call=0, loop=0, task=0, thread=0),
        TraceEvent(begin=start + 2_001, end=start + 7_001, run=0, call=0, loop=0, task=1, thread=1),
    )
    path = tmp_path / "t.json"
    Timeline("net", (call,), events).write(path)
    document = json.loads(path.read_text())
    labels = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert {(one["name"], one["tid"]) for one in labels} >= {
        *(("process_name", 0), ("thread_name", 0), ("thread_name", 1))
    }
    rows = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(one["ts"], one["dur"], one["tid"]) for one in rows] == [
        *((0, 9, 0), (1, 6.5, 0), (1.5, 5.5, 0), (2.001, 5, 1))
    ]
    assert [one["name"] for one in rows] == ["run 0", *['conv "1"'] * 3]
    assert [one["cat"] for one in rows] == ["run", "kernel", "task", "task"]
    assert rows[1]["args"] == {
        **{"kernel": "conv2d_0", "call": 0, "weight_bytes": 40, "other_bytes": 80}
    }
    assert rows[3]["args"] == {"loop": 0, "task": 1}
    assert {one["pid"] for one in (*labels, *rows)} == {0}


def test_a_timeline_without_events_is_one_too(tmp_path):
    Timeline("net", (), ()).write(tmp_path / "t.json")
    (label,) = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert label["args"] == {"name": "net"}
