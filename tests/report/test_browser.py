"""The report in a browser: it loads nothing else, causes no console messages, and fits a phone."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from offsetlake.report.report import report
from support.queries.lakes import small_lake
from support.report.report_rows import POLICY, TABLES, quiet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]

WIDTHS = (360, 1200)
# A page that measures the report in frames of these widths. The report itself has no scripts and permits none.
MEASURING = """<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><pre></pre><script>
const measured = {}
function measure(frame) {
  const page = frame.contentDocument, root = page.documentElement
  measured[frame.width] = {
    width: root.scrollWidth,
    images: [...page.images].map(image => [image.naturalWidth, image.clientWidth, image.clientHeight]),
    overflowing: [...page.querySelectorAll("td, th, p, dd")]
      .filter(item => item.scrollWidth > item.clientWidth + 1).length,
  }
  document.querySelector("pre").textContent = JSON.stringify(measured)
}
</script>""" + "".join(
    f'<iframe src="report.html?{width}" width="{width}" height="900" onload="measure(this)"></iframe>'
    for width in WIDTHS
)


class Recording(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and records the requested paths."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        super().do_GET()

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    requests: list[str] = []
    page = report(small_lake(tmp_path / "lake", **TABLES), POLICY, None, None, quiet).page
    site = tmp_path / "site"
    site.mkdir()
    (site / "report.html").write_text(page, encoding="utf-8")
    (site / "measuring.html").write_text(MEASURING, encoding="utf-8")
    handler = type("Handler", (Recording,), {"requests": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def test_page_loads_nothing_else_and_fits_narrow_and_wide_screens(
    served: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, requests = served
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=10000", "--dump-dom",
        "--disable-features=NetworkTimeServiceQuerying",
        f"--proxy-server={address.removeprefix('http://')}",  # requests to any other host arrive here, too
        f"{address}/measuring.html",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    assert sorted(path.rpartition("/")[2] for path in requests) == [
        "measuring.html", *(f"report.html?{width}" for width in sorted(WIDTHS, key=str)),
    ]  # fmt: skip
    (text,) = re.findall(r"<pre>(.*)</pre>", done.stdout)
    measured = json.loads(unescape(text))
    assert measured.keys() == {*map(str, WIDTHS)}
    for width, page in measured.items():
        assert page["width"] <= int(width), "no horizontal scrolling"
        assert page["overflowing"] == 0
        assert len(page["images"]) == 7
        for natural_width, image_width, image_height in page["images"]:
            assert natural_width > 300
            assert image_width > 300
            assert image_height > 60
