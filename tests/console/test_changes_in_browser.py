"""Changes of offsets in a browser: restore a group to an earlier time, and undo that, at three widths."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.console.browser import Browser, browser, needs_browser
from support.console.changes import example
from support.console.served import gate, served

pytestmark = [pytest.mark.slow, needs_browser]

AXE = Path(__file__).with_name("axe-core") / "axe.min.js"
TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("changes")
    bench = example(folder)
    with served(folder / "lake", gate(allows_changes=True), bench=bench) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def heading(window: Browser, text: str) -> None:
    window.await_true(f"return document.querySelector('h1')?.textContent.startsWith('{text}')")


def check_accessible(window: Browser, width: int, screenshot: Path) -> None:
    assert window.run("return document.documentElement.scrollWidth") <= width
    window.screenshot(screenshot)
    window.run(AXE.read_text(encoding="utf-8"))
    found = window.run("return axe.run()")
    serious = [rule for rule in found["violations"] if rule["impact"] in {"serious", "critical"}]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in serious] == []


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_a_group_is_restored_to_an_earlier_time_and_back(
    address: str, window: Browser, tmp_path: Path, width: int
) -> None:
    window.show(width, dark=width == 1280)
    window.open(f"{address}/group?group=billing&at=2026-01-31T14:00:05")
    window.run("document.querySelector('nav[aria-label=\"Changes of this group\"] a').click()")
    heading(window, "Return to earlier offsets: billing")
    assert window.run("return document.getElementById('at').value") == "2026-01-31T14:00:05"
    check_accessible(window, width, tmp_path / "form.png")
    window.run("document.getElementById('at').focus()")
    window.press(ENTER)
    heading(window, "The plan: nothing is changed yet")
    check_accessible(window, width, tmp_path / "plan.png")
    window.run("document.querySelector('button.primary').focus()")
    window.press(ENTER)
    heading(window, "The change was made")
    check_accessible(window, width, tmp_path / "executed.png")
    window.run("document.querySelector('main form button').click()")
    heading(window, "The plan: nothing is changed yet")
    window.run("document.querySelector('button.primary').click()")
    heading(window, "The change was made")
    window.open(f"{address}/group?group=billing")
    window.await_true("return document.body.textContent.includes('1,120')")
    assert [message for message in window.messages() if "Content Security Policy" in message] == []
    window.open(f"{address}/change?group=billing&kind=reset")
    check_accessible(window, width, tmp_path / "reset.png")
