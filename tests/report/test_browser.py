"""The report in a browser: it loads nothing else, causes no console messages, and is legible on screens and paper."""

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

import numpy as np
import pytest

from offsetlake.web.report.charts import Bars, Calendar, Lane, Lanes, StackedColumns
from offsetlake.web.report.pictures import draw
from offsetlake.web.report.report import report
from support.console.browser import Browser, browser, needs_browser
from support.queries.lakes import small_lake
from support.report.report_rows import DAY, LONG, MATH, POLICY, TABLES, TAGS, quiet

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


NAMES = ["PAYMENTS-ENRICHMENT-CONSUMER-GROUP-EU-1", "m" * 40, "漢" * 40, LONG, TAGS, MATH]
LABELS = ["UNKNOWN, 9.9M records", "REWIND, 9.9M records"] * 3
SCALE = np.array([-9_900_000, 9_900_000.0])
CHARTS = {
    "lanes": Lanes(
        [Lane(*row) for row in zip(NAMES, [np.array([0, 5 * DAY])] * 6, [SCALE] * 6, LABELS, strict=True)],
        0, 5 * DAY, steps=False,
    ),
    "bars": Bars(NAMES, {"redundant": np.arange(6.0), "needed": np.ones(6)}, LABELS),
    "calendar": Calendar(NAMES, ["due", *map(str, range(9))], np.full((6, 10), 999_999)),
    "columns": StackedColumns(["1 Jan"] * 60, {"commits": np.full(60, 9_900_000.0)}),
}  # fmt: skip
OVERLAPPING = """
const texts = [...document.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()])
const chart = document.documentElement.getBoundingClientRect(), found = []
texts.forEach(([one, a], number) => {
  if (a.left < chart.left - 1 || a.right > chart.right + 1) found.push([one])
  for (const [other, b] of texts.slice(number + 1)) {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left)
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)
    if (width > 0 && height > Math.min(a.height, b.height) / 2) found.push([one, other])
  }
})
return found
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@needs_browser
@pytest.mark.parametrize("chart", CHARTS)
def test_texts_of_a_chart_are_inside_of_it_and_do_not_overlap(window: Browser, tmp_path: Path, chart: str) -> None:
    (tmp_path / "chart.svg").write_bytes(draw(CHARTS[chart]))
    window.open(f"file://{tmp_path}/chart.svg")
    assert window.run(OVERLAPPING) == []


@pytest.mark.long
@needs_browser
def test_charts_have_the_colours_of_the_page_and_paper_is_light(window: Browser, tmp_path: Path) -> None:
    page = report(small_lake(tmp_path / "lake", **TABLES), POLICY, None, None, quiet).page
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    for dark, paper in ((False, False), (True, False), (True, True)):
        window.show(1000, dark=dark, paper=paper)
        window.open(f"file://{tmp_path}/report.html")
        is_light = paper or not dark
        for number in range(1, 8):
            background, darkest, lightest = window.shades(f"section:nth-of-type({number}) img, body > header")
            assert background == ((255, 255, 255) if is_light else (22, 24, 27))
            assert (darkest < 60) if is_light else (lightest > 200), "text"


@needs_browser
def test_sections_that_fit_on_one_page_of_paper_are_printed_on_it(window: Browser, tmp_path: Path) -> None:
    page = report(small_lake(tmp_path / "lake", **TABLES), POLICY, None, None, quiet).page
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    window.open(f"file://{tmp_path}/report.html")
    window.run("for (const other of document.querySelectorAll('section:nth-of-type(n + 3)')) other.remove()")
    assert window.run("return document.querySelectorAll('section').length") == 2
    assert window.printed_pages() == 1


@needs_browser
def test_long_commands_and_names_are_complete_on_paper(window: Browser, tmp_path: Path) -> None:
    rows = [{**row, "topic": "t" * 240} for row in TABLES["offset_commits"]]
    lake = small_lake(tmp_path / ("x" * 230) / "lake", **{**TABLES, "offset_commits": rows})
    (tmp_path / "report.html").write_text(report(lake, POLICY, None, None, quiet).page, encoding="utf-8")
    window.show(700, dark=False, paper=True)
    window.open(f"file://{tmp_path}/report.html")
    assert window.run("return [...document.querySelectorAll('code')].some(code => code.textContent.length > 250)")
    beyond = "[...document.querySelectorAll('td, p, code, img')].filter(e => e.getBoundingClientRect().right > 700)"
    assert window.run(f"return {beyond}.map(element => element.textContent)") == []
