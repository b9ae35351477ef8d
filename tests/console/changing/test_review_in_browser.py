"""The review in a browser: approve 40 of 60 planned tombstones with the mouse and the keyboard, at three widths."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.example_log import DAY_S, write
from offsetlake.pipeline import runner
from offsetlake.queries.review import planned_tombstones
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import to_ms
from support.console.browser import Browser, needs_browser
from support.console.changes import copied
from support.console.served import gate, served
from support.lakes import new_lake
from support.long_cases import long_cases

pytestmark = [pytest.mark.slow, needs_browser]

TAB, SPACE, ENTER = "\ue004", " ", "\ue007"
CONTROLS = "[...document.querySelectorAll('main form.filters :is(label, input:not([type=hidden]), select, button)')]"
COUNT = "return document.getElementById('selected').textContent"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with 60 planned tombstones of offsets of one group that still has another offset."""
    folder = tmp_path_factory.mktemp("sixty")
    (folder / "log").mkdir()
    old = [(-10 * DAY_S, "nightly", "a-topic-with-a-long-name", n, 1_000 + n) for n in range(60)]
    write(folder / "log", [*old, (0, "nightly", "orders", 0, 7)])
    lake = new_lake(folder / "lake")
    runner.catch_up(lake, LogAddress(folder / "log"), lambda _: None)
    policy = runner.Expiry(RetentionPolicy(7 * DAY_S * 1000, ()), to_ms("2026-01-31T15:00"))
    runner.run_jobs(lake.location, None, ["expire"], policy, lambda _: None)
    return folder


@pytest.fixture
def address(original: Path, tmp_path: Path) -> Iterator[str]:
    bench = copied(original, tmp_path)
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as port:
        yield f"http://127.0.0.1:{port}"


def left(folder: Path) -> set[int]:
    """Return the partitions whose tombstones are still planned."""
    return {row["partition"] for row in planned_tombstones(Lake.open(folder / "lake")).to_pylist()}


@pytest.mark.parametrize("width", [1280, *long_cases((390, 2560))])
def test_40_of_60_are_approved_with_the_mouse(address: str, window: Browser, tmp_path: Path, width: int) -> None:
    window.show(width, dark=width == 1280)
    window.open(f"{address}/review")
    window.await_true(f"{COUNT} === '0 of 60 selected'")
    boxes = "document.querySelectorAll('input[name=row]')"
    window.run(f"{boxes}[0].click()")
    window.run(f"{boxes}[39].dispatchEvent(new MouseEvent('click', {{shiftKey: true, bubbles: true}}))")
    assert window.run(COUNT) == "40 of 60 selected"
    window.check(width, tmp_path / "review.png")
    lines = window.run(f"return {CONTROLS}.map(control => control.getBoundingClientRect().top)")
    assert width == 390 or max(lines) - min(lines) < 20, lines  # the labels, the fields and the button of the filter
    window.run("document.querySelector('button[value=approve]').click()")
    window.await_heading("The change was made")
    window.check(width, tmp_path / "approved.png")
    assert left(tmp_path) == {*range(40, 60)}


@pytest.mark.long
def test_40_of_60_are_approved_with_the_keyboard(address: str, window: Browser, tmp_path: Path) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/review")
    window.await_true(f"{COUNT} === '0 of 60 selected'")
    window.run("document.getElementById('all').focus()")
    window.press(SPACE)
    assert window.run(COUNT) == "60 of 60 selected"
    for _ in range(20):
        window.press(TAB, SPACE, TAB)  # clears a box, and skips the link to the group
    assert window.run(COUNT) == "40 of 60 selected"
    window.press(TAB, ENTER)  # a box: Enter must not submit by accident
    assert window.run(COUNT) == "40 of 60 selected"
    window.run("document.querySelector('button[value=approve]').focus()")
    window.press(ENTER)
    window.await_heading("The change was made")
    assert left(tmp_path) == {*range(20)}
