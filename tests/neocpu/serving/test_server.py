"""The server without HTTP, on modules with calls that end when the test asks."""

import asyncio
import json
import threading
from contextlib import suppress

import pytest
from fake_modules import GOOD, FakeModule, ask, metrics, run_pending, start
from prometheus_client import CollectorRegistry

from neocpu.foundation.errors import ArtifactError
from neocpu.serving import loaded_models
from neocpu.serving import model as served
from neocpu.serving.app import create_app
from neocpu.serving.metrics import Metrics
from neocpu.serving.refusals import LoadError, OverloadedError, UnavailableError, UnknownModelError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferenceServer


async def test_a_request(modules):
    server = start(instances=1, threads=2)
    answer = ask(server)
    await run_pending()
    modules.all[0].finish()
    document = json.loads((await answer).body)
    assert document == {
        "model_name": "net",
        "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.0, 4.0]}],
    }
    assert modules.log[:3] == ["load net.so on 2", "verified", "warm"]
    found = metrics(server)
    assert found['neocpu_requests_total{code="200",model="net",version="1"}'] == "1.0"
    assert found['neocpu_inference_seconds_count{model="net",version="1"}'] == "1.0"
    assert found['neocpu_requests_in_flight{model="net",version="1"}'] == "0.0"


def test_not_ready_before_every_module_is_warm(modules, monkeypatch):
    seen = []
    server = InferenceServer([ModelEntry("a", "a.so"), ModelEntry("b", "b.so")])
    monkeypatch.setattr(FakeModule, "warmup", lambda *_: seen.append(server.ready))
    server.start()
    assert seen == [False, False]
    assert server.ready
    server.close()
    assert not server.ready
    assert all(module.closed for module in modules.all)


def test_what_cannot_be_loaded_closes_the_rest(modules, monkeypatch):
    def damaged(self):
        if len(modules.all) == 2:
            raise ArtifactError("b.so: the weights are damaged")

    monkeypatch.setattr(FakeModule, "wait_verified", damaged)
    server = InferenceServer([ModelEntry("a", "a.so"), ModelEntry("b", "b.so")])
    with pytest.raises(ArtifactError, match="damaged"):
        server.start()
    assert [module.closed for module in modules.all] == [True, True]


async def test_more_than_may_wait_are_refused_unread(modules):
    server = start(instances=1, threads=1, queue=2)
    waiting = [ask(server) for _ in range(3)]
    await run_pending()
    never = asyncio.Event()
    with pytest.raises(OverloadedError, match="2 requests wait for model 'net'") as caught:
        await ask(server, pause=never)
    assert caught.value.status == 429
    assert caught.value.retry_after >= 1
    for _ in waiting:
        modules.all[0].finish()
    await asyncio.gather(*waiting)
    last = ask(server)
    await run_pending()
    modules.all[0].finish()
    await last
    found = metrics(server)
    assert found['neocpu_requests_total{code="429",model="net",version="1"}'] == "1.0"
    assert found['neocpu_requests_total{code="200",model="net",version="1"}'] == "4.0"


async def test_instances_share_the_requests(modules):
    server = start("net", "other", instances=2, threads=1)
    answers = [ask(server), ask(server), ask(server, "other"), ask(server, "other")]
    await run_pending()
    # net's two modules, then other's two; each on a worker of its own.
    assert [len(module.calls) for module in modules.all] == [1, 1, 1, 1]
    for module in modules.all:
        module.finish()
    await asyncio.gather(*answers)


def test_instances_are_warmed_up_at_the_same_time(modules, monkeypatch):
    """One after another, with all shapes of a set, takes minutes on many cores."""
    all_at_it = threading.Barrier(3)
    monkeypatch.setattr(FakeModule, "warmup", lambda *_: all_at_it.wait(60))
    assert start(instances=3, threads=1).ready


async def test_a_client_that_goes_away_is_not_computed_for(modules):
    server = start(instances=1, threads=1, queue=0)
    app = create_app(server)
    leaves = asyncio.Event()
    events = [{"type": "http.request", "body": GOOD, "more_body": False}]

    async def receive():
        if not events:
            await leaves.wait()
        return events.pop() if events else {"type": "http.disconnect"}

    sent = []

    async def send(event):
        sent.append(event)

    path = "/v2/models/net/infer"
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    answer = asyncio.ensure_future(app(scope, receive, send))
    await run_pending()
    ((future, _),) = modules.all[0].calls
    assert not future.cancelled()
    leaves.set()
    await answer
    assert future.cancelled()
    assert server.in_flight == 0
    found = metrics(server)
    assert found['neocpu_requests_total{code="499",model="net",version="1"}'] == "1.0"


async def test_a_cancelled_request_gives_up_its_place(modules):
    server = start(instances=1, threads=1, queue=0)
    answer = ask(server)
    await run_pending()
    answer.cancel()
    with suppress(asyncio.CancelledError):
        await answer
    future, _ = modules.all[0].calls.pop()
    assert future.cancelled()
    answer = ask(server)
    await run_pending()
    modules.all[0].finish()
    await answer


async def test_draining_answers_what_was_accepted_and_refuses_the_rest(modules):
    server = start(instances=1, threads=1)
    body_to_come = asyncio.Event()
    accepted = [ask(server), ask(server), ask(server, pause=body_to_come)]
    await run_pending()
    drained = asyncio.ensure_future(server.drain(60))
    await run_pending()
    assert not server.ready
    with pytest.raises(UnavailableError, match="shutting down"):
        await ask(server)
    body_to_come.set()
    for _ in accepted:
        assert not drained.done()
        await run_pending()
        modules.all[0].finish()
    assert len(await asyncio.gather(*accepted)) == 3
    await drained
    assert server.in_flight == 0


async def test_requests_that_a_shutdown_cuts_off_learn_why(modules):
    server = start(instances=1, threads=1)
    answer = ask(server)
    await run_pending()
    await server.drain(0.01)
    answer.cancel()
    with pytest.raises(UnavailableError, match="shut down before the answer"):
        await answer
    assert metrics(server)['neocpu_requests_total{code="503",model="net",version="1"}']


def _ready(shared):
    labels = {"model": "net", "version": "1"}
    return shared.registry.get_sample_value("neocpu_model_ready", labels)


def test_ready_while_one_copy_replaces_another(modules):
    shared = Metrics(CollectorRegistry())
    old, new = (
        served.ServedModel(ModelEntry("net", "net.so"), [served.Worker(1)], 1, shared)
        for _ in range(2)
    )
    old.close()
    old.close()
    assert _ready(shared) == 1
    new.close()
    assert _ready(shared) == 0


async def test_a_module_that_fails_is_the_servers_fault(modules):
    server = start(instances=1, threads=1)
    answer = ask(server)
    await run_pending()
    modules.all[0].finish(ArtifactError("net.so: the weights are damaged"))
    with pytest.raises(UnavailableError, match="damaged"):
        await answer
    assert metrics(server)['neocpu_requests_total{code="503",model="net",version="1"}']


async def test_the_latest_version_answers_unless_one_is_named(modules):
    server = start("net:9", "net:10", instances=1, threads=1)
    answers = [ask(server), ask(server, version="9")]
    await run_pending()
    for module in modules.all:
        module.finish()
    versions = [json.loads((await a).body)["model_version"] for a in answers]
    assert versions == ["10", "9"]
    assert server.models.metadata("net", None)["versions"] == ["9", "10"]
    assert server.models.metadata("net", "9")["versions"] == ["9"]


@pytest.mark.parametrize("name", ["..", "", "net.so", "NET", "net/1", "n\0et", "x" * 5000, "né"])
def test_unknown_names(modules, name):
    with pytest.raises(UnknownModelError) as caught:
        start().models.find(name)
    assert caught.value.status == 404
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("version", ["", "0", "2", "latest", ".."])
def test_unknown_versions(modules, version):
    with pytest.raises(UnknownModelError, match="has no version"):
        start().models.find("net", version)


async def test_what_is_loaded_while_the_server_closes_is_closed_too(modules, monkeypatch):
    begun, going_on = threading.Event(), threading.Event()
    server = start(instances=1, threads=1, model_control=True)
    monkeypatch.setattr(FakeModule, "warmup", lambda *_: begun.set() or going_on.wait(60))
    loading = asyncio.ensure_future(server.load("net"))
    await asyncio.to_thread(begun.wait, 60)
    await asyncio.to_thread(server.close)
    going_on.set()
    await loading
    assert [module.closed for module in modules.all] == [True, True]


async def test_no_third_copy_of_a_model_is_loaded(modules):
    server = start(instances=1, threads=1, model_control=True)
    waiting = ask(server)
    await run_pending()
    await server.load("net")  # whose former module still computes
    third = asyncio.ensure_future(server.load("net"))
    await run_pending()
    assert len(modules.all) == 2
    modules.all[0].finish()
    await waiting
    await third
    assert len(modules.all) == 3
    server.close()
    assert [module.closed for module in modules.all] == [True] * 3


def test_whatever_a_file_cannot_be_loaded_for_leaves_the_server_as_it_was(modules, monkeypatch):
    async def scene(error):
        server = start(instances=1, threads=1, model_control=True)
        monkeypatch.setattr(FakeModule, "warmup", lambda *_: _raise(error))
        with pytest.raises(LoadError, match=r"^MemoryError$"):
            await server.load("net")
        monkeypatch.setattr(loaded_models, "stamp_of", lambda _: (1, 2, 3, 4))  # it changed
        (reload,) = await server.models.reload_changed()
        assert reload.problem is not None
        assert server.ready
        server.models.close()

    def _raise(error):
        raise error

    asyncio.run(scene(MemoryError()))
