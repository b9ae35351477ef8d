"""What reads a log is compiled once after an installation, with a line that says so, and nothing is left to compile."""

import subprocess
import sys
from pathlib import Path

import pytest

from offsetlake.log.compiling import COMPILING
from support.serve.serving import Serving

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[1] / "fixtures"
READS = """
import sys
from pathlib import Path

from numba.core import event

from offsetlake.log.address import LogAddress
from offsetlake.log.reading import decode


class Compiled(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].py_func, event.data["args"])

    def on_end(self, event):
        pass


event.register("numba:compile", Compiled())
for folder in sys.argv[1:]:
    log = LogAddress(folder=Path(folder))
    for where, offsets in log.describe().ranges.items():
        for piece, found in log.fetch(log.slices(where, offsets)):
            decode(piece, found)
"""


@pytest.mark.long
def test_functions_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "log").mkdir()
    with Serving(tmp_path / "lake", tmp_path / "log") as serving:
        pass
    assert [COMPILING in line for line in serving.said].count(True) == 1, serving.said
    logs = [str(FIXTURES / name) for name in ("broker-log", "real-log", "every-record-type")]
    for command in (["-m", "offsetlake.log.compiling"], ["-c", READS, *logs]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")
