"""Tables of the console in a browser: rows that are no taller than needed, and what shows that a table is wider."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.image import imread

from support.console.browser import Browser, needs_browser
from support.console.served import served
from support.queries.lakes import commit, small_lake

pytestmark = [pytest.mark.slow, needs_browser]

JOBS = ("ingest", "compact", "expire", "emit")
RUNS = [
    {"run_id": number, "job": job, "outcome": "nothing new", "started_at": number, "finished_at": number}
    for number, job in enumerate(3 * JOBS, 1)
]
HOST = "ip-10-0-113-25.eu-central-1.compute.internal"
EDGES = """
const box = document.querySelector('.wide').getBoundingClientRect()
const left = Math.floor(box.left), right = Math.ceil(box.right) - 1, top = Math.round(box.top)
return [[left, top + 1], [right, top + 1], [left, top - 3]]
"""
LINES = """
const lines = cell => {
  const range = document.createRange()
  range.selectNodeContents(cell)
  return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size
}
return [...document.querySelectorAll(arguments[0])].map(lines)"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("tables") / "lake"
    used = {"client_id": "orders-service", "group_id": "g"}
    small_lake(
        path,
        runs=RUNS,
        audit_events=[{"log_offset": 1, "last_log_offset": 1, "address": f"{HOST}:51234", "log_timestamp": 1, **used}],
        groups=[{"group_id": "g", "member_count": 1}],
        group_members=[{"member_id": "m", "client_host": f"/{HOST}", "details": "{}", **used}],
        offset_commits=[commit(1, 5, log_timestamp=1)],
        offsets=[{"group_id": "g", "topic": "t", "partition": 0, "committed_offset": 5, "log_offset": 1}],
    )
    with served(path) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("width", [390, 1000, 2560])
def test_a_cycle_of_jobs_takes_one_line(address: str, window: Browser, width: int) -> None:
    window.show(width, dark=False)
    window.open(f"{address}/runs")
    assert set(window.run(LINES, "tbody td:not(:empty)")) == {1}
    assert len(window.run(LINES, "tbody tr")) == len(RUNS) / len(JOBS)


def test_a_command_in_a_sentence_is_marked_as_code(address: str, window: Browser) -> None:
    window.open(f"{address}/lag")
    window.await_true(
        "return document.querySelector('main p code')?.textContent === 'offsetlake run --bootstrap HOST:PORT'"
    )
    window.open(f"{address}/review?show=kept")
    assert window.run("return document.querySelector('main p code').textContent") == "offsetlake reject --of"


@pytest.mark.parametrize("width", [390, 1000])
def test_hosts_addresses_and_short_words_are_not_broken(address: str, window: Browser, width: int) -> None:
    window.show(width, dark=False)
    for page, shown in (
        ("/client?client=orders-service", [f"/{HOST}", f"{HOST}:51234"]),
        ("/group?group=g", [f"/{HOST}"]),
        ("/step?group=g&topic=t&partition=0&record=0:1", [f"{HOST}:51234"]),
    ):
        window.open(address + page)
        cells = window.run("return [...document.querySelectorAll('td.word')].map(cell => cell.textContent)")
        assert [text for text in cells if HOST in text] == shown
        assert set(window.run(LINES, "td.word:not(:empty), td:not([class]):not(:empty)")) == {1}


def shaded_edges(window: Browser, folder: Path) -> tuple[bool, bool]:
    """Return whether the left and the right edge of a table differ from the background of the page."""
    window.screenshot(folder / "window.png")
    picture = imread(folder / "window.png")
    left, right, outside = (picture[y, x].tolist() for x, y in window.run(EDGES))
    return left != outside, right != outside


@pytest.mark.parametrize("dark", [False, True])
def test_a_shadow_shows_where_a_table_continues(address: str, window: Browser, tmp_path: Path, dark: bool) -> None:
    window.show(390, dark=dark)
    window.open(f"{address}/runs")
    assert shaded_edges(window, tmp_path) == (False, True)
    window.run("document.querySelector('.wide').scrollLeft = 60")
    assert shaded_edges(window, tmp_path) == (True, True)
    window.run("document.querySelector('.wide').scrollLeft = 10000")
    assert shaded_edges(window, tmp_path) == (True, False)
    window.show(2561, dark=dark)  # the edges are in the middle of a pixel
    assert shaded_edges(window, tmp_path) == (False, False)


def test_an_option_is_not_broken_after_its_hyphens(address: str, window: Browser) -> None:
    window.open(f"{address}/group?group=g&at=1970-01-01T00:00:01")
    tops = """
const text = document.createTreeWalker(document.getElementById('command'), NodeFilter.SHOW_TEXT), found = []
for (const range = document.createRange(); text.nextNode();)
  for (const match of text.currentNode.data.matchAll(/--\\w/g)) {
    range.setStart(text.currentNode, match.index)
    range.setEnd(text.currentNode, match.index + 3)
    found.push(new Set([...range.getClientRects()].map(box => Math.round(box.top))).size)
  }
return found"""
    for width in range(320, 800, 20):
        window.show(width, dark=False)
        assert window.run(tops) == [1, 1, 1], width
    assert window.run(
        "return document.getElementById('command').innerText === document.querySelector('[data-copy]').dataset.copy"
    )


def test_commits_fit_on_paper_without_breaking_words(address: str, window: Browser) -> None:
    window.show(739, dark=False, paper=True)  # the width of Letter between the margins of the browser
    window.open(f"{address}/partition?group=g&topic=t&partition=0")
    assert window.run("return document.querySelector('table').scrollWidth") < 739
    assert set(window.run(LINES, "thead th:not(:first-child)")) == {1}
