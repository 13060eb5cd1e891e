"""The Open Inference Protocol v2 over HTTP, as an ASGI application on FastAPI.

Tensors never pass through FastAPI's own parsing: the server reads bodies raw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import neocpu
from neocpu.foundation.json_codec import JsonObject
from neocpu.serving.body import read_body
from neocpu.serving.extensions import GONE, KEEP_NEXT, REST
from neocpu.serving.in_flight import Share
from neocpu.serving.metadata import server_metadata
from neocpu.serving.refusals import AbandonedError, EncodingError, RequestError
from neocpu.serving.response import InferResponse
from neocpu.serving.server import InferCall, InferenceServer

MODEL_ROOTS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
_SMALL_BYTES = 4096


def create_app(server: InferenceServer) -> FastAPI:
    """Return the application, which starts the server if necessary and closes it at the end."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(server.start)
        yield
        await asyncio.to_thread(server.close)

    # No redirects: their target would come from the client's own Host header.
    app = FastAPI(title="neocpu", lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    _add_errors(app, server)
    _add_infer(app, server)  # first, because routes are tried in order
    _add_models(app, server)
    _add_repository(app, server)
    _add_health(app, server)
    return app


def _add_errors(app: FastAPI, server: InferenceServer) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
        return _json(server, {"error": str(error)}, error.status, headers)

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:100]!a}: {error.detail}"
        return _json(server, {"error": message}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        # The traceback goes to the log, for the operator.
        message = f"internal error ({type(error).__name__}); the server's log has more"
        return _json(server, {"error": message}, 500)


def _add_health(app: FastAPI, server: InferenceServer) -> None:
    @app.get("/v2")
    async def metadata() -> Response:
        control = server.limits.model_control
        return _json(server, server_metadata(neocpu.__version__, model_control=control))

    @app.get("/v2/health/live")
    async def live() -> Response:
        return _json(server, {"live": True})

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return _json(server, {"ready": server.ready}, 200 if server.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        text = generate_latest(server.metrics.registry)
        return Response(text, headers=_closing(server), media_type=CONTENT_TYPE_LATEST)


def _add_repository(app: FastAPI, server: InferenceServer) -> None:
    @app.post("/v2/repository/index")
    async def index(request: Request) -> Response:
        only_ready = (await _document(request, '{"ready": true}')).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError('the body must be empty, or as {"ready": true}')
        listed = server.models.index(only_ready=only_ready, draining=server.draining)
        return _json(server, listed)

    @app.post("/v2/repository/models/{name}/load")
    async def load(name: str, request: Request) -> Response:
        # Clients choose neither a file nor how it is run.
        if (await _document(request, "{}")).get("parameters"):
            raise RequestError(
                "load takes no parameters: the model's own file is read anew, as it was served"
            )
        await server.load(name)
        return Response(headers=_closing(server))

    @app.post("/v2/repository/models/{name}/unload")
    async def unload(name: str, request: Request) -> Response:
        await _document(request, "{}")  # "unload_dependents" is ignored: no model has dependents
        await server.unload(name)
        return Response(headers=_closing(server))


def _add_infer(app: FastAPI, server: InferenceServer) -> None:
    for root in MODEL_ROOTS:
        # Starlette's own route: FastAPI's would look for parameters in the request's body.
        app.router.routes.append(Route(f"{root}/infer", InferRoute(server), methods=["POST"]))


def _add_models(app: FastAPI, server: InferenceServer) -> None:
    for root in MODEL_ROOTS:

        @app.get(root)
        async def metadata(name: str, version: str | None = None) -> Response:
            return _json(server, server.models.metadata(name, version))

        @app.get(f"{root}/ready")
        async def ready(name: str, version: str | None = None) -> Response:
            usable = server.models.find(name, version).ready and not server.draining
            return _json(server, {"name": name, "ready": usable}, 200 if usable else 503)


async def _document(request: Request, such_as: str) -> JsonObject:
    """Return the JSON object in a request's body; an empty body is an empty object."""
    length = number_of_bytes(dict(reversed(request.headers.raw)), "Content-Length")
    chunks = body_of(request.receive)
    body = await read_body(chunks, length, limit=_SMALL_BYTES, seconds=1.0, json_bytes=None)
    try:
        document = orjson.loads(body) if body.nbytes else {}
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise RequestError(f"the body must be empty, or as {such_as}")
    return document


def _json(
    server: InferenceServer,
    document: Any,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    headers = {**(headers or {}), **_closing(server)}
    return Response(orjson.dumps(document), status, headers, "application/json")


def _closing(server: InferenceServer) -> dict[str, str]:
    return dict([CLOSING]) if server.draining else {}


JSON_LENGTH: Final = "Inference-Header-Content-Length"
CLOSING: Final = ("Connection", "close")
"""The header that sends clients with open connections to another server."""


class InferRoute:
    """Answers the requests of a route with the parameters ``name`` and maybe ``version``.

    It makes few objects: kernels fill the caches, so that its code and data come from memory with
    each request.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Of several headers with one name, the first counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        path = scope["path_params"]
        offered = scope.get("extensions") or {}
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise EncodingError("compressed requests are not supported: send it as it is")
        call = InferCall(
            model=path["name"],
            version=path.get("version"),
            length=number_of_bytes(headers, "Content-Length"),
            json_bytes=number_of_bytes(headers, JSON_LENGTH),
            is_picture=headers.get(b"content-type", b"").lower().startswith(b"image/"),
            rest=offered.get(REST),
        )
        lost = offered.get(GONE)
        gone = partial(_gone, receive) if lost is None else partial(asyncio.shield, lost)
        answer, share = await self._server.infer(call, body_of(receive), gone)
        await self._send(answer, share, send, offered)

    async def _send(
        self, answer: InferResponse, share: Share, send: Send, offered: Mapping[str, Any]
    ) -> None:
        """Send an answer, and release its share of bytes in flight once the client has read it."""
        kind, body = "json" if answer.json_bytes is None else "octet-stream", answer.body
        headers = [("content-length", len(body)), ("content-type", f"application/{kind}")]
        if answer.json_bytes is not None:
            headers.append((JSON_LENGTH, answer.json_bytes))
        if self._server.draining:
            headers.append(CLOSING)
        head = [(name.lower().encode(), str(value).encode()) for name, value in headers]
        with share:
            if (keep_next := offered.get(KEEP_NEXT)) is not None:
                keep_next()  # two pieces would wake the client twice
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": body, "more_body": True})
            # The server accepts this once the data before it have left its buffer.
            await send({"type": "http.response.body", "body": b""})


async def body_of(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise AbandonedError("the client went away before the end of the body")
        more = message.get("more_body", False)
        if body := message.get("body"):
            yield body


def number_of_bytes(headers: Mapping[bytes, bytes], name: str) -> int | None:
    """Return the number in a header; None if there is no such header."""
    text = headers.get(name.lower().encode())
    if text is None:
        return None
    if not (text.isdigit() and len(text) < 20):
        raise RequestError(f"the header {name} must be a number of bytes")
    return int(text)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
