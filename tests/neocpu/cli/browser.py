"""Chromium without a screen, controlled by its DevTools protocol."""

import asyncio
import base64
import json
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tornado.websocket import websocket_connect

from tests import chromium

CHROMIUM = chromium.find()
NEEDED = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium is installed; `make build/chromium/.ready` gets Debian's without root",
)
PATIENCE = 60.0


class Page:
    """One page, with its errors and its requests."""

    def __init__(self, socket, loop):
        self._socket, self._loop, self._number = socket, loop, 0
        self.complaints, self.requests = [], []

    def ask(self, method, **parameters):
        """Return the answer to a command of the protocol."""
        return self._loop.run_until_complete(self._ask(method, parameters))

    async def _ask(self, method, parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.write_message(json.dumps(message))
        while True:
            text = await asyncio.wait_for(self._socket.read_message(), PATIENCE)
            answer = json.loads(text)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        found = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(found["exceptionDetails"])
        if event["method"] == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning"):
            self.complaints.append(found["args"])
        if event["method"] == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.complaints.append(found["entry"])
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])

    def open(self, path, width=1400, height=1000, dark=False):
        """Show a file at a width, and wait until all of it is drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.ask(
            *("Emulation.setDeviceMetricsOverride",),
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 800},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.absolute().as_uri())
        self.wait(
            "document.documentElement?.dataset.ready && document.documentElement.dataset.drawn"
        )

    def look_well(self, width):
        """Check that a page of a width has all its parts, and made no requests."""
        assert self.value("document.documentElement.scrollWidth") <= width
        assert self.value("document.querySelector('header').getBoundingClientRect().top") <= 0
        heights = self.value("[...document.querySelectorAll('section')].map((s) => s.clientHeight)")
        assert heights
        assert min(heights) > 60, heights
        pictures = "[...document.querySelectorAll('.chart, .u-over')].map((c) => c.clientHeight)"
        assert all(height > 60 for height in self.value(pictures))
        # Every link has a target, and the keyboard reaches everything selectable.
        assert self.value(
            "[...document.querySelectorAll('nav a')].every((a) => document.querySelector(a.hash))"
        )
        reachable = "button, a[href], input, select, summary, [tabindex='0']"
        self.press("Tab")
        assert self.value(f"document.activeElement.matches({json.dumps(reachable)})")
        assert self.complaints == []
        assert all(url.startswith(("file:", "blob:", "data:")) for url in self.requests)

    def wait(self, expression):
        """Wait until an expression holds."""
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, (expression, self.complaints)
            time.sleep(0.05)

    def value(self, expression):
        """Return the value of an expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key):
        """Press a key and let it go."""
        text = "\r" if key == "Enter" else key if len(key) == 1 else None
        code = {"Enter": 13, "Tab": 9, "ArrowUp": 38, "ArrowRight": 39}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            said = {"text": text} if text and kind == "keyDown" else {}
            self.ask(
                *("Input.dispatchKeyEvent",),
                **{"type": kind, "key": key, "windowsVirtualKeyCode": code, **said},
            )

    def picture(self, path, whole=True):
        """Save a picture of the visible part, or of the whole page."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser():
    """Return a page of a browser that ends with the context."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The pages are ours, and root and containers may lack the rights for a sandbox.
        options = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        options += ["--hide-scrollbars", "--no-first-run", "--remote-debugging-port=0"]
        options += [f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(
            [CHROMIUM, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        try:
            line = next(line for line in process.stderr if "DevTools listening" in line)
            port = re.search(r"127\.0\.0\.1:(\d+)", line)[1]
            yield loop.run_until_complete(_page(f"http://127.0.0.1:{port}/json", loop))
        finally:
            process.terminate()
            process.communicate()
            loop.close()


async def _page(address, loop):
    from tornado.httpclient import AsyncHTTPClient

    for _ in range(100):
        targets = json.loads((await AsyncHTTPClient().fetch(address)).body)
        found = [each for each in targets if each["type"] == "page"]
        if found:
            break
        await asyncio.sleep(0.1)
    socket = await websocket_connect(found[0]["webSocketDebuggerUrl"], max_message_size=1 << 28)
    page = Page(socket, loop)
    for domain in ("Page", "Runtime", "Log", "Network"):
        await page._ask(f"{domain}.enable", {})
    return page
