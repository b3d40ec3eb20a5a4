"""Chromium without a screen, spoken to through a pair of pipes (DevTools protocol), for tests of pages."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for path in map(shutil.which, NAMES) if path), None)
needs_browser = pytest.mark.skipif(
    FOUND is None, reason="no Chromium here (apt-get install chromium); pages are not opened in a browser"
)


class Browser:
    """One tab; what its page writes to the console or throws stands in `complaints`."""

    def __init__(self, profile):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        own = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        own += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        joined = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'  # the pipes that the browser speaks through
        self._process = subprocess.Popen(
            ["bash", "-c", joined, "bash", FOUND, *own],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._last, self._events = b"", 0, []
        self.complaints = []
        target = next(one for one in self._ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def ask(self, method, **parameters):
        return self._ask(method, session=self._session, **parameters)

    def _ask(self, method, session=None, **parameters):
        self._last += 1
        asked = {"id": self._last, "method": method, "params": parameters}
        asked |= {"sessionId": session} if session else {}
        raw = json.dumps(asked).encode() + b"\0"
        while raw:
            raw = raw[os.write(self._write, raw[:30_000]) :]
        while True:
            told = self._next(60.0)
            if told.get("id") == self._last:
                assert "error" not in told, told["error"]
                return told["result"]

    def _next(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser said nothing for a minute"
            self._buffer += os.read(self._read, 1 << 20)
        raw, _, self._buffer = self._buffer.partition(b"\0")
        told = json.loads(raw)
        if told.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(told["params"])[:400])
        if told.get("method") == "Network.requestWillBeSent":
            self._events.append(told["params"]["request"]["url"])
        if told.get("method") == "Page.loadEventFired":
            self._events.append("loaded")
        return told

    def open(self, path, *, width=1280, height=900, dark=False, touch=False):
        self.complaints.clear()
        self._events.clear()
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=Path(path).resolve().as_uri())
        while "loaded" not in self._events:
            self._next(60.0)

    @property
    def fetched(self):
        """Addresses that the page asked for beyond its own."""
        return [one for one in self._events if one != "loaded"][1:]

    def run(self, script):
        told = self.ask(
            "Runtime.evaluate", expression=f"(() => {{ {script} }})()", returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def key(self, name, text=""):
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "Escape": 27}[name]
        same = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **same, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **same)

    def click(self, selector):
        """Click the middle of the first element of a selector, as a mouse does."""
        script = (
            f"const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center', inline: 'center'});"
            "const box = one.getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2];"
        )
        x, y = self.run(script)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path, *, whole=True):
        told = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def printed(self):
        """Return the page as a printer gets it, PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])
