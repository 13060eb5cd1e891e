"""The reasons to refuse a request, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from neocpu.foundation.errors import NeoCPUError


class RequestError(NeoCPUError):
    """A request that cannot be answered. The client gets the message.

    `retry_after`: seconds after which another try makes sense.
    """

    status: ClassVar[int] = 400

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoadError(RequestError):
    """A file that cannot be loaded. The status is the protocol's."""


class ForbiddenError(RequestError):
    """The client asks for something that is not allowed here."""

    status = 403


class UnknownModelError(RequestError):
    """No model of that name or version."""

    status = 404


class SlowRequestError(RequestError):
    """The body did not arrive in time."""

    status = 408


class TooLargeError(RequestError):
    """More bytes than a request may have."""

    status = 413


class EncodingError(RequestError):
    """A body that is compressed, or a picture that this server cannot decode."""

    status = 415


class NotFiniteError(RequestError):
    """An output that JSON cannot express."""

    status = 422


class AbandonedError(RequestError):
    """The client went away. Nobody reads the answer, but it is counted, with nginx's status."""

    status = 499


class OverloadedError(RequestError):
    """The queue of requests is full."""

    status = 429


class UnavailableError(RequestError):
    """The model is not ready, or the server is shutting down."""

    status = 503
