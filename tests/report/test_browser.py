"""The report in a real browser: it asks nobody for anything, complains of nothing, and fits a phone."""

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
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here"),
]

WIDTHS = (360, 1200)
# Around the report, which has no script of its own and lets none run: looks at it in frames of these widths.
LOOKING = """<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><pre></pre><script>
const seen = {}
function look(frame) {
  const page = frame.contentDocument, root = page.documentElement
  seen[frame.width] = {
    wide: root.scrollWidth,
    images: [...page.images].map(one => [one.naturalWidth, one.clientWidth, one.clientHeight]),
    beyond: [...page.querySelectorAll("td, th, p, dd")].filter(one => one.scrollWidth > one.clientWidth + 1).length,
  }
  document.querySelector("pre").textContent = JSON.stringify(seen)
}
</script>""" + "".join(
    f'<iframe src="report.html?{width}" width="{width}" height="900" onload="look(this)"></iframe>' for width in WIDTHS
)


class Recording(SimpleHTTPRequestHandler):
    """Answers with the files of a folder, and writes down what was asked."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    page = report(small_lake(tmp_path / "lake", **TABLES), POLICY, None, None, quiet)
    site = tmp_path / "site"
    site.mkdir()
    (site / "report.html").write_text(page, encoding="utf-8")
    (site / "looking.html").write_text(LOOKING, encoding="utf-8")
    handler = type("Handler", (Recording,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_in_a_browser(served: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = served
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=10000", "--dump-dom",
        "--disable-features=NetworkTimeServiceQuerying",
        f"--proxy-server={address.removeprefix('http://')}",  # what would go to anybody else comes here, too
        f"{address}/looking.html",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    assert sorted(path.rpartition("/")[2] for path in asked) == [
        "looking.html", *(f"report.html?{width}" for width in sorted(WIDTHS, key=str)),
    ]  # fmt: skip
    (told,) = re.findall(r"<pre>(.*)</pre>", done.stdout)
    seen = json.loads(unescape(told))
    assert seen.keys() == {*map(str, WIDTHS)}
    for width, page in seen.items():
        assert page["wide"] <= int(width), "nothing stands out at the right"
        assert page["beyond"] == 0
        assert len(page["images"]) == 7
        for natural, wide, high in page["images"]:
            assert natural > 300
            assert wide > 300
            assert high > 60
