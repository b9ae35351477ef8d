"""The console in a browser: screens from 390 to 2,560 pixels, the keyboard, and the rules of axe-core."""

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from offsetlake.web.console import answer_cache, forked
from support.console.browser import Browser, needs_browser
from support.console.served import served
from support.queries.lakes import commit, small_lake, tombstone
from support.report.report_rows import TAGS

pytestmark = [pytest.mark.slow, needs_browser]

SCREENS = [
    (390, False),
    *(pytest.param(*each, marks=pytest.mark.long) for each in ((390, True), (1280, True), (2560, False))),
]
LONG = "a-group-with-a-long-name-" * 9
GROUPS = ["billing", TAGS, LONG, "שלום \u202eabc"]
OF_LONG = urlencode({"group": LONG, "topic": LONG, "partition": 0})
PAGES = (
    "/", "/?q=nothing-like-this", "/?sort=-offsets&at=2000", "/group?group=billing", "/group?group=billing&at=24:05",
    f"/group?{OF_LONG}",
    "/partition?group=billing&topic=billing&partition=0", f"/partition?{OF_LONG}", "/group",
    "/share", f"/share-group?{urlencode({'group': LONG})}",
    "/what-if", "/what-if?policy=x", "/lag", "/committers", "/runs", "/quarantine", "/attention", "/checks", "/report",
    "/review?show=orphans", "/review?show=kept", "/topic?topic=billing&at=1100&and=1200", "/client?client=x&at=1100",
    "/step?group=billing&topic=billing&partition=0&record=0:40", "/group?group=billing&at=1100&and=1200",
    "/sql", "/sql?statement=SELECT+1+AS+one,+2+AS+two&form=chart", "/sql?statement=SELECT+FROM",
    "/sql?statement=SELECT+*+FROM+groups",
)  # fmt: skip

ENTER = "\ue007"
TAB = "\ue004"
DOWN = "\ue015"
LEFT, RIGHT = "\ue012", "\ue014"
READOUT = "return document.querySelector('.readout').textContent"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("console") / "lake"
    of = [{"group_id": name, "topic": name, "partition": 0, "committed_offset": 7, "log_offset": 1} for name in GROUPS]
    steps = [commit(n, 1000 - n % 40, log_timestamp=1_000 + n, group_id="billing", topic="billing") for n in range(300)]
    first = [commit(1000 + n, 5, group_id=name, topic=name, log_timestamp=1_000) for n, name in enumerate(GROUPS[1:])]
    many = [{"group_id": f"g{n:03}", "member_count": 0, "state": "Empty"} for n in range(200)]
    named = [{"group_id": name, "member_count": 3, "state": "Stable"} for name in GROUPS]
    counted = {"in_flight_records": 1_234_567, "redelivered_records": 7, "max_delivery_count": 2, "log_offset": 1}
    shared = [
        {"group_id": LONG, "partition": n, "start_offset": 10**12, "log_timestamp": 1_000, **counted} for n in (0, 1)
    ]
    small_lake(path, groups=[*many, *named], offsets=of, offset_commits=[*steps, *first], share_partitions=shared)
    with served(path) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_pages_fit_the_screen_and_follow_the_rules_of_accessibility(
    address: str, window: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    window.show(width, dark=dark)
    for number, page in enumerate(PAGES):
        window.requests()
        window.open(address + page)
        window.await_true("return !document.querySelector('.skeleton')")
        expected = (
            address + page,
            f"{address}/static/",
            f"{address}/series?",
            f"{address}/attention",
            f"{address}/report/",
        )
        assert [url for url in window.requests() if not url.startswith(expected)] == []
        assert [message for message in window.messages() if "400 (Bad Request)" not in message] == []
        window.check(width, tmp_path / f"{number}.png")


@pytest.mark.parametrize(("dark", "paper"), [(False, False), (True, False), (True, True)])
def test_charts_of_the_report_have_the_colours_of_the_page_and_paper_is_light_and_complete(
    address: str, window: Browser, dark: bool, paper: bool
) -> None:
    window.show(700, dark=dark, paper=paper)
    window.open(f"{address}/report")
    window.await_true("return document.querySelector('section img')?.complete")
    light, dark_back = (255, 255, 255), (22, 24, 27)
    assert window.shades("section img")[0] == (dark_back if dark and not paper else light)
    if paper:
        beyond = "[...document.querySelectorAll('code, img')].filter(e => e.getBoundingClientRect().right > 700)"
        assert window.run(f"return {beyond}.map(element => element.textContent)") == []
    chart = window.run("return document.querySelector('section img').src")
    window.open(chart)
    assert window.messages() == []


def test_groups_are_found_with_the_keyboard_alone(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(address)
    window.press(TAB)
    assert window.run("return document.activeElement.textContent") == "Skip to the content"
    window.press("/", *"bill", ENTER)
    window.await_true("return new URL(location).search === '?q=bill' && document.readyState === 'complete'")
    window.run("document.querySelector('tbody a').focus()")
    window.press(ENTER)
    window.await_true("return document.querySelector('h1')?.textContent === 'Group billing'")
    window.press("/")
    window.await_true("return document.activeElement.id === 'search'")


def test_a_slider_edits_the_policy_and_shows_its_effect(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/what-if?" + urlencode({"policy": '[retention]\ndefault = "2d"\n'}))
    window.run("document.getElementById('days').focus()")
    window.press(RIGHT)
    window.await_true("return new URL(location).searchParams.get('policy').includes('default = \"3d\"')")
    window.await_true("return document.getElementById('command').textContent.includes('--retention=3d')")
    assert window.run("return document.getElementById('chosen-days').textContent") == "3"
    assert "4 offsets of 4 groups would expire now" in window.run("return document.getElementById('effect').innerText")


def test_a_result_of_the_search_is_opened_with_the_keyboard(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/?at=2000")
    window.press("/", *"bill")
    window.await_true("return document.querySelectorAll('#found [role=option]').length === 2")
    window.press(DOWN)
    assert window.run("return document.activeElement.getAttribute('aria-activedescendant')") == "found-0"
    window.press(ENTER)
    window.await_true("return location.pathname === '/group' && new URL(location).searchParams.get('at') === '2000'")


@pytest.mark.long
def test_a_page_does_not_load_itself_again_while_somebody_types(
    tmp_path: Path, window: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, run = threading.Event(), forked.run_in_background
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(forked, "run_in_background", lambda *given, **more: computed.wait(300) and run(*given, **more))
    small_lake(tmp_path / "lake")
    script = """
        const timers = setTimeout
        window.waits = 0
        window.setTimeout = (run, time) => { waits += time === 1000; return timers(run, time) }
        document.addEventListener("DOMContentLoaded", () => document.getElementById("search").focus())"""
    with served(tmp_path / "lake") as port, window.script_of_pages(script):
        window.open(f"http://127.0.0.1:{port}/checks")
        window.press(*"bill")
        window.await_true("return waits > 2")
        computed.set()
        window.await_true("return fetch('/checks').then(answer => !answer.headers.has('retry-after'))")
        assert window.run("return document.getElementById('search').value") == "bill"
        window.run("document.activeElement.blur()")
        window.await_true("return !document.body.dataset.againAfter")


def test_an_instant_is_chosen_on_the_slider_with_the_keyboard(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/group?group=billing")
    window.run("document.querySelector('input[type=range]').focus()")
    window.press(LEFT, LEFT, LEFT)
    chosen = window.run("return document.getElementById('at').value")
    assert chosen.startswith("1970-01-01T00:00:01.")
    assert window.run("return document.activeElement.getAttribute('aria-valuetext')") == chosen
    window.press(ENTER)
    window.await_true(f"return new URL(location).searchParams.get('at') === '{chosen}'")
    window.await_true("return document.querySelector('h1')?.textContent === 'Group billing'")
    assert window.run("return new URL(document.querySelector('nav.site a').href).searchParams.get('at')") == chosen


def test_a_step_of_a_chart_is_explained_with_the_keyboard_and_by_a_click(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/partition?group=billing&topic=billing&partition=0")
    window.await_true("return document.querySelector('.u-over')")
    window.run("document.querySelector('.plot').focus()")
    window.press(RIGHT, RIGHT)
    assert "1970-01-01T00:00:01.001Z: offset 999, rewind from 1,000" in window.run(READOUT)
    window.press(ENTER)
    window.await_true("return document.querySelector('h1')?.textContent === 'The offset moved back from 1,000 to 999'")
    assert window.run("return new URL(location).searchParams.get('record')") == "0:1"
    window.open(f"{address}/partition?group=billing&topic=billing&partition=0")
    window.await_true("return document.querySelector('.u-over')")
    window.click(".u-over")
    window.await_true("return location.pathname === '/step' && document.querySelector('h1') !== null")


def test_the_line_of_a_chart_continues_until_the_offset_is_deleted(window: Browser, tmp_path: Path) -> None:
    deleted = tombstone(2, log_timestamp=3_000, group_id="g")
    small_lake(tmp_path / "lake", offset_commits=[commit(1, 7, log_timestamp=1_000, group_id="g"), deleted])
    near = """
        const canvas = document.querySelector('.plot canvas'), context = canvas.getContext('2d')
        const tone = getComputedStyle(document.documentElement).getPropertyValue('--committed').trim()
        const wanted = tone.match(/[0-9a-f]{2}/gi).map(part => parseInt(part, 16))
        const {data} = context.getImageData(canvas.width / 2, 0, 1, canvas.height)
        const isNear = y => wanted.every((part, i) => Math.abs(data[4 * y + i] - part) < 60)
        return [...Array(canvas.height).keys()].some(isNear)
    """
    window.show(1280, dark=False)
    with served(tmp_path / "lake") as port:
        window.open(f"http://127.0.0.1:{port}/partition?group=g&topic=t&partition=0")
        window.await_true("return document.querySelector('.u-over')")
        assert window.run(near)


def test_the_period_of_charts_is_in_the_address(address: str, window: Browser) -> None:
    window.show(1280, dark=False)
    window.open(f"{address}/partition?group=billing&topic=billing&partition=0")
    window.await_true("return document.querySelector('.u-over')")
    window.run("document.querySelector('.plot').focus()")
    window.press("+")
    window.await_true("return document.querySelector('.summary').textContent.startsWith('150 commits')")
    assert window.run("return new URL(location).searchParams.get('since')") == "1970-01-01T00:00:01.075Z"
    assert window.run("return document.getElementById('since').value") == "1970-01-01T00:00:01.075Z"
    window.press("0")
    window.await_true("return document.querySelector('.summary').textContent.startsWith('300 commits')")
    assert window.run("return new URL(location).searchParams.get('since')") is None
    for commits in (150, 300):  # Back undoes one after the other
        window.run("history.back()")
        window.await_true(f"return document.querySelector('.summary').textContent.startsWith('{commits} commits')")
    assert window.run("return location.search") == "?group=billing&topic=billing&partition=0"
    assert window.run("return document.getElementById('since').value") == ""


def test_a_time_has_the_zone_of_the_browser_on_hover(address: str, window: Browser) -> None:
    window.open(f"{address}/group?group=billing")
    assert "1970" in window.run("return document.querySelector('tbody time').title")


def test_a_query_is_typed_with_completion_and_run_with_the_keyboard(address: str, window: Browser) -> None:
    window.open(f"{address}/sql")
    window.run("document.getElementById('statement').focus()")
    window.press(*"SELECT group_id FROM gro")
    assert window.run("return document.querySelector('[role=option][aria-selected=true]').textContent") == "group_id"
    window.press(DOWN, DOWN, DOWN)
    chosen = window.run("return document.querySelector('[role=option][aria-selected=true]').textContent")
    window.press(TAB)
    assert window.run("return document.getElementById('statement').value") == f"SELECT group_id FROM {chosen}"
    window.run("document.getElementById('statement').value = \"SELECT 'done' AS word\"")
    window.run("document.getElementById('statement').form.requestSubmit()")
    window.await_true("return document.querySelector('#result td')?.textContent === 'done'")
