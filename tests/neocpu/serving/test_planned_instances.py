"""How many instances serve what was compiled for throughput, unless told."""

import asyncio

import pytest
from forgery import forge_header

from neocpu.cli.main import main
from neocpu.serving import http_server, planned_instances
from neocpu.serving.http_server import Ended
from neocpu.serving.repository import ModelEntry


@pytest.fixture(scope="module")
def planned(linear, tmp_path_factory):
    """An artifact that was planned for calls at once of two threads each."""
    path = tmp_path_factory.mktemp("planned") / "planned.so"
    return forge_header(linear.path, path, {**linear.header.to_json(), "threads": 2, "streams": 4})


@pytest.fixture(autouse=True)
def cpus(monkeypatch):
    monkeypatch.setattr(planned_instances, "usable_cpus", lambda: 6)


def count(threads, *paths):
    models = [ModelEntry(f"net{number}", path) for number, path in enumerate(paths)]
    return planned_instances.planned_instances(models, threads)


@pytest.mark.parametrize(
    ("threads", "instances"), [(None, 3), (1, 6), (4, 1), (8, 1), ("performance", 1)]
)
def test_they_use_all_cpus(planned, threads, instances):
    assert count(threads, planned) == instances


def test_of_several_models_each_must_be_planned_so(linear, planned, tmp_path):
    fields = {**linear.header.to_json(), "threads": 3, "streams": 2}
    other = forge_header(linear.path, tmp_path / "other.so", fields)
    assert count(None, planned, other) == 2
    assert count(None, planned, linear.path) == 1


@pytest.mark.parametrize(
    ("options", "instances", "threads"),
    [((), 3, 1), (("--threads", "2"), 3, 2), (("--instances", "1", "--threads", "2"), 1, 2)],
)
def test_serve_takes_them_unless_told(planned, options, instances, threads, monkeypatch):
    def serve(server, *_):
        assert (server.limits.instances, server.limits.threads_per_instance) == (instances, threads)
        server.close()
        return Ended(15, 0)

    monkeypatch.setattr("neocpu.serving.server.usable_cpus", lambda: 3)
    monkeypatch.setattr(http_server, "serve", serve)
    assert main(["serve", str(planned), "--port", "0", *options]) == 0


def test_mlserver_takes_them_unless_told(planned):
    mlserver = pytest.importorskip("mlserver")
    from neocpu.serving.mlserver import NeoCPURuntime

    def lanes(extra):
        parameters = mlserver.settings.ModelParameters(uri=str(planned), extra=extra)
        settings = mlserver.ModelSettings(
            name="planned", implementation=NeoCPURuntime, parameters=parameters
        )
        runtime = NeoCPURuntime(settings)

        async def scene():
            await runtime.load()
            found = len(runtime._lanes)
            await runtime.unload()
            return found

        return asyncio.run(scene())

    assert lanes({"threads": 2}) == 3
    assert lanes({"threads": 2, "instances": 1}) == 1
    assert lanes(None) == 3
