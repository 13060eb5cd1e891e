"""Inference requests, as an ASGI application behind a route of the application in `app.py`.

Kernels fill the caches, so code and data of this path come from memory with each request: it makes
as few objects as possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from neocpu.serving.extensions import GONE, KEEP_NEXT, REST
from neocpu.serving.in_flight import Share
from neocpu.serving.refusals import AbandonedError, EncodingError, RequestError
from neocpu.serving.response import InferResponse
from neocpu.serving.server import InferCall, InferenceServer

JSON_LENGTH: Final = "Inference-Header-Content-Length"
CLOSING: Final = ("Connection", "close")
"""The header that sends clients with open connections to another server."""


class InferRoute:
    """Answers the requests of a route with the parameters ``name`` and maybe ``version``.

    Raises RequestError: the request is refused; nothing has been sent yet.
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
    """Yield the pieces of a request's body as they come.

    Raises AbandonedError: the client goes away before the end.
    """
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
        raise RequestError(f"{name} must be a number of bytes")
    return int(text)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
