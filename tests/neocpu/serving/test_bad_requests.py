"""A real server answers any wrong request with a clean 4xx."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_process import ServerProcess
from v2_requests import Connection, NoAnswerError, binary_tensor, body, head, tensor

INFER = "/v2/models/linear/infer"
X = np.ones((4, 64), "float32")
JSON_LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def server(linear):
    limits = ("--max-request-bytes", "16KiB")
    with ServerProcess(linear.path, *limits) as running:
        yield running
        # Whatever the tests of this module sent, it serves on and has logged no error.
        with Connection(running.address) as connection:
            assert connection.post(INFER, body(tensor("x", X))).status == 200
        assert running.log() == ""


@pytest.fixture
def connection(server):
    with Connection(server.address) as made:
        yield made


def refused(answer, status, words):
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.document) == ["error"]
    assert words in answer.document["error"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (body(tensor("z", X)), "no input 'z'"),
        (body(tensor("x", X), outputs=[{"name": "logits"}]), "no output 'logits'"),
    ],
)
def test_bodies(connection, content, words):
    refused(connection.post(INFER, content), 400, words)
    # The connection goes on.
    assert connection.post(INFER, body(tensor("x", X))).status == 200


def test_a_binary_size_that_lies(connection):
    text = body(binary_tensor("x", X, parameters={"binary_data_size": 1024}))
    refused(connection.post(INFER, text + bytes(1020), len(text)), 400, "only 1020 bytes are left")


@pytest.mark.parametrize("value", ["-1", "1e3", "0x10", "many", "9" * 40, ""])
def test_json_lengths_that_are_none(connection, value):
    headers = {"Content-Length": 2, JSON_LENGTH: value}
    refused(connection.exchange(head(INFER, headers) + b"{}"), 400, JSON_LENGTH)


def test_too_large_is_refused_before_it_is_sent(connection):
    headers = {"Content-Length": 1 << 40}
    refused(connection.exchange(head(INFER, headers)), 413, "more than 16384 bytes")


@pytest.mark.parametrize("part", [b"a" * 4096, b"X-One: 1\r\n" * 400])
def test_a_head_without_end(connection, part):
    connection.socket.sendall(head(INFER, {"X-Long": ""})[:-4])
    with suppress(ConnectionError):
        for _ in range(1000):
            connection.socket.sendall(part)
        pytest.fail("the server goes on reading it")


def test_too_large_in_chunks(connection):
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    start = head(INFER, {"Transfer-Encoding": "chunked"})
    refused(connection.exchange(start + chunk * 5 + b"0\r\n\r\n"), 413, "more than")


def test_chunks_are_joined(connection):
    content = body(tensor("x", X))
    parts = [content[i : i + 100] for i in range(0, len(content), 100)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    start = head(INFER, {"Transfer-Encoding": "chunked"})
    assert connection.exchange(start + chunks + b"0\r\n\r\n").status == 200


def test_compressed_bodies(connection):
    headers = {"Content-Length": 2, "Content-Encoding": "gzip"}
    refused(connection.exchange(head(INFER, headers) + b"{}"), 415, "compressed")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/../infer", 404),
        ("/v2/models/%2e%2e/infer", 404),
        ("/v2/models/..%2f..%2fetc%2fpasswd/infer", 404),
        ("/v2/models/linear%00/infer", 404),
        ("/v2/models/Linear/infer", 404),
        ("/v2/models/linear.so/infer", 404),
        ("/v2/models/%ff%fe/infer", 404),
        (f"/v2/models/{'x' * 20_000}/infer", 404),
        ("/v2/models//infer", 404),
        ("/v2/models/linear/versions/2/infer", 404),
        ("/v2/models/linear/versions/%2e%2e/infer", 404),
        ("/v2/models/linear/explain", 404),
        ("/etc/passwd", 404),
        ("/docs", 404),
        (f"{INFER}/", 404),
        ("/v2/models/linear%2f", 404),
        ("/v2/health/live", 405),
    ],
)
def test_paths(connection, path, status):
    answer = connection.post(path, body(tensor("x", X)))
    assert answer.status == status
    assert answer.document["error"].isprintable()
    assert len(answer.content) < 400


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        head(INFER, {"Content-Length": "-5"}),
        head(INFER, {"Content-Length": 5, "Transfer-Encoding": "chunked"}),
        head(INFER, {"Content-Length": 5, "content-length": 7}),
        head(INFER, {"Transfer-Encoding": "chunked"}) + b"zz\r\n",
    ],
)
def test_what_is_no_http(connection, data):
    refused(connection.exchange(data), 400, "Invalid HTTP")


@pytest.mark.parametrize("content", [b"[]", b'{"ready": 1}', b"{", b" " * 5000])
def test_repository_index(connection, content):
    answer = connection.post("/v2/repository/index", content)
    assert answer.status in (400, 413)
    assert len(connection.post("/v2/repository/index", b'{"ready": true}').document) == 1


FIELDS = st.dictionaries(
    st.sampled_from(["Content-Length", JSON_LENGTH, "Content-Type", "Content-Encoding", "Expect"]),
    st.sampled_from(["", "0", "5", "-7", "identity", "gzip", "100-continue", "1e9"])
    | st.integers(0, 400).map(str),
    max_size=4,
)
PATHS = st.sampled_from([INFER, "/v2/models/linear", "/v2/repository/index"]) | st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20
).map("/".__add__)
CONTENTS = st.binary(max_size=60) | st.builds(
    lambda field, value: json.dumps({"inputs": [{"name": "x", field: value}]}).encode(),
    st.sampled_from(["shape", "datatype", "data", "parameters"]),
    st.sampled_from([None, [], {}, "FP32", [4, 64], [4, -64], 1e400, {"binary_data_size": 2**64}]),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(FIELDS, PATHS, CONTENTS, st.booleans())
def test_any_request_gets_a_clean_answer(server, fields, path, content, honest):
    if honest:
        fields = {**fields, "Content-Length": len(content)}
    with Connection(server.address) as connection:
        try:
            connection.socket.sendall(head(path, fields) + content)
            connection.socket.shutdown(1)
            answer = connection.receive()
        except NoAnswerError:
            return  # it asked for more bytes than it sent, and hung up
    assert answer.status < 500, answer
