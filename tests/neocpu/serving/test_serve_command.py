"""``neocpu serve`` as users run it: a process, an independent client, signals."""

import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_process import ServerProcess
from v2_requests import Connection, NoAnswerError, binary_tensor, body, head
from waiting import wait_until

import neocpu
from neocpu.cli.main import main

triton = pytest.importorskip("tritonclient.http")
INFER = "/v2/models/linear/infer"
IN_FLIGHT = 'neocpu_requests_in_flight{model="linear",version="1"}'


@pytest.fixture(scope="module")
def server(linear, two_way):
    with ServerProcess(
        linear.path, two_way.path, "--name", "linear", "--name", "pair:7"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def direct(linear):
    with neocpu.load(linear.path, 1) as module:
        yield module


def ask(client, model, arrays, *, binary, **options):
    inputs = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, array.shape, "FP32")
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return client.infer(model, inputs, **options)


def test_ready_says_where(server):
    assert server.ready["url"].startswith("http://127.0.0.1:")
    assert [(m["name"], m["version"]) for m in server.ready["models"]] == [
        ("linear", "1"),
        ("pair", "7"),
    ]


def test_health_metadata_and_index(server):
    with triton.InferenceServerClient(server.url) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("linear")
        assert client.is_model_ready("pair", "7")
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        assert client.get_model_metadata("pair", "7") == {
            "name": "pair",
            "versions": ["7"],
            "platform": "neocpu",
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [2, 3, 8, 6]}
                for name in ("image", "mask")
            ],
            "outputs": [
                {"name": name, "datatype": "FP32", "shape": [2, 3, 8, 6]}
                for name in ("sum", "same")
            ],
        }
        assert client.get_model_repository_index() == [
            {"name": "linear", "version": "1", "state": "READY"},
            {"name": "pair", "version": "7", "state": "READY"},
        ]
        with pytest.raises(triton.InferenceServerException, match=r"no model 'pear'.*'pair'"):
            client.get_model_metadata("pear")


@pytest.mark.parametrize("binary", [True, False])
def test_outputs_are_those_of_direct_calls(server, linear, direct, binary):
    with triton.InferenceServerClient(server.url) as client:
        for seed in range(5):
            (x,) = linear.inputs(seed)
            wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
            answer = ask(client, "linear", {"x": x}, binary=binary, outputs=wanted, request_id="é")
            assert answer.as_numpy("y").tobytes() == direct(x).tobytes()
            assert answer.get_response()["id"] == "é"


def test_many_tensors_in_any_order(server, two_way):
    image, mask = two_way.inputs(3)
    with triton.InferenceServerClient(server.url) as client:
        answer = ask(client, "pair", {"mask": mask, "image": image}, binary=True)
    with neocpu.load(two_way.path, 1) as module:
        expected = module.run({"image": image, "mask": mask})
    for name, array in expected.items():
        assert answer.as_numpy(name).tobytes() == array.tobytes()


@pytest.mark.parametrize("clients", [1, 8, 32])
def test_concurrent_clients_get_their_own_answers(server, linear, direct, clients):
    def work(number):
        (x,) = linear.inputs(number)
        with triton.InferenceServerClient(server.url) as client:
            answers = [ask(client, "linear", {"x": x}, binary=True) for _ in range(8)]
        return x, [answer.as_numpy("y") for answer in answers]

    with ThreadPoolExecutor(clients) as pool:
        for x, answers in pool.map(work, range(clients)):
            expected = direct(x).tobytes()
            assert all(answer.tobytes() == expected for answer in answers)


def test_metrics(server, linear):
    (x,) = linear.inputs(0)
    with triton.InferenceServerClient(server.url) as client, Connection(server.address) as raw:
        before = _count(raw, 'neocpu_requests_total{code="200",model="linear",version="1"}')
        for _ in range(3):
            ask(client, "linear", {"x": x}, binary=True)
        with pytest.raises(triton.InferenceServerException):
            ask(client, "linear", {"y": x}, binary=True)
        after = _count(raw, 'neocpu_requests_total{code="200",model="linear",version="1"}')
        assert after == before + 3
        assert _count(raw, 'neocpu_requests_total{code="400",model="linear",version="1"}') >= 1
        assert _count(raw, 'neocpu_queue_seconds_count{model="linear",version="1"}') == after
        assert _count(raw, 'neocpu_inference_seconds_sum{model="linear",version="1"}') > 0
        assert _count(raw, IN_FLIGHT) == 0
        assert _count(raw, 'neocpu_model_ready{model="linear",version="1"}') == 1


def _count(connection, name):
    lines = connection.get("/metrics").content.decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def test_sigterm_answers_what_was_accepted(linear, direct):
    (x,) = linear.inputs(1)
    text = body(binary_tensor("x", x), parameters={"binary_data_output": True})
    content = text + x.tobytes()
    headers = {"Content-Length": len(content), "Inference-Header-Content-Length": len(text)}
    begin = head(INFER, headers) + content[:-40]
    with ServerProcess(linear.path) as server:
        with Connection(server.address) as accepted, Connection(server.address) as idle:
            accepted.socket.sendall(begin)
            wait_until(lambda: _count(idle, IN_FLIGHT))
            server.terminate()
            wait_until(lambda: idle.get("/v2/health/ready").status == 503)
            # It still listens, to say so.
            with Connection(server.address) as late:
                refused = late.post(INFER, content, len(text))
            assert refused.status == 503
            assert refused.headers["connection"] == "close"
            assert "shutting down" in refused.document["error"]
            answer = accepted.exchange(content[-40:])
        assert answer.status == 200
        end = int(answer.headers["inference-header-content-length"])
        assert answer.content[end:] == direct(x).tobytes()
        assert server.wait() == 0
        assert server.log() == ""


def test_sigterm_under_load_loses_nothing(linear, direct):
    """Every request gets its answer or a refusal, until the server hangs up between two of them."""
    (x,) = linear.inputs(2)
    expected = direct(x).tobytes()
    text = body(binary_tensor("x", x), parameters={"binary_data_output": True})
    answered, refused, ended = [], [], []
    begun = threading.Barrier(9)

    def work(server):
        connection = Connection(server.address)
        begun.wait()
        while True:
            try:
                answer = connection.post(INFER, text + x.tobytes(), len(text))
            except NoAnswerError:
                # An idle connection, closed when the last answer was sent.
                return ended.append("closed")
            if answer.status == 503:
                refused.append(answer)
                return ended.append("refused")
            end = int(answer.headers["inference-header-content-length"])
            answered.append(answer.status == 200 and answer.content[end:] == expected)
            if answer.headers.get("connection") == "close":
                connection.close()
                try:
                    connection = Connection(server.address)
                except ConnectionError:
                    return ended.append("gone")

    with ServerProcess(linear.path) as server:
        threads = [threading.Thread(target=work, args=(server,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        begun.wait()
        wait_until(lambda: len(answered) >= 200)
        server.terminate()
        for thread in threads:
            thread.join(timeout=60)
        assert server.wait() == 0
        assert server.log() == ""
    assert all(answered)
    assert all("shutting down" in answer.document["error"] for answer in refused)
    assert len(ended) == 8  # whatever else happens to a client is an exception


@pytest.mark.parametrize("drain", ["0.2s", "1h"])
def test_what_never_ends_is_cut_off_in_time_or_by_a_second_signal(linear, drain):
    begin = head(INFER, {"Content-Length": 100}) + b"{"
    with (
        ServerProcess(linear.path, "--drain-seconds", drain) as server,
        Connection(server.address) as raw,
        Connection(server.address) as stuck,
    ):
        stuck.socket.sendall(begin)
        wait_until(lambda: _count(raw, IN_FLIGHT))
        server.terminate()
        if drain == "1h":
            wait_until(lambda: raw.get("/v2/health/ready").status == 503)
            server.terminate()
        answer = stuck.receive()
        assert answer.status == 503
        assert "shut down before the answer" in answer.document["error"]
        assert server.wait() == 0
        assert "1 request cut off" in server.log()
        assert "Traceback" not in server.log()


def test_two_signals_at_once_end_it(linear):
    with ServerProcess(linear.path) as server, Connection(server.address) as stuck:
        stuck.socket.sendall(head(INFER, {"Content-Length": 100}) + b"{")
        with Connection(server.address) as raw:
            wait_until(lambda: _count(raw, IN_FLIGHT))
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            server.process.send_signal(number)
        assert server.wait() in (0, 130)


def test_late_requests_are_refused_in_words_however_large(linear):
    content = b" " * (8 << 20)  # more than the system keeps for a server that does not read
    with ServerProcess(linear.path) as server, Connection(server.address) as stuck:
        stuck.socket.sendall(head(INFER, {"Content-Length": 100}) + b"{")
        with Connection(server.address) as raw:
            wait_until(lambda: _count(raw, IN_FLIGHT))
            server.terminate()
            wait_until(lambda: raw.get("/v2/health/ready").status == 503)
        with Connection(server.address) as late:
            assert late.post(INFER, content).status == 503


def test_ctrl_c_drains_too(linear):
    with ServerProcess(linear.path) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 130
        assert "every accepted request was answered" in server.log()


def test_mistakes_are_one_line(linear, tmp_path, capsys):
    (tmp_path / "net.so").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, code, words in [
            ([], 2, "no model to serve"),
            ([tmp_path / "none.so"], 8, "cannot open"),
            ([tmp_path / "net.so"], 8, "is empty"),
            ([linear.path, "--name", "../x"], 2, "no name for a model"),
            ([linear.path, "--port", port], 2, f"cannot listen on 127.0.0.1:{port}"),
            ([linear.path, "--host", "256.0.0.1"], 2, "cannot listen on 256.0.0.1"),
            ([linear.path, "--threads", "100000"], 2, "threads must be"),
            *(
                (
                    [linear.path, "--threads", many],
                    2,
                    f"'{many}' is neither a positive whole number nor",
                )
                for many in ("0", "-1", "fast", "1.5")
            ),
            (
                [linear.path, "--threads", "performance", "--instances", "2"],
                *(2, "--threads performance is for one instance"),
            ),
            ([linear.path, "--max-delay", "2ms"], 2, "--max-batch waits: give both"),
            (
                [linear.path, "--max-batch", "4", "--max-delay", "2h"],
                *(2, "--max-delay 120 min 0 s: so long no client waits for others; give at most"),
            ),
        ]:
            assert main(["serve", "--port", "0", *map(str, arguments)]) == code
            printed = capsys.readouterr()
            assert printed.out == ""
            assert printed.err.count("\n") == 1
            assert words in printed.err


def test_without_fastapi_it_says_what_to_install(linear):
    program = (
        "import sys; sys.modules['fastapi'] = None; from neocpu.cli.main import run; "
        f"sys.argv = ['neocpu', 'serve', {str(linear.path)!r}]; run()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "neocpu: error: fastapi is not installed: "
        "pip install 'neocpu[serve]' or 'neocpu-runtime[serve]'\n"
    )
