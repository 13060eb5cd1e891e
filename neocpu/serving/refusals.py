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
    status = 403


class UnknownModelError(RequestError):
    status = 404


class SlowRequestError(RequestError):
    status = 408


class TooLargeError(RequestError):
    status = 413


class EncodingError(RequestError):
    status = 415  # the body is compressed, or a picture that this server cannot decode


class NotFiniteError(RequestError):
    status = 422


class OverloadedError(RequestError):
    status = 429


class AbandonedError(RequestError):
    status = 499  # nginx's, for a client that went away: nobody reads the answer, but it is counted


class UnavailableError(RequestError):
    status = 503
