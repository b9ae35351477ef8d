"""What was acknowledged is there after SIGKILL, and no request is applied in part."""

from pathlib import Path

import pytest

from serve.killing import killed_again_and_again

ROUNDS = 5  # hundreds of them take minutes: python -m serve.killing FOLDER ROUNDS


@pytest.mark.slow
def test_acknowledged_commits_survive_kills_under_load(tmp_path: Path) -> None:
    assert killed_again_and_again(tmp_path, ROUNDS, seed=5) > ROUNDS * 10
