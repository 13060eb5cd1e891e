"""Clients that do not read, and the bytes they can make a server keep."""

import json
import socket
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("uvicorn")
from server_process import ServerProcess
from v2_requests import Connection, binary_tensor, body, head
from waiting import wait_until

from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from tests.neocpu.conftest import _build, _header

ANSWER = 16 << 20
INFER = "/v2/models/wide/infer"


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model that answers a number with sixteen megabytes of it."""
    from tvm import relax

    shape = (ANSWER // 4,)
    built = _build(
        [("x", (1,))], lambda bb, x: bb.emit(relax.op.broadcast_to(x, relax.ShapeExpr(shape)))
    )
    header = _header(
        "wide", [TensorSpec("x", "float32", (1,))], [TensorSpec("y", "float32", shape)]
    )
    path = tmp_path_factory.mktemp("wide") / "wide.so"
    write_artifact(built, [], header, path)
    return path


def request() -> bytes:
    x = np.ones(1, "float32")
    text = body(binary_tensor("x", x), parameters={"binary_data_output": True})
    headers = {"Content-Length": len(text) + x.nbytes, "Inference-Header-Content-Length": len(text)}
    return head(INFER, headers) + text + x.tobytes()


def resident(server: ServerProcess) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


def bytes_in_flight(server: ServerProcess) -> float:
    with Connection(server.address) as connection:
        text = connection.get("/metrics").content.decode()
    lines = [line for line in text.splitlines() if line.startswith("neocpu_bytes_in_flight{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_clients_that_do_not_read_hold_no_more_than_the_bound(wide):
    bound = 80 << 20
    with ServerProcess(wide, "--max-bytes-in-flight", f"{bound >> 20}MiB") as server:
        with Connection(server.address) as good:
            assert good.exchange(request()).status == 200
        before = resident(server)
        idle = []
        for _ in range(40):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(server.address)
            one.sendall(request())
            idle.append(one)
        with Connection(server.address) as good:
            statuses = set()
            while 429 not in statuses:
                answer = good.exchange(request())
                statuses.add(answer.status)
            assert int(answer.headers["retry-after"]) > 0
            assert "--max-bytes-in-flight" in answer.document["error"]
            assert statuses <= {200, 429}
        assert 0 < bytes_in_flight(server) <= bound
        assert resident(server) - before < bound + 4 * ANSWER
        for one in idle:
            one.close()
        wait_until(lambda: bytes_in_flight(server) == 0)
        with Connection(server.address) as good:
            assert good.exchange(request()).status == 200


def test_answers_that_are_read_are_not_kept(wide):
    with ServerProcess(wide, "--max-bytes-in-flight", "20MiB") as server:
        with Connection(server.address) as good:
            for _ in range(10):
                answer = good.exchange(request())
                assert answer.status == 200
                assert answer.content.endswith(np.ones(4, "float32").tobytes())
        wait_until(lambda: bytes_in_flight(server) == 0)


def test_bodies_that_do_not_arrive_are_counted_too(wide, linear):
    with ServerProcess(linear.path, "--max-bytes-in-flight", "32KiB", "--queue", 9) as server:
        slow = socket.create_connection(server.address)
        size = 31 << 10
        slow.sendall(head("/v2/models/linear/infer", {"Content-Length": size}) + b"{")
        wait_until(lambda: bytes_in_flight(server) > size)
        with Connection(server.address) as good:
            refused = good.post("/v2/models/linear/infer", json.dumps({}).encode() * 2000)
            assert refused.status == 429
        slow.close()
        wait_until(lambda: bytes_in_flight(server) == 0)
        with Connection(server.address) as good:
            assert good.post("/v2/models/linear/infer", b"{}").status == 400
