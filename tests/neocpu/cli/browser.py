"""Chromium without a screen, told what to do through its DevTools protocol."""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tornado.websocket import websocket_connect

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE = 60.0


class Page:
    """One page, and what it complained of and asked for."""

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
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def picture(self, path, whole=True):
        """Write what one sees, or all of the page."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Return a page of a browser that ends with the context."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        options += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        if os.geteuid() == 0:
            options.insert(0, "--no-sandbox")
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
