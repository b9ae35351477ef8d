"""Libraries that a process can do without are not imported, and can be imported later."""

import subprocess
import sys
from importlib import import_module

import pytest

from offsetlake.util.unused_libraries import absent

LATER = """
import sys
from offsetlake.util.unused_libraries import load_arrow
load_arrow()
import pyarrow as pa
import pyarrow.dataset
assert pa.array(["a", None]).to_pylist() == ["a", None]
print("pandas" in sys.modules)
print(pa.table({"a": [1, 2]}).to_pandas()["a"].sum(), pa.array(sys.modules["pandas"].Series([1.0, None])).null_count)
"""
UNUSED = "{'great_expectations', 'matplotlib', 'numba', 'pandas', 'pyspark'}"
STARTS = {
    "the command line": "from offsetlake.cli.main import run; run(['audit', '--help'])",
    "the console": (
        "from offsetlake.util.unused_libraries import load_arrow; load_arrow(); import offsetlake.web.console.server"
    ),
    "its processes in the background": "import offsetlake.web.console.preloaded",
}


def test_absent_modules_cannot_be_imported_inside_the_block() -> None:
    sys.modules.pop("colorsys", None)
    with absent("colorsys"), pytest.raises(ModuleNotFoundError, match="does not import colorsys"):
        import_module("colorsys")
    assert import_module("colorsys").rgb_to_hls(0, 0, 0) == (0, 0, 0)


def test_arrow_finds_pandas_when_it_has_to_convert_to_its_types() -> None:
    assert subprocess.check_output([sys.executable, "-c", LATER], text=True).split() == ["False", "3", "1"]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_programs_start_without_what_they_do_not_use(start: str) -> None:
    program = f"{start}\nimport sys; print('loaded', sorted(sys.modules.keys() & {UNUSED}))"
    last = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()[-1]
    assert last == "loaded []"
