"""Exchange bytes with an application behind the server's own protocol."""

import asyncio
from contextlib import asynccontextmanager

import uvicorn
from uvicorn.server import ServerState

from neocpu.serving import http_protocol
from neocpu.serving.extensions import REST

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n"
CHUNKED = POST.replace(b"Content-Length: 9", b"Transfer-Encoding: chunked")


@asynccontextmanager
async def connected(app, keep_alive=60):
    """Yield reader and writer of a connection to ``app``."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=keep_alive)
    config.load()
    loop, state = asyncio.get_running_loop(), ServerState()

    def protocol():
        return http_protocol.BoundedProtocol(config, state, {}, loop)

    async with await loop.create_server(protocol, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            # From Python 3.12 on a server's end waits for them, and some applications never end.
            for connection in [*state.connections]:
                connection.transport.abort()


async def answer(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def at_once(scope, receive, send):
    await answer(send)


async def after_the_body(scope, receive, send):
    while (event := await receive())["type"] == "http.request" and event["more_body"]:
        pass
    if event["type"] == "http.request":
        await answer(send)


def exchange(app, *parts, pause=0.0, keep_alive=60, run=asyncio.run):
    """Return what the server sends to a client that sends these parts, until it hangs up."""

    async def scene():
        async with connected(app, keep_alive) as (reader, writer), asyncio.timeout(30):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(pause)
            return await reader.read()

    return run(scene())


async def in_one_place(scope, receive, send):
    """Answer with the body, read into one buffer."""
    length = int(dict(scope["headers"]).get(b"content-length", 0))
    place, first = bytearray(length), await receive()
    came = len(first["body"])
    place[:came] = first["body"]
    if first["more_body"]:
        came += await scope["extensions"][REST](memoryview(place)[came:])
        event = await receive()
        if came < length:
            assert event["type"] == "http.disconnect"
            return
        assert event == {"type": "http.request", "body": b"", "more_body": False}
    head = [(b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": bytes(place)})


def post(body, more=b""):
    return POST.replace(b"9\r\n", b"%d\r\n%s" % (len(body), more)) + body
