"""Runs the test suites of Kafka clients in Go, which make builds from tests/support/go, over a bootstrap server."""

import os
import re
import subprocess
from pathlib import Path

from support.serve.forwarded_ports import forwarded

TOOLS = Path(__file__).parents[3] / ".tools"
KGO, KAFKA_GO = TOOLS / "kgo.test", TOOLS / "kafka-go.test"

_KAFKA_GO_PORT = 9092
_MINUTES = 8
_PASSED = re.compile(r"^ *--- PASS: (\S+) ", re.MULTILINE)


def kgo(bootstrap: str, tests: str, records: int) -> set[str]:
    """Run tests of franz-go; return the names of those that passed, and raise AssertionError if one failed.

    `tests` is a regular expression of names, and `records` the number of records that each chain of groups copies.
    """
    settings = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
        "KGO_LOG_LEVEL": "none",
    }
    return _passed(KGO, tests, settings)


def kafka_go(bootstrap: str, tests: str) -> set[str]:
    """Run tests of kafka-go, as `kgo`; they connect to port 9092."""
    with forwarded(_KAFKA_GO_PORT, bootstrap):
        return _passed(KAFKA_GO, tests, {})


def _passed(binary: Path, tests: str, settings: dict[str, str]) -> set[str]:
    command = [str(binary), "-test.v", f"-test.run=^({tests})$", f"-test.timeout={_MINUTES}m"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {*_PASSED.findall(done.stdout)}
