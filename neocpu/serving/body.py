"""A request's body, received into one buffer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from anyio import fail_after, move_on_after

from neocpu.runtime.aligned_memory import ALIGNMENT, aligned_empty
from neocpu.serving.extensions import Rest
from neocpu.serving.refusals import RequestError, SlowRequestError, TooLargeError

if sys.version_info >= (3, 11):
    from asyncio import timeout  # takes less of each request than anyio's
else:

    @asynccontextmanager
    async def timeout(seconds: float) -> AsyncIterator[None]:
        with fail_after(seconds):
            yield


_CHUNKED_START = 1 << 16


async def read_body(
    chunks: AsyncIterator[bytes],
    length: int | None,
    *,
    limit: int,
    seconds: float,
    json_bytes: int | None,
    hold: Callable[[int], None] | None = None,
    rest: Rest | None = None,
) -> memoryview:
    """Receive a body. If its declared length is too large, nothing is read.

    `length`: Content-Length; None if the body is chunked. `json_bytes`: the offset of binary tensor
    data, which are aligned, so that the module reads the first tensor in place. `hold`: a function
    called with the total bytes about to be allocated, which may raise. `rest`: a function that
    reads the data after the first chunk, if the length is known. Raises RequestError: the body is
    too large, too slow, or ends early.
    """
    if length is not None and length > limit:
        raise _too_large(limit)
    skew = -(json_bytes or 0) % ALIGNMENT

    def allocate(size: int) -> memoryview:
        if hold is not None:
            hold(size)
        # Not cleared: a request that only claims to be large costs no memory.
        return aligned_empty((skew + size,), "uint8").data[skew:]

    buffer = allocate(_CHUNKED_START if length is None else length)
    received = 0
    try:
        async with timeout(seconds):
            async for chunk in chunks:
                end = received + len(chunk)
                if end > limit:
                    raise _too_large(limit)
                if end > buffer.nbytes:
                    larger = allocate(min(limit, 2 * end))
                    larger[:received] = buffer[:received]
                    buffer = larger
                buffer[received:end] = chunk
                received = end
                if rest is not None and length is not None and 0 < received < length:
                    received += await rest(buffer[received:])
    except TimeoutError:
        raise SlowRequestError(f"the body did not arrive within {seconds:g} s") from None
    if length is not None and received != length:
        raise RequestError(f"the body ended after {received} of {length} bytes")
    return buffer[:received]


async def discard_body(chunks: AsyncIterator[bytes], seconds: float) -> None:
    """Receive a body and drop it: unread data would reset the connection, and lose the answer."""
    with suppress(RequestError), move_on_after(seconds):
        async for _ in chunks:
            pass


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"the request has more than {limit} bytes (--max-request-bytes)")
