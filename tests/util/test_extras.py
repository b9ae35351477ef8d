"""The modules of extras are those that `pyproject.toml` installs with them; a missing one is named with its extra."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from offsetlake.errors import NotInstalled
from offsetlake.util.extras import EXTRAS, require, requires

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement, maxsplit=1)[0] for requirement in requirements}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_its_modules(extra: str) -> None:
    known = packages_distributions()
    named = {known[module][0].replace("_", "-") for module in EXTRAS[extra]}
    assert named <= distributions(PROJECT["optional-dependencies"][extra])
    assert not named & distributions(PROJECT["dependencies"])
    require(extra)


def test_all_extras_are_declared() -> None:
    assert PROJECT["optional-dependencies"].keys() == {*EXTRAS, "all", "build", "dev"}
    assert PROJECT["optional-dependencies"]["all"] == [f"offsetlake[{','.join(EXTRAS)}]"]


def test_every_requirement_has_a_lower_and_an_upper_bound() -> None:
    every = [*PROJECT["dependencies"], *(each for extra in EXTRAS for each in PROJECT["optional-dependencies"][extra])]
    assert [each for each in every if not re.fullmatch(r"[\w-]+(\[\w+\])?>=[\d.]+,<[\d.]+", each)] == []


def test_a_missing_module_is_named_before_the_function_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setitem(EXTRAS, "serve", ("json", "nowhere"))
    with pytest.raises(NotInstalled, match=r"requires nowhere, .* `pip install 'offsetlake\[serve\]'`"):
        requires("serve")(lambda: called.append(1))()
    assert not called
