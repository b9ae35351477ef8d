"""Real consumers of all kinds read records while the serving process of their groups is killed, and members are disturbed.

python benchmarks/clients.py                    a million records, 20 consumers, 50 kills; writes benchmarks/results/clients.md
python benchmarks/clients.py --records 20000 --kills 4 --seconds 40    a shorter run; exits with 1 after an error
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]

from support.clients.fleet import KINDS  # noqa: E402 - sys.path is set above
from support.clients.results import Plan, Results  # noqa: E402
from support.clients.run import Run  # noqa: E402

MEMBERS = {
    "java-eager": 1, "java-eager-static": 1, "librdkafka-eager": 1, "aiokafka": 2, "kafka-python": 1, "console": 1,
    "java-cooperative": 1, "java-cooperative-static": 1, "librdkafka-cooperative": 2,
    "java-consumer": 1, "java-consumer-static": 1, "librdkafka-consumer": 2,
    "java-consumer-regex": 1, "librdkafka-consumer-regex": 1, "java-regex": 1, "pipeline": 2,
}  # fmt: skip


def rows(results: Results) -> Iterator[tuple[str, ...]]:
    for group in results.groups:
        waits = [wait.ms / 1000 for wait in results.waits(group)]
        kinds = sorted({kind for kind in results.plan.kinds if KINDS[kind].group == group})
        yield (
            group, ", ".join(kinds), f"{sum(results.ends.values()):,}", str(len(results.missing(group))),
            f"{results.repeated(group):,}", f"{statistics.median(waits):.2f}", f"{percentile(waits, 99):.1f}", f"{waits[0]:.1f}",
            f"{max(map(results.served_ms, results.waits(group))) / 1000:.1f}",
        )  # fmt: skip


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def table(results: Results) -> str:
    plan, down = results.plan, [(end - start) / 1000 for start, end in results.outages]
    heads = (
        "group",
        "members",
        "records",
        "ranges not read",
        "read again",
        "median wait, s",
        "p99, s",
        "longest, s",
        "longest with the process, s",
    )
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows(results))]
    back = Counter(row.in_generation for row in results.moved_back)
    often = Counter(results.results.values())
    produced = sum(often.values())
    events = ", ".join(f"{name} {count}" for name, count in sorted(results.events.items()))
    tools = ", ".join(f"{name} {count}" for name, count in sorted(results.tools.items()))
    return "\n".join(
        [
            f"{plan.records:,} records in {results.seconds:.0f} s, {len(plan.kinds)} consumers, {len(down)} kills of the process.",
            f"Events: {events}. Group tool: {tools}.",
            f"Without the process: {sum(down):.0f} s; each time {min(down):.1f} to {max(down):.1f} s.",
            f"Session timeout: {plan.session_ms / 1000:.0f} s.",
            "",
            *lines,
            "",
            f"{results.commits:,} committed offsets; {back[True]} moved back within a generation, {back[False]} between two.",
            f"Results of the pipeline: {often[1]:,} once, {produced - often[1]} more often, {plan.records - produced} not at all.",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=900, help="how long records are produced")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--member-events", type=int, default=60)
    parser.add_argument("--session", type=int, default=20, help="session timeout in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder that keeps the outputs")
    given = parser.parse_args()
    kinds = [name for name, count in MEMBERS.items() for _ in range(count)]
    plan = Plan(given.records, given.seconds, given.kills, kinds, given.member_events, 1000 * given.session, given.seed)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        results = Run(folder, plan, lambda event: print(f"{time.monotonic() - started:6.1f} {event}", flush=True)).run()
    text = table(results)
    print(text)
    if given.records == parser.get_default("records"):
        (ROOT / "benchmarks" / "results" / "clients.md").write_text(
            f"# Real clients while the process is killed\n\n{text}\n"
        )
    for error in results.wrong():
        print("WRONG:", error)
    return bool(results.wrong())


if __name__ == "__main__":
    sys.exit(main())
