"""Fixtures of the server's tests."""

import pytest


@pytest.fixture
def modules(monkeypatch):
    """``all`` modules made so far, in order, and the ``log`` of their calls."""
    from fake_modules import loaded

    return loaded(monkeypatch)


@pytest.fixture
def short(monkeypatch):
    """Clients have 0.4 s for a head and for a body."""
    from neocpu.serving import http_protocol

    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.4)
