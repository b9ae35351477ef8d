"""A browser without a window that is driven by the WebDriver protocol (W3C), as chromedriver speaks it."""

import http.client
import json
import re
import shutil
import subprocess
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from support.broker.broker import free_ports

AXE = Path(__file__).with_name("axe-core") / "axe.min.js"
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(DRIVER is None, reason="chromedriver is not installed")

Colour = tuple[int, int, int]

_SECONDS = 300
_STARTED = "ChromeDriver was started successfully"


class Browser:
    """One window; requests to other hosts than 127.0.0.1 fail, and are recorded."""

    def __init__(self, port: int, profile: Path) -> None:
        self._port, self._session = port, "/session"
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]  # fmt: skip
        wanted = {
            "goog:chromeOptions": {"args": options},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session += "/" + self._post("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def show(self, width: int, *, dark: bool, paper: bool = False) -> None:
        """Set the width of the screen, or of paper, in CSS pixels, and the colour scheme that the user prefers."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"media": "print" if paper else "screen", "features": [scheme]})

    def open(self, url: str) -> None:
        """Open a page, and return when it has loaded."""
        self._post("/url", {"url": url})

    @contextmanager
    def script_of_pages(self, script: str) -> Iterator[None]:
        """Run a script in each page that is opened inside the block, before its own scripts."""
        added = self._command("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            yield
        finally:
            self._command("Page.removeScriptToEvaluateOnNewDocument", added)

    def run(self, script: str, *arguments: object) -> Any:
        """Return the result of a script; that of a promise is awaited."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        place = (
            "const element = document.querySelector(arguments[0]); element.scrollIntoView({block: 'center'});"
            "const box = element.getBoundingClientRect();"
            "return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)]"
        )
        left, top = self.run(place, selector)
        strokes = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        moves = [{"type": "pointerMove", "x": left, "y": top}, *strokes]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}
        self._post("/actions", {"actions": [mouse]})

    def messages(self) -> list[str]:
        """Return what was written to the console of the browser since the last call."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self._post("/se/log", {"type": "performance"})]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def await_true(self, script: str) -> None:
        """Wait until a script returns true: a key that is pressed opens a page later."""
        end = time.monotonic() + _SECONDS
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def printed_pages(self) -> int:
        """Return the number of pages of paper (A4 or letter) on which the page is printed."""
        return len(re.findall(rb"/Type\s*/Page\b", b64decode(self._post("/print", {}))))

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window."""
        path.write_bytes(b64decode(self._request("GET", "/screenshot")))

    def shades(self, selector: str) -> tuple[Colour, int, int]:
        """Return the most frequent colour of an element as it is shown, and its lowest and highest value of green."""
        place = (
            "const element = document.querySelector(arguments[0]); element.scrollIntoView({block: 'center'});"
            "const box = element.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]"
        )
        box = self.run(place, selector)
        window = Image.open(BytesIO(b64decode(self._request("GET", "/screenshot")))).convert("RGB")
        counts = Counter(window.crop(tuple(map(round, box))).get_flattened_data())
        greens = [green for _, green, _ in counts]
        return counts.most_common(1)[0][0], min(greens), max(greens)

    def await_heading(self, text: str) -> None:
        """Wait for a page whose heading starts with a text."""
        self.await_true(f"return document.querySelector('h1')?.textContent.startsWith('{text}')")

    def check(self, width: int, screenshot: Path) -> None:
        """Write a screenshot of the page; the page must not be wider, and follow the rules of axe-core."""
        page = self.run("return location.href")
        self.screenshot(screenshot)
        assert self.run("return document.documentElement.scrollWidth") <= width, page
        # axe-core does not determine contrasts over gradients, such as the shadows of tables.
        self.run("for (const table of document.querySelectorAll('.wide')) table.style.background = 'none'")
        self.run(AXE.read_text(encoding="utf-8"))
        found = self.run("return axe.run()")
        assert "color-contrast" in {rule["id"] for rule in found["passes"]}, page
        serious = [rule for rule in found["violations"] if rule["impact"] in {"serious", "critical"}]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in serious] == [], page

    def close(self) -> None:
        """End the browser."""
        self._request("DELETE", "")

    def _command(self, name: str, parameters: Mapping[str, object]) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _post(self, path: str, body: Mapping[str, object]) -> Any:
        return self._request("POST", path, json.dumps(body))

    def _request(self, method: str, path: str, body: str | None = None) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)) as connection:
            connection.request(method, self._session + path, body)
            value = json.load(connection.getresponse())["value"]
        assert not (isinstance(value, dict) and "error" in value), value
        return value


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start chromedriver, and a browser with a new profile.

    Its option --port=0 selects a port that is free for IPv6, and fails if it is in use for IPv4.
    """
    assert DRIVER is not None
    (port,) = free_ports(1)
    command: Sequence[str] = [DRIVER, f"--port={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            assert any(line.startswith(_STARTED) for line in driver.stdout), "chromedriver did not start, see stderr"
            opened = Browser(port, profile)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            driver.kill()
