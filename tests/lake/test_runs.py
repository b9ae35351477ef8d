"""Plans and rows of runs: what is written is read again, also if another version of the program wrote it."""

from pathlib import Path

import pytest

from offsetlake.errors import LakeUnusable
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.job import ExpirePlan
from offsetlake.rules.policy import Override, RetentionPolicy
from support.lakes import new_lake

PLANS: list[tuple[str, plans.Plan]] = [
    ("emit", plans.Plan(notes=("a note",))),
    (
        "ingest",
        plans.IngestPlan(
            log="log",
            log_identity=None,
            ranges="{}",
            gaps="{}",
            positions=(("t", 0, 7),),
            log_ends=(("t", 0, 1, 2, 3),),
        ),
    ),
    ("compact", plans.CompactPlan(from_run=1, through_run=2, versions={"offsets": 3})),
    ("rebuild", plans.RebuildPlan(tables=("offsets",), log_partition=None, versions={"offsets": 3})),
    (
        "expire",
        ExpirePlan(
            now=1, policy=RetentionPolicy(7, (Override("g", "*", 9),)), versions={}, deleted_topics=("gone", "too")
        ),
    ),
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return new_lake(tmp_path / "lake")


@pytest.mark.parametrize(("job", "plan"), PLANS, ids=[job for job, _ in PLANS])
def test_plan_that_was_written_is_read_again(lake: Lake, job: str, plan: plans.Plan) -> None:
    begun = current_run.begin(lake, job, plan)
    assert current_run.unfinished_plan(lake, job, type(plan)) == begun
    assert current_run.unfinished_plan(lake, job, plans.Plan) == plans.Plan(
        run_id=1, started_at=begun.started_at, notes=plan.notes
    )


def test_unknown_fields_of_a_newer_program_are_ignored(lake: Lake) -> None:
    lake.files.write("plan-emit.json", {"run_id": 4, "started_at": 1, "notes": ["n"], "colour": "green"})
    assert current_run.unfinished_plan(lake, "emit", plans.Plan) == plans.Plan(run_id=4, started_at=1, notes=("n",))


@pytest.mark.parametrize("content", [{"run_id": 4, "notes": []}, {"run_id": 4, "policy": {}}, {"policy": 1}])
def test_incomplete_plan_is_refused_with_its_file(lake: Lake, content: dict[str, object]) -> None:
    lake.files.write("plan-expire.json", content)
    with pytest.raises(LakeUnusable, match=r"plan-expire.json is not a plan of expire .*remove it"):
        current_run.unfinished_plan(lake, "expire", ExpirePlan)


def test_finished_run_is_the_last_run_and_has_no_plan(lake: Lake) -> None:
    plan = current_run.begin(lake, "ingest", PLANS[1][1])
    ingested = runs.Ingested(
        "cluster",
        (runs.LogRange("t", 0, 1, 2),),
        (runs.IngestPosition("t", 0, 2, None),),
        (runs.LogRange("t", 0, 0, 1),),
    )
    report = current_run.finish(
        lake, "ingest", plan, outcome="done", counts={"offsets": 2}, log="log", ingested=ingested
    )
    last = runs.last_run(lake, "ingest")
    assert last is not None
    assert report == runs.FinishedRun(**{**vars(last), "versions": lake.versions()})
    assert (last.positions, last.gaps, last.counts) == (ingested.positions, ingested.gaps, {"offsets": 2})
    assert current_run.unfinished_plan(lake, "ingest", plans.IngestPlan) is None
    assert not [*lake.location.path.glob("plan-*")]
