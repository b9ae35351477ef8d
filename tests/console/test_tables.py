"""Tables of the console in a browser: rows that are no taller than needed, and what shows that a table is wider."""

from collections.abc import Iterator

import pytest

from support.console.browser import Browser, needs_browser
from support.console.served import served
from support.queries.lakes import small_lake

pytestmark = [pytest.mark.slow, needs_browser]

JOBS = ("ingest", "compact", "expire", "emit")
RUNS = [
    {"run_id": number, "job": job, "outcome": "nothing new", "started_at": number, "finished_at": number}
    for number, job in enumerate(3 * JOBS, 1)
]
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
    small_lake(path, runs=RUNS)
    with served(path) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("width", [390, 1000, 2560])
def test_a_cycle_of_jobs_takes_one_line(address: str, window: Browser, width: int) -> None:
    window.show(width, dark=False)
    window.open(f"{address}/runs")
    assert set(window.run(LINES, "tbody td:not(:empty)")) == {1}
    assert len(window.run(LINES, "tbody tr")) == len(RUNS) / len(JOBS)


def test_a_command_in_a_sentence_is_marked_as_code(address: str, window: Browser) -> None:
    window.open(f"{address}/runs")
    assert window.run("return document.querySelector('main p code').textContent") == "offsetlake check --docs DIR"
    window.open(f"{address}/review?show=kept")
    assert window.run("return document.querySelector('main p code').textContent") == "offsetlake reject --of"
