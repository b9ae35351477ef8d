"""After SIGKILL, acknowledged commits are served, and no request is applied in part."""

from pathlib import Path

import pytest

from support.serve.kill_rounds import killed_repeatedly

ROUNDS = 3  # more of them: python -m support.serve.kill_rounds FOLDER ROUNDS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("flush", ["always", "interval"])
def test_acknowledged_commits_survive_kills_under_load(tmp_path: Path, flush: str) -> None:
    assert killed_repeatedly(tmp_path, ROUNDS, seed=5, flush=flush) > ROUNDS * 10
