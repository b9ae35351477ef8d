"""The link from the pages of the console to a dashboard in Grafana."""

from pathlib import Path
from urllib.parse import urlencode

import pytest

from offsetlake.errors import BadRequest
from offsetlake.web.console.dashboard import check_address
from support.command_line import Run
from support.console.served import Page, get, served
from support.queries.lakes import small_lake

DASHBOARD = "https://grafana.example/d/x?orgId=1&var-group={group}"
HOSTILE = "a&var-x=1\"'><script>#é {group}"


def test_pages_link_to_the_dashboard_of_their_group(tmp_path: Path) -> None:
    offset = {"group_id": HOSTILE, "topic": "t", "partition": 0, "committed_offset": 5, "log_offset": 1}
    small_lake(tmp_path / "lake", groups=[{"group_id": HOSTILE}], offsets=[offset])
    of_group = f"/group?{urlencode({'group': HOSTILE})}"
    with served(tmp_path / "lake", dashboard=DASHBOARD) as port:
        links = [Page(get(port, path).text).links.get("Grafana") for path in ("/runs", of_group, "/sign-in")]
    everything, group, before_signing_in = links
    assert everything == "https://grafana.example/d/x?orgId=1&var-group=%24__all"
    encoded = "a%26var-x%3D1%22%27%3E%3Cscript%3E%23%C3%A9%20%7Bgroup%7D"
    assert group == f"https://grafana.example/d/x?orgId=1&var-group={encoded}"
    assert before_signing_in is None
    with served(tmp_path / "lake") as port:
        assert "Grafana" not in get(port, of_group).text


@pytest.mark.parametrize("address", ["javascript:alert(1)", "grafana.example/d/x", "https:///d", "https://a/\n", ""])
def test_an_address_that_browsers_cannot_open_is_refused(address: str) -> None:
    with pytest.raises(BadRequest, match="Invalid address of the dashboard"):
        check_address(address)


def test_the_settings_have_the_address(tmp_path: Path, run: Run) -> None:
    small_lake(tmp_path / "lake")
    (tmp_path / "settings.toml").write_text('lake = "lake"\n[console]\ngrafana = "javascript:alert(1)"\n')
    code, _, err = run("console", "--config", "settings.toml", "--http", "127.0.0.1:0")
    assert (code, "Invalid address of the dashboard 'javascript:alert(1)'" in err) == (2, True)
