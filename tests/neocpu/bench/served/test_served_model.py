"""Served models under load, beside direct calls."""

import contextlib
import json
import math
import socket
import threading
from dataclasses import replace

import numpy as np
import pytest

from neocpu.bench import served
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.served import served_load
from neocpu.bench.served.fastest_calls import CallMode, fastest_calls
from neocpu.bench.served.presentation import present, served_table
from neocpu.bench.served.served_load import Request, counted
from neocpu.bench.served.served_model import (
    ROUNDS,
    ServedReport,
    ServedRequest,
    ServedResult,
    measure_served,
)
from neocpu.bench.served.served_processes import binary_request, same_outputs
from neocpu.cli.main import main
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature

pytest.importorskip("fastapi")


def test_a_served_model(two_way):
    request = ServedRequest(clients=(1, 3), seconds=1.0, threads=1)
    (report,) = measure_served([str(two_way.path)], request)
    assert isinstance(report, ServedReport), report
    assert [result.clients for result in report.results] == [1, 3]
    assert report.wrong == 0
    for result in report.results:
        assert len(result.latencies) == len(result.direct) == len(result.per_answer) == ROUNDS
    document = report.to_json()
    json.dumps(document, allow_nan=False)
    assert isinstance(document["results"][0]["overhead"], float)
    assert document["results"][1]["overhead"] is None


def test_requests_are_computed_in_one_batch(linear):
    """Each request has one row; direct calls have four."""
    request = ServedRequest((8,), seconds=0.4, threads=1, max_batch=8, max_delay=0.001)
    (report,) = measure_served([str(linear.path)], request)
    assert isinstance(report, ServedReport), report
    assert report.wrong == 0
    assert report.request_bytes < 4 * 64 * 4
    assert (report.mode.streams, report.mode.rows) == (1, 4)
    for result in report.results:
        assert result.requests == 4
        assert result.per_call[0] == pytest.approx(np.mean(result.direct[0]) / 4)
        assert result.bound == pytest.approx(0.001 + 2.2 * 2 * np.median(result.direct))


def test_calls_are_tried_on_streams(linear, tmp_path):
    plans = {4: linear.header.inputs}
    mode, instances = fastest_calls(linear.path, plans, 2, tmp_path)
    assert mode.rows == 4
    assert instances >= mode.streams
    assert mode.streams * mode.threads_each == mode.threads == 2


@pytest.fixture
def fake_calls(monkeypatch):
    """Replace processes by ones whose time per row is a function of their streams and rows."""

    def replace_by(seconds):
        class Process(contextlib.nullcontext):
            def __init__(self, contender, threads, archive):
                super().__init__(self)
                self.mode = (contender.streams, int(archive.stem.rpartition("-")[2]))

            def run(self, untimed, count):
                return (self.mode[1] * seconds(*self.mode),)

        monkeypatch.setattr(served.fastest_calls, "ContenderProcess", Process)

    return replace_by


def test_the_fastest_modes_are_tried_again_in_turns(linear, tmp_path, fake_calls):
    """The mode that was fastest at first loses in the end; distant ones are not tried again."""
    times = {
        **{1: [1.0, *5 * [1.01]], 2: [1.1, 0.9, 3, 1, 1, 1], 3: 6 * [1.2], 4: 6 * [1.3]},
        8: [1.4],
    }
    turns = []
    fake_calls(lambda streams, rows: turns.append(rows) or times[rows].pop(0))
    (one,) = linear.header.inputs
    plans = {rows: (one.with_rows(rows),) for rows in times}
    mode, instances = fastest_calls(linear.path, plans, 1, tmp_path)
    assert (mode.rows, mode.streams, instances) == (2, 1, 1)
    assert turns == [1, 2, 3, 4, 8, *5 * [1, 2, 3, 4]]


def test_the_fastest_mode_of_each_number_of_streams_is_tried_again(
    linear, tmp_path, monkeypatch, fake_calls
):
    """Otherwise one try would decide the number of instances; distant modes are not tried."""
    first = {(1, 1): 1.0, (1, 2): 1.1, (2, 1): 1.3, (2, 2): 1.2, (4, 1): 1.4, (4, 2): 1.3}
    again = []

    def seconds(*mode):
        if mode in first:
            return first.pop(mode)
        again.append(mode)
        return 1.0 / mode[0]

    fake_calls(seconds)
    monkeypatch.setattr(served.fastest_calls, "FINALISTS", 1)
    (one,) = linear.header.inputs
    plans = {rows: (one.with_rows(rows),) for rows in (1, 2)}
    mode, instances = fastest_calls(linear.path, plans, 4, tmp_path)
    assert (mode.streams, mode.rows, instances) == (2, 2, 2)
    assert set(again) == {(1, 1), (2, 2)}


@pytest.mark.parametrize(("two", "instances"), [(1.04, 2), (1.06, 1)])
def test_a_server_has_the_instances_of_a_mode_that_is_about_as_fast(
    linear, tmp_path, fake_calls, two, instances
):
    fake_calls(lambda streams, rows: two if streams == 2 else 1.0)
    mode, found = fastest_calls(linear.path, {4: linear.header.inputs}, 2, tmp_path)
    assert (mode.streams, found) == (1, instances)


def test_models_that_cannot_be_served_are_failures(tmp_path, linear):
    (tmp_path / "bad.so").write_bytes(b"no artifact")
    request = ServedRequest(clients=(1,), seconds=0.2, threads=1)
    found = list(measure_served([str(tmp_path / "bad.so"), str(linear.path)], request))
    assert isinstance(found[0], ModelFailure)
    assert isinstance(found[1], ServedReport)


def test_damaged_weights_are_an_error(linear, tmp_path, capsys):
    data = bytearray(linear.path.read_bytes())
    data[data.index(linear.weights[0].tobytes())] ^= 1
    (tmp_path / "bad.so").write_bytes(data)
    assert main(["bench", "served", str(tmp_path / "bad.so"), "--duration", "1s"]) == 8
    assert "bad.so: the weights are damaged" in capsys.readouterr().err


def test_the_command(linear, tmp_path, capsys):
    page = tmp_path / "served.md"
    options = ["--clients", "2,1", "--duration", "0.5s", "--threads", "1", "-q"]
    assert main(["bench", "served", str(linear.path), *options, "--json", "-o", str(page)]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert [one["clients"] for one in result["results"]] == [1, 2]
    text = page.read_text()
    assert "| linear | 1 |" in text
    assert "Open Inference Protocol" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["served", "resnet18"], "needs an OUT.so"),
        (["a.so", "--clients", "2"], "no option --clients"),
        (["served", "a.so", "--clients", "0"], "not a number of clients"),
        (["served", "a.so", "--vs", "onnxruntime"], "no option --vs"),
    ],
)
def test_incompatible_options_are_refused(options, words, capsys):
    assert main(["bench", *options]) == 2
    assert words in capsys.readouterr().err


def test_figures():
    result = ServedResult(
        clients=1,
        latencies=((0.011, 0.013),) * 3,
        direct=((0.010, 0.010),) * 3,
        per_answer=(0.0125,) * 3,
        wrong=0,
    )
    assert result.overhead == pytest.approx(0.002)
    together = replace(result, requests=4)  # direct calls compute four times as many rows
    assert together.overhead is None
    assert result.share.value == pytest.approx(0.8)
    report = ServedReport("net", CallMode(2), 1, 1000, (result,))
    speed, latency = present([report]).parts
    assert [line.values for line in speed.lines] == [(80.0,), (100.0,)]
    figures = report.to_json()["results"][0]
    drawn = [line.values[0] / 1e6 for line in latency.lines]
    assert drawn == pytest.approx([figures[key] for key in ("p50", "p99", "direct_p50")])
    table = served_table([report])
    assert table.rows[0][2:5] == ("80.0", "100.0", "0.80 (0.80 to 0.80)")
    assert "best mode" not in " ".join((*table.header, *table.notes))


def test_figures_of_batches():
    """Requests of 16 rows are run as calls of 8 rows on two streams; a call ends every 10 ms."""
    latencies, direct = ((0.081, 0.082),) * 3, ((0.010,),) * 3
    result = ServedResult(
        clients=32,
        latencies=latencies,
        direct=direct,
        per_answer=(0.0015,) * 3,
        wrong=0,
        requests=8,
        client_cpu=0.0003,
        delay=0.002,
        calls=4,
    )
    assert result.bound == pytest.approx(0.002 + 2.2 * 0.040)
    report = ServedReport("net", CallMode(2, 2, 8), 2, 1000, (result,))
    assert report.to_json()["results"][0]["p99_bound"] == result.bound
    table = served_table([report])
    shown = dict(zip(table.header, table.rows[0], strict=True))
    assert shown["it / best mode (95 %)"].startswith("0.83")
    assert (shown["delay + 2.2 batches ms"], shown["p99 / that"]) == ("90.00", "0.91")
    assert shown["clients' CPU ms"] == "0.30"
    assert "2 streams of 1 thread, 8 rows a call" in table.notes[0]


@pytest.fixture
def canned():
    """A server that gives prepared answers, one after another."""
    answers = []

    def work(listener):
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                if not connection.recv(1 << 16):
                    return
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=work, args=(listener,), daemon=True).start()
        yield listener.getsockname(), answers


def http(content, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def test_different_answers_are_counted_by_kind(canned, tmp_path):
    address, answers = canned
    answers += [http(b"one"), http(b"one"), http(b"two"), http(b"busy", "429 Too Many")]
    (tmp_path / "request").write_bytes(b"any")
    with (tmp_path / "request").open("rb") as request:
        client = served_load.Client(address=address, request=request.fileno())
        client.work(threading.Barrier(1), 3600)
    assert isinstance(client.error, ConnectionResetError)
    assert client.kinds == [served_load.Kind(b"one", 2), served_load.Kind(b"two")]
    assert (client.others, client.failed) == (0, [429])
    assert len(client.requests) == 4


def test_a_lost_connection_is_reported(canned, tmp_path):
    address, answers = canned
    answers.append(http(b"one"))
    (tmp_path / "request").write_bytes(b"any")
    order = {"address": address, "request": str(tmp_path / "request"), "clients": 1}
    with pytest.raises(ConnectionError):  # the kernel may notice before we do
        served_load.answer({**order, "duration": 3600})


def test_requests_and_answers():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    head, _, body = binary_request({"x": x}).partition(b"\r\n\r\n")
    length = int(head.split(b"Inference-Header-Content-Length: ")[1])
    from neocpu.serving.request import parse_request, values_at_most

    signature = Signature((TensorSpec("x", "float32", (2, 3)),), (TensorSpec("y", "bool", ()),))
    parsed = parse_request(memoryview(body), length, [signature], values_at_most([signature]))
    np.testing.assert_array_equal(parsed.inputs["x"], x)
    assert parsed.outputs[0].binary
    assert same_outputs(b"{}" + x.tobytes(), [x])
    assert not same_outputs(b"{}" + x.tobytes(), [x + 1])
    other = 1.0001 * x
    both = [x, 2 * x]
    answer = b"{}" + other.tobytes() + (2 * other).tobytes()
    assert not same_outputs(answer, both)
    assert same_outputs(answer, both, 1e-3)
    assert not same_outputs(answer, both[::-1], 1e-3)
    assert not same_outputs(b"{}", both, 1e-3)


def answered_in_batches(clients, rows, took, stop, *, lanes=1, begin=0.0):
    """The requests of clients until ``stop``; each worker answers ``rows`` at a time."""
    asked = [begin] * clients
    found = [[] for _ in range(clients)]
    waiting = [*range(clients)]
    free = [begin + took * lane / lanes for lane in range(lanes)]
    while waiting:
        lane = free.index(min(free))
        batch, waiting = waiting[:rows], waiting[rows:]
        free[lane] = done = max(free[lane], max(asked[one] for one in batch)) + took
        for one in batch:
            found[one].append(Request(asked[one], done))
            asked[one] = done
        waiting += [one for one in batch if done < stop]
    return found


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_neither_the_first_wave_nor_the_last_counts(lanes, rows):
    clients = answered_in_batches(32, rows, 0.1, 9.0, lanes=lanes, begin=0.03)
    found = counted(clients, 9.0)
    assert found.per_answer == pytest.approx(0.1 / rows / lanes, rel=0.02)
    everything = [each for one in clients for each in one]
    first = max(one[0].answered for one in clients)
    assert sorted(found.seconds) == sorted(s.seconds for s in everything if s.sent >= first)


def test_one_client():
    requests = [Request(0.1 * index, 0.1 * index + 0.1) for index in range(7)]
    found = counted([requests], 0.65)
    assert found.per_answer == pytest.approx(0.1)
    assert len(found.seconds) == 6


def test_all_requests_count_if_a_client_had_only_one_answer():
    clients = [[Request(0.0, 0.25), Request(0.25, 0.5)], [Request(0.0, 0.5)]]
    found = counted(clients, 0.4)
    assert found.per_answer == pytest.approx(0.5 / 3)
    assert sorted(found.seconds) == [0.25, 0.25, 0.5]


def test_all_requests_count_if_the_next_was_sent_as_time_ended():
    found = counted([[Request(0.0, 0.5), Request(0.51, 0.7)]], 0.505)
    assert found == ((0.5, pytest.approx(0.19)), pytest.approx(0.35))


def test_no_requests_give_no_counts():
    assert counted([[], []], 1.0) == ((), math.inf)
    assert counted([[], [Request(0.0, 0.5)]], 1.0).per_answer == pytest.approx(0.5)
