"""The worked examples of docs/audits.md, run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest

from audit.lakes import Row, commit, small_lake
from command_line import Run
from e2e.in_process import InProcess
from e2e.lakes import cycle
from offsetlake.lake.lake import Lake
from offsetlake.lake.views import views
from offsetlake.times import to_ms

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "audits.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```\n\$ offsetlake (.+)\n((?:.*\n)+?)```$", TEXT, re.MULTILINE)
START = to_ms("2026-01-31T14:00")


def example(path: Path) -> Lake:
    """Two consumers on one partition of billing, of which one says who it is; search stands still meanwhile."""

    def row(group_id: str, partition: int, log_offset: int, second: int, value: int) -> Row:
        at = START + second * 1000
        of_row = {"group_id": group_id, "topic": "orders", "partition": partition}
        return {**commit(log_offset, value, log_timestamp=at, commit_timestamp=at), **of_row}

    in_turns = enumerate(((0, 1000), (5, 1040), (6, 960), (10, 1080), (11, 990), (15, 1120)), start=1)
    commits = [
        row("search", 2, 0, -10 * 86_400, 70),
        *(row("billing", 0, at, second, value) for at, (second, value) in in_turns),
        row("billing", 1, 7, 20, 900),
        *(row("search", 1, 8 + at, 5 * at, 500) for at in range(4)),
    ]
    by = {"group_id": "billing", "principal": "User:carol", "client_id": "backfill", "address": "10.0.0.8:51234"}
    acts = [
        {**by, "log_offset": at, "last_log_offset": at, "log_timestamp": START + second * 1000}
        for at, second in ((3, 6), (5, 11))
    ]
    newest = {(each["group_id"], each["partition"]): each for each in commits}
    columns = (
        "group_id", "topic", "partition", "committed_offset", "commit_timestamp", "log_offset", "log_timestamp",
    )  # fmt: skip
    return small_lake(
        path,
        offset_commits=commits,
        acts=acts,
        offsets=[{name: each[name] for name in columns} for each in newest.values()],
        groups=[{"group_id": "billing"}, {"group_id": "search"}],
    )


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both lakes, made once."""
    folder = tmp_path_factory.mktemp("docs")
    cycle(InProcess(), Lake.create(folder / "lake"), ROOT / "tests" / "fixtures" / "broker-log")
    example(folder / "example")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_example(run: Run, lakes: Path, tmp_path: Path, command: str, output: str) -> None:
    for lake in lakes.iterdir():
        (tmp_path / lake.name).symlink_to(lake)
    code, out, err = run(*shlex.split(command))
    assert (code, err) == (0, "")
    assert "".join(f"{line.rstrip()}\n" for line in out.splitlines()) == output


def test_every_view_has_an_example() -> None:
    shown = " ".join(command for command, _ in EXAMPLES)
    assert [view for view in views() if f"### {view}\n" not in TEXT or view not in shown] == []
