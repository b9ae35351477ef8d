"""The pages of the console in tests wait for their answers, however busy the machine is."""

from collections.abc import Iterator

import pytest

from offsetlake.web.console import answer_cache
from offsetlake.web.console.changing import workbench
from support.console.browser import Browser, browser


@pytest.fixture(scope="session", autouse=True)
def waiting_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_cache, "MAX_WAIT_SECONDS", 300.0)
        patch.setattr(workbench, "MAX_CHECK_SECONDS", 300.0)
        yield


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
