"""The Open Inference Protocol v2 over HTTP, as an ASGI application on FastAPI.

Tensors never pass through FastAPI's own parsing: the server reads bodies raw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

import neocpu
from neocpu.serving.body import read_body
from neocpu.serving.extensions import GONE, KEEP_NEXT, REST
from neocpu.serving.in_flight import Share
from neocpu.serving.metadata import server_metadata
from neocpu.serving.refusals import AbandonedError, EncodingError, RequestError
from neocpu.serving.response import InferResponse
from neocpu.serving.server import InferCall, InferenceServer

JSON_LENGTH = "Inference-Header-Content-Length"
MODEL_ROOTS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
_INDEX_BYTES = 4096


def create_app(server: InferenceServer) -> FastAPI:
    """Return the application. It starts the server unless that was done, and closes it at its end.

    Raises
    ------
    NeoCPUError
        At start-up, as `InferenceServer.start`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(server.start)
        yield
        await asyncio.to_thread(server.close)

    # No redirects: where to is what the client itself says in Host.
    app = FastAPI(title="neocpu", lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    _add_errors(app, server)
    _add_infer(app, server)  # first, for routes are tried in order
    _add_models(app, server)
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
        return _json(server, server_metadata(neocpu.__version__))

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

    @app.post("/v2/repository/index")
    async def index(request: Request) -> Response:
        return _json(server, server.index(only_ready=await _wants_ready(request)))


def _add_infer(app: FastAPI, server: InferenceServer) -> None:
    async def infer(request: Request) -> Response:
        headers, path = request.headers, request.path_params
        if headers.get("content-encoding", "identity") != "identity":
            raise EncodingError("compressed requests are not supported: send it as it is")
        length, json_bytes = _number(headers, "content-length"), _number(headers, JSON_LENGTH)
        is_picture = headers.get("content-type", "").lower().startswith("image/")
        offered = _extensions(request.scope)
        rest, lost = offered.get(REST), offered.get(GONE)
        call = InferCall(path["name"], path.get("version"), length, json_bytes, is_picture, rest)
        gone = partial(_gone, request) if lost is None else partial(asyncio.shield, lost)
        answer, share = await server.infer(call, _chunks(request), gone)
        return _infer_response(server, answer, share)

    for root in MODEL_ROOTS:
        # Starlette's own route: FastAPI's would look for parameters in the request's body.
        app.add_route(f"{root}/infer", infer, methods=["POST"])


def _add_models(app: FastAPI, server: InferenceServer) -> None:
    for root in MODEL_ROOTS:

        @app.get(root)
        async def metadata(name: str, version: str | None = None) -> Response:
            return _json(server, server.metadata(name, version))

        @app.get(f"{root}/ready")
        async def ready(name: str, version: str | None = None) -> Response:
            usable = server.find(name, version).ready and not server.draining
            return _json(server, {"name": name, "ready": usable}, 200 if usable else 503)


class _CountedResponse(Response):
    """A response that holds its share of the bytes in flight until the client has taken them."""

    def __init__(self, body: bytes, share: Share, headers: Mapping[str, str], kind: str) -> None:
        super().__init__(body, headers=headers, media_type=kind)
        self._share = share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._share:
            head = {"status": self.status_code, "headers": self.raw_headers}
            if (keep_next := _extensions(scope).get(KEEP_NEXT)) is not None:
                keep_next()  # two pieces would wake the client twice
            await send({"type": "http.response.start", **head})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            # The server takes it once what was written before has left its buffer.
            await send({"type": "http.response.body", "body": b""})


def _extensions(scope: Scope) -> Mapping[str, Any]:
    return scope.get("extensions") or {}


def _infer_response(server: InferenceServer, answer: InferResponse, share: Share) -> Response:
    headers = _closing(server)
    if answer.json_bytes is None:
        return _CountedResponse(answer.body, share, headers, "application/json")
    headers = {JSON_LENGTH: str(answer.json_bytes), **headers}
    return _CountedResponse(answer.body, share, headers, "application/octet-stream")


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise AbandonedError("the client went away before the end of the body") from None


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _wants_ready(request: Request) -> bool:
    """Return whether an index is asked for with the models that are ready alone."""
    length = _number(request.headers, "content-length")
    body = await read_body(
        _chunks(request), length, limit=_INDEX_BYTES, seconds=1.0, json_bytes=None
    )
    try:
        document = orjson.loads(body) if body.nbytes else {}
        only_ready = document.get("ready", False)
    except (orjson.JSONDecodeError, AttributeError):
        only_ready = None
    if not isinstance(only_ready, bool):
        raise RequestError('the body must be empty, or as {"ready": true}')
    return only_ready


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RequestError(f"{name} must be a number of bytes")
    return int(text)


def _json(
    server: InferenceServer,
    document: Any,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    headers = {**(headers or {}), **_closing(server)}
    return Response(orjson.dumps(document), status, headers, "application/json")


def _closing(server: InferenceServer) -> dict[str, str]:
    """Tell clients that keep their connections to look for another server."""
    return {"Connection": "close"} if server.draining else {}
