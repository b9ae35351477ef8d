"""Changes of offsets in a browser: restore a group to an earlier time, and undo that, at three widths."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.console.browser import Browser, needs_browser
from support.console.changes import example
from support.console.served import gate, served
from support.long_cases import long_cases

pytestmark = [pytest.mark.slow, needs_browser]

TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("changes")
    bench = example(folder)
    with served(folder / "lake", gate(allows_changes=True), bench=bench) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("width", [1280, *long_cases((390, 2560))])
def test_a_group_is_restored_to_an_earlier_time_and_back(
    address: str, window: Browser, tmp_path: Path, width: int
) -> None:
    window.show(width, dark=width == 1280)
    window.open(f"{address}/group?group=billing&at=2026-01-31T14:00:05")
    window.run("document.querySelector('nav[aria-label=\"Changes of this group\"] a').click()")
    window.await_heading("Return to earlier offsets: billing")
    assert window.run("return document.getElementById('at').value") == "2026-01-31T14:00:05"
    window.check(width, tmp_path / "form.png")
    window.run("document.getElementById('at').focus()")
    window.press(ENTER)
    window.await_heading("The plan: nothing is changed yet")
    window.check(width, tmp_path / "plan.png")
    window.run("document.querySelector('button.primary').focus()")
    window.press(ENTER)
    window.await_heading("The change was made")
    window.check(width, tmp_path / "executed.png")
    window.run("document.querySelector('main form button').click()")
    window.await_heading("The plan: nothing is changed yet")
    window.run("document.querySelector('button.primary').click()")
    window.await_heading("The change was made")
    window.open(f"{address}/group?group=billing")
    window.await_true("return document.body.textContent.includes('1,120')")
    assert [message for message in window.messages() if "Content Security Policy" in message] == []
    window.open(f"{address}/change?group=billing&kind=reset")
    window.check(width, tmp_path / "reset.png")
