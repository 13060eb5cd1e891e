"""Fixtures of the server's tests."""

import asyncio
import inspect

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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run tests that are coroutines, each in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
