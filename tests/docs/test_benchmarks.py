"""Benchmarks run by hand: each finds what it imports, and each file of results has its script."""

import subprocess
import sys

import pytest

from support.documents import ROOT

FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_each_result_is_of_a_script() -> None:
    assert {path.stem.partition("-")[0] for path in (FOLDER / "results").iterdir()} - {*SCRIPTS} == set()


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_imported(script: str) -> None:
    code = f"import sys; sys.path[0] = {str(FOLDER)!r}; import {script}"
    search = ROOT / "lib", ROOT / "tests"  # which some scripts expect on PYTHONPATH
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(map(str, search))})
