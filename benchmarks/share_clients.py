"""Real share consumers of a cluster without share groups, while the process that serves them is killed.

python benchmarks/share_clients.py                    200,000 records, 10 consumers, 30 kills; writes benchmarks/results/share_clients.md
python benchmarks/share_clients.py --records 10000 --kills 5 --seconds 60    a shorter run
python benchmarks/share_clients.py --cluster 3.9.1    over a broker of Kafka 3.9; needs `make .jars/oldest/.ready`

Two groups read all records. A run ends with 1 if a record was not completed exactly once, if a successful
acknowledgement is not in the log, or if the tables differ from the log or from what the consumers wrote.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from support.broker.kafka_tools import JARS, OLDER  # noqa: E402 - sys.path is set above
from support.share_clients.fleet import KINDS  # noqa: E402
from support.share_clients.results import SharePlan, ShareResults  # noqa: E402
from support.share_clients.run import ShareRun  # noqa: E402

MEMBERS = (
    "java-4.1-explicit", "java-4.2-implicit", "java-4.2-limit", "console", "java-4.2-explicit", "java-4.1-implicit",
    "java-4.2-explicit", "java-4.2-both", "java-4.2-limit", "java-4.2-implicit",
)  # fmt: skip
HEADS = (
    "group", "members", "records", "accepted", "rejected", "archived after 5 deliveries", "open", "deliveries",
    "acknowledgements that had to be in the log",
)  # fmt: skip


def rows(results: ShareResults) -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each group."""
    for group in results.plan.groups:
        outcomes = results.outcomes(group)
        members = Counter(name for name in results.plan.kinds if KINDS[name].group == group)
        yield (
            group, ", ".join(f"{count} {name}" for name, count in members.items()), f"{sum(results.ends.values()):,}",
            *(f"{outcomes[name]:,}" for name in ("accepted", "rejected", "limit", "open")),
            f"{results.deliveries(group):,}", f"{results.promises(group):,}",
        )  # fmt: skip


def table(results: ShareResults) -> str:
    """Return what a run has shown, in Markdown."""
    plan, down = results.plan, [(end - start) / 1000 for start, end in results.outages]
    events = ", ".join(f"{name} {count}" for name, count in sorted(results.events.items()))
    tools = ", ".join(f"{name} {count}" for name, count in sorted(results.tools.items()))
    lines = ["| " + " | ".join(row) + " |" for row in (HEADS, ["---"] * len(HEADS), *rows(results))]
    errors = sum((each.results for each in results.consumed.values()), Counter[str]())
    late = ", ".join(f"{name} {count:,}" for name, count in sorted(errors.items()))
    verdict = f"FAILED, {len(results.wrong)} errors" if results.wrong else "passed"
    return "\n".join(
        [
            f"{plan.records:,} records in {results.seconds:.0f} s, {len(plan.kinds)} consumers, {len(down)} kills.",
            f"One broker {plan.cluster_version} without share groups; locks of {plan.lock_ms / 1000:.0f} s.",
            f"Events: {events}. Without the process: {sum(down):.0f} s. kafka-share-groups: {tools}.",
            "",
            *lines,
            "",
            f"Acknowledged records of the Java consumers by result: {late}. A result is late if the lock may have expired.",
            f"{results.compared} rows of share_partitions compared, after a kill in the middle and at the end.",
            f"Verdict: {verdict}.",
        ]
    )


def main() -> int:
    """Run, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=400, help="how long records are produced")
    parser.add_argument("--consumers", type=int, choices=range(1, len(MEMBERS) + 1), default=len(MEMBERS))
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--member-events", type=int, default=40, help="how often a consumer is killed or paused")
    parser.add_argument("--cluster", choices=[*JARS], default=OLDER, help="the version of the broker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder that keeps the outputs")
    given = parser.parse_args()
    kinds = MEMBERS[: given.consumers]
    plan = SharePlan(
        given.records,
        given.seconds,
        given.kills,
        kinds,
        given.member_events,
        seed=given.seed,
        cluster_version=given.cluster,
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        run = ShareRun(folder, plan, lambda event: print(f"{time.monotonic() - started:6.1f} {event}", flush=True))
        results = run.run()
    text = table(results)
    print(text)
    if given.records >= parser.get_default("records"):
        name, option = "share_clients.md", ""
        if given.cluster != OLDER:
            name, option = f"share_clients-{given.cluster}.md", f" --cluster {given.cluster}"
        head = f"# Share consumers while the process is killed\n\n`python benchmarks/share_clients.py{option}`"
        (ROOT / "benchmarks" / "results" / name).write_text(f"{head}\n\n{text}\n")
    for error in results.wrong[:50]:
        print("WRONG:", error)
    return bool(results.wrong)


if __name__ == "__main__":
    sys.exit(main())
