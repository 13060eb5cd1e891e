"""What tests of the server share."""

import pytest


@pytest.fixture
def modules(monkeypatch):
    """``all`` modules that were made, in order, and the ``log`` of what was done to them."""
    from fake_modules import loaded

    return loaded(monkeypatch)


@pytest.fixture
def short(monkeypatch):
    """Clients have 0.4 s for a head and for a body."""
    from neocpu.serving import http_protocol

    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.4)
