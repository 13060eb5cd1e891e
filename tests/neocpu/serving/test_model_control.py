"""Models that are replaced and unloaded while a server runs: by clients, and by SIGHUP."""

import os
import pty
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from picture_models import means_model
from server_process import ServerProcess
from v2_requests import Connection, body, head, tensor
from waiting import wait_until

import neocpu

triton = pytest.importorskip("tritonclient.http")
INFER = "/v2/models/net/infer"
INDEX = "/v2/repository/index"
ONES = np.ones((1, 3, 16, 16), np.float32)
REQUEST = body(tensor("x", ONES))


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Two artifacts, which compute 2 and 5 from ones."""
    folder = tmp_path_factory.mktemp("versions")
    for scale in (2, 5):
        neocpu.compile(means_model(scale=scale)).export(folder / f"{scale}.so")
    return folder


@pytest.fixture
def place(versions, tmp_path):
    """Puts an artifact where one is served, as the documentation says."""
    path = tmp_path / "net.so"

    def put(scale):
        shutil.copy(versions / f"{scale}.so", tmp_path / "new.so")
        os.replace(tmp_path / "new.so", path)
        return path

    put(2)
    return put


def post(server, path, content=b""):
    with Connection(server.address) as connection:
        return connection.post(path, content)


def load(server, name="net", content=b""):
    return post(server, f"/v2/repository/models/{name}/load", content)


def unload(server, name="net", content=b""):
    return post(server, f"/v2/repository/models/{name}/unload", content)


def answered(answer):
    assert answer.status == 200, answer.content
    (value,) = set(answer.document["outputs"][0]["data"])
    return value


def maps(server, path):
    """Return the number of artifacts from ``path`` in the server's memory, former ones included."""
    lines = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    found = {line.split()[4] for line in lines if str(path) in line}  # inodes
    return len(found)


def status(server, field):
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def test_twenty_loads_lose_no_request_and_no_memory(place):
    path = place(2)
    stop, counts, wrong = threading.Event(), [0] * 4, []

    def ask(number):
        with Connection(server.address) as connection:
            while not stop.is_set():
                value = answered(connection.post(INFER, REQUEST))
                if value not in (2, 5):
                    wrong.append(value)
                counts[number] += 1

    with ServerProcess(path, "--model-control", "--instances", "2") as server:
        clients = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for client in clients:
            client.start()
        sizes = []
        for number in range(20):
            scale = (5, 2)[number % 2]
            place(scale)
            before = list(counts)
            done = load(server)
            assert (done.status, done.content) == (200, b"")
            assert answered(post(server, INFER, REQUEST)) == scale
            # Every client is served by each.
            wait_until(
                lambda b=before: all(now > then for now, then in zip(counts, b, strict=True))
            )
            sizes.append(status(server, "VmRSS"))
        stop.set()
        for client in clients:
            client.join(timeout=60)
        assert not any(client.is_alive() for client in clients)
        assert wrong == []
        wait_until(lambda: maps(server, path) == 1)
        assert max(sizes[10:]) < max(sizes[:10]) + 2048  # kB
        lines = post_metrics(server)
        assert 'neocpu_model_ready{model="net",version="1"} 1.0' in lines
        assert {line.split('code="')[1][:3] for line in lines if "requests_total{" in line} == {
            "200"
        }
        server.terminate()
        assert server.wait() == 0
        assert server.log() == ""


def post_metrics(server):
    with Connection(server.address) as connection:
        return connection.get("/metrics").content.decode().splitlines()


def test_a_request_that_was_accepted_is_answered_by_what_was_loaded_then(place):
    path = place(2)
    with ServerProcess(path, "--model-control") as server:
        with Connection(server.address) as early:
            early.socket.sendall(head(INFER, {"Content-Length": len(REQUEST)}) + REQUEST[:-9])
            in_flight = 'neocpu_requests_in_flight{model="net",version="1"} 1.0'
            wait_until(lambda: in_flight in post_metrics(server))
            place(5)
            assert load(server).status == 200
            assert answered(post(server, INFER, REQUEST)) == 5
            assert maps(server, path) == 2  # what was replaced is still needed
            assert answered(early.exchange(REQUEST[-9:])) == 2
        wait_until(lambda: maps(server, path) == 1)


def test_what_cannot_be_loaded_leaves_what_is_served(place):
    with ServerProcess(place(2), "--model-control") as server:
        path = place(5)
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        for content in (bytes(damaged), b"no artifact", None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            answer = load(server)
            assert answer.status == 400
            assert str(path) in answer.document["error"]
            assert "\n" not in answer.document["error"]
            assert answered(post(server, INFER, REQUEST)) == 2
        assert post(server, INDEX).document == [{"name": "net", "version": "1", "state": "READY"}]
        place(5)
        assert load(server).status == 200
        assert answered(post(server, INFER, REQUEST)) == 5


def test_unloaded_models_are_refused_and_free_their_memory(place, linear):
    path = place(2)
    with ServerProcess(path, linear.path, "--model-control") as server:
        with triton.InferenceServerClient(server.url) as client:
            assert "model_repository" in client.get_server_metadata()["extensions"]
            assert maps(server, path) == 1
            for _ in range(2):  # again, and nothing is wrong with that
                client.unload_model("net")
                assert maps(server, path) == 0
                assert client.get_model_repository_index() == [
                    {"name": "net", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
                    {"name": "linear", "version": "1", "state": "READY"},
                ]
                assert not client.is_model_ready("net")
                assert client.is_model_ready("linear")
                assert client.is_server_ready()  # what was asked for is so
                answer = post(server, INFER, REQUEST)
                assert (answer.status, answer.document["error"]) == (503, "model 'net' is unloaded")
            only = post(server, INDEX, b'{"ready": true}').document
            assert [each["name"] for each in only] == ["linear"]
            place(5)
            client.load_model("net")
            assert client.is_model_ready("net")
        assert answered(post(server, INFER, REQUEST)) == 5


def test_all_versions_of_a_name(versions):
    paths = versions / "2.so", versions / "5.so"
    with ServerProcess(*paths, "--name", "net:1", "--name", "net:2", "--model-control") as server:
        assert unload(server).status == 200
        for version in (1, 2):
            answer = post(server, f"/v2/models/net/versions/{version}/infer", REQUEST)
            assert answer.status == 503
        assert load(server).status == 200
        assert answered(post(server, "/v2/models/net/versions/1/infer", REQUEST)) == 2
        assert answered(post(server, INFER, REQUEST)) == 5


def test_a_version_that_cannot_be_loaded_is_missing_alone(place, versions, tmp_path):
    path, other = place(2), versions / "5.so"
    with ServerProcess(
        other, path, "--name", "net:1", "--name", "net:2", "--model-control"
    ) as server:
        assert unload(server).status == 200
        path.unlink()
        answer = load(server)
        assert (answer.status, "cannot open" in answer.document["error"]) == (400, True)
        assert answered(post(server, INFER, REQUEST)) == 5
        answer = post(server, "/v2/models/net/versions/2/infer", REQUEST)
        assert answer.status == 503
        assert answer.document["error"] == "model 'net' version 2 is unloaded"
        assert [each["state"] for each in post(server, INDEX).document] == ["READY", "UNAVAILABLE"]


def test_no_client_says_what_is_loaded(place, versions):
    other = str(versions / "5.so")
    with ServerProcess(place(2), "--model-control") as server:
        for content in (
            b'{"parameters": {"config": "{}"}}',
            b'{"parameters": {"path": "%s"}}' % other.encode(),
            b'{"parameters": {"file:1/model.so": "AAAA"}}',
        ):
            answer = load(server, content=content)
            assert (answer.status, "no parameters" in answer.document["error"]) == (400, True)
        for content in (b"[]", b"{", b'"net"'):
            for change in (load, unload):
                assert change(server, content=content).status == 400
        assert load(server, content=b'{"path": "%s"}' % other.encode()).status == 200
        assert answered(post(server, INFER, REQUEST)) == 2
        for name in ("other", "..%2fnet", other.replace("/", "%2f"), "net.so"):
            assert load(server, name).status == 404
            assert unload(server, name).status == 404


def test_without_the_option_clients_change_nothing(place):
    with ServerProcess(place(2)) as server, triton.InferenceServerClient(server.url) as client:
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        place(5)
        for change in (load, unload):
            answer = change(server)
            assert answer.status == 403
            assert "--model-control" in answer.document["error"]
        assert answered(post(server, INFER, REQUEST)) == 2
        assert client.get_model_repository_index()[0]["state"] == "READY"


def hang_up(server, says):
    """Send SIGHUP; return the server's message about it."""
    before = len(server.log())
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: says in server.log()[before:])
    return server.log()[before:]


def test_sighup_loads_what_changed(place, linear):
    path = place(2)
    with ServerProcess(path, linear.path) as server:
        assert "no model's file has changed" in hang_up(server, "\n")
        place(5)
        said = hang_up(server, "\n")
        assert said == f"neocpu: model 'net' version 1 was loaded anew from {path}\n"
        assert answered(post(server, INFER, REQUEST)) == 5
        path.unlink()
        path.write_bytes(b"no artifact")
        said = hang_up(server, "\n")
        assert said.startswith("neocpu: model 'net' version 1 is served as it was loaded before: ")
        assert str(path) in said
        assert said.count("\n") == 1
        assert answered(post(server, INFER, REQUEST)) == 5
        place(2)
        hang_up(server, "loaded anew")
        assert answered(post(server, INFER, REQUEST)) == 2
        server.terminate()
        assert server.wait() == 0


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed_ends_it(place, ignored):
    """It ends like any command, unless it runs under `nohup`."""
    path = place(2)
    pid, terminal = pty.fork()
    if not pid:
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        command = [sys.executable, "-m", "neocpu", "serve", str(path), "--port", "0"]
        with open(path.with_suffix(".log"), "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.execv(sys.executable, command)
    ended = None
    try:
        log = path.with_suffix(".log")
        wait_until(lambda: log.exists() and "serving net" in log.read_text())
        os.close(terminal)
        if ignored:
            wait_until(lambda: "no model's file has changed" in log.read_text())
            os.kill(pid, signal.SIGTERM)
        _, ended = os.waitpid(pid, 0)
    finally:
        if ended is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended) == (0 if ignored else 129)


def test_a_model_of_one_row_is_not_batched_and_it_says_so(place):
    path = place(2)
    with ServerProcess(path, "--max-batch", "8") as server:
        (line,) = server.log().splitlines()
        assert line.startswith(f"neocpu: --max-batch 8: requests for {path} are ")
        assert answered(post(server, INFER, REQUEST)) == 2
    with ServerProcess(path, "--max-batch", "1") as server:
        assert server.log() == ""


def test_loads_are_refused_while_it_shuts_down(place):
    with ServerProcess(place(2), "--model-control") as server, Connection(server.address) as stuck:
        stuck.socket.sendall(head(INFER, {"Content-Length": 100}) + b"{")
        with Connection(server.address) as raw:
            in_flight = b'neocpu_requests_in_flight{model="net",version="1"} 1.0'
            wait_until(lambda: in_flight in raw.get("/metrics").content)
            server.terminate()
            wait_until(lambda: raw.get("/v2/health/ready").status == 503)
        assert load(server).status == 503
        assert unload(server).status == 503
