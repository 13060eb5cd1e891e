"""The trace of a run, from timelines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neocpu import load
from neocpu.foundation.errors import UsageError
from neocpu.plan.pages.run_trace import read_trace
from neocpu.runtime.described_calls import describe_calls
from neocpu.runtime.timeline import Timeline, TraceEvent


def written(path, header, events):
    Timeline(header.name, describe_calls(header), tuple(events)).write(path)
    return path


def run_of(number, start, *, first=0):
    """Return two calls; the second has a loop that the second thread ends last."""
    times = [
        (0, 1000, -1, -1, -1, 0),
        (10, 110, first, -1, -1, 0),
        (120, 920, first + 1, -1, -1, 0),
        (130, 430, first + 1, 0, 0, 0),
        (440, 500, first + 1, 0, 2, 0),
        (140, 900, first + 1, 0, 1, 1),
    ]
    return [
        TraceEvent(
            begin=start + begin,
            end=start + end,
            run=number,
            call=call,
            loop=loop,
            task=task,
            thread=thread,
        )
        for begin, end, call, loop, task, thread in times
    ]


def test_the_trace_shows_computing_and_waiting_threads(small, tmp_path):
    header = small.header
    longer = replace(run_of(1, 2000)[0], end=9000)
    events = [*run_of(0, 500), longer, *run_of(1, 2000)[1:]]
    trace = read_trace(
        written(tmp_path / "t.json", header, events), Path("small.so"), header, header
    )
    assert (trace.runs, trace.length, trace.shortest, trace.longest) == (2, 1000, 1000, 7000)
    assert trace.kernels == ((0, 10, 110), (1, 120, 920))
    caller, other = trace.threads
    # The caller ends its tasks at 500 and waits for the other until 900.
    assert (caller.thread, caller.busy, caller.waiting) == (0, 100 + 800 - 400, 400)
    assert (other.thread, other.busy, other.waiting) == (1, 760, 240)
    assert (caller.waits, other.waits) == (((500, 900),), ())
    # Two tasks with 10 ns between them are drawn as one.
    assert caller.tasks == ((1, 130, 500),)
    assert other.tasks == ((1, 140, 900),)
    assert trace.to_json()["threads"][1]["tasks"] == [1, 140, 900]


def test_of_a_set_the_runs_of_the_signature_asked_for(small, tmp_path):
    first = small.header
    second = replace(first, inputs=tuple(replace(s, shape=(2, 3, 4)) for s in first.inputs))
    every = replace(first, others=(second,))
    events = [*run_of(0, 0), *run_of(1, 2000, first=len(first.calls))]
    path = written(tmp_path / "t.json", every, events)
    for header in (first, second):
        trace = read_trace(path, Path("set.so"), header, every)
        assert trace.runs == 1
        assert [call for call, _, _ in trace.kernels] == [0, 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_of_real_runs(small, tmp_path, threads):
    with load(small.path, threads) as module:
        module.start_trace()
        for _ in range(3):
            module(small.inputs())
        timeline = module.stop_trace()
    timeline.write(tmp_path / "t.json")
    trace = read_trace(tmp_path / "t.json", small.path, small.header, small.header)
    lengths = sorted(event.end - event.begin for event in timeline.events if event.kind == "run")
    assert [trace.shortest, trace.length, trace.longest] == lengths
    assert [call for call, _, _ in trace.kernels] == [*range(len(small.header.calls))]
    for thread in trace.threads:
        assert min(thread.busy, thread.waiting) >= 0
        assert thread.busy + thread.waiting <= trace.length


def test_of_something_else(small, linear, tmp_path):
    def said(path, header=small.header):
        with pytest.raises(UsageError) as caught:
            read_trace(path, Path("small.so"), header, header)
        (line,) = str(caught.value).splitlines()
        assert "neocpu run small.so --repeat 20 --trace" in line or "cannot read" in line
        return line

    with load(linear.path, 1) as module:
        module.start_trace()
        module(linear.inputs())
        module.stop_trace().write(tmp_path / "linear.json")
    assert "is of another artifact: its call 0 is of" in said(tmp_path / "linear.json")
    beyond = written(tmp_path / "beyond.json", small.header, run_of(0, 0))
    one = replace(small.header, calls=small.header.calls[:1])
    assert "it has a call 1, and this one makes 1" in said(beyond, one)
    text = beyond.read_text()
    beyond.write_text(text.replace('"weight_bytes":', '"weight_bytes":1'))
    assert "tensors of other sizes" in said(beyond)
    assert "has no whole run" in said(written(tmp_path / "none.json", small.header, []))
    missing = said(tmp_path / "missing.json")
    assert "cannot read" in missing
    bad = tmp_path / "bad.json"
    events = json.loads(text)["traceEvents"]
    events_of_nothing = ('{"traceEvents": [5]}', '{"traceEvents": [{"ph": "X"}]}')
    for wrong in ("", "{", "[]", *events_of_nothing, "\x00", "[" * 100_000):
        bad.write_text(wrong)
        assert "is no timeline of neocpu" in said(bad)
    for name, value in (("ts", float("nan")), ("dur", float("inf")), ("args", []), ("cat", 5)):
        bad.write_text(json.dumps({"traceEvents": [{**event, name: value} for event in events]}))
        said(bad)
