"""Fixtures of the tests of the DAGs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.dags.airflow_runs import Airflow, new_home, program


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Airflow whose database is ready."""
    folder = tmp_path_factory.mktemp("airflow")
    Airflow(folder / "home", folder).run("airflow", "db", "migrate")
    return folder / "home"


@pytest.fixture
def airflow(migrated: Path, tmp_path: Path) -> Callable[..., Airflow]:
    """Makes an Airflow of that home, whose `offsetlake` is a script of this folder; `variables` are beside."""

    def made(script: str, name: str = "airflow", **variables: str) -> Airflow:
        folder = tmp_path / name
        folder.mkdir()
        return Airflow(new_home(migrated, folder / "home"), program(folder / "programs", script), variables)

    return made
