"""Start of the serving process with ten million offsets beside a Kafka 4.2 broker, in one run.

python benchmarks/serving.py                 about three minutes on two cores; prints a table and writes
                                             it to benchmarks/results/serving.md
python benchmarks/serving.py --entries 1e6   only a million offsets, without writing the table

benchmarks/traffic.py measures requests.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lib")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from common.loading import bench_loading  # noqa: E402
from support.broker import kafka_tools  # noqa: E402 - sys.path is set above

PRODUCTION_JVM_FLAGS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""The flags that kafka-run-class.sh passes to a broker, except for the heap size."""

Row = tuple[str, str, str, str]


def table(rows: Sequence[Row]) -> str:
    header = ("operation", "offsetlake", "Kafka 4.2.0", "ratio")
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * 4, *rows)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=float)
    arguments = parser.parse_args()
    kafka_tools.JVM_FLAGS = ("-Xms6g", "-Xmx6g", *PRODUCTION_JVM_FLAGS)
    with tempfile.TemporaryDirectory() as folder:
        rows = [*bench_loading(Path(folder), int(arguments.entries or 10_000_000))]
    sys.stdout.write(f"{table(rows)}\n")
    if arguments.entries is None:
        text = f"# Serving\n\n`make bench`\n\n{table(rows)}\n"
        (ROOT / "benchmarks" / "results" / "serving.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
