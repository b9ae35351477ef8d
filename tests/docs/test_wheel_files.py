"""The wheel contains the program and its data, without the pages beside the code."""

from hatchling.builders.wheel import WheelBuilder

from support.documents import ROOT


def test_the_wheel_has_no_pages() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"offsetlake/rules/reduction.py", "offsetlake/web/console/static/console.css"} <= files
    assert {path for path in files if path.endswith(".md")} == set()
