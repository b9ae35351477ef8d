"""A substitute for `offsetlake` that prints the output of a job immediately and records its arguments.

The environment controls it: RECORD is the file of the recorded commands, one JSON object per line; FAILING is the suite
of checks that fails; EXIT_CODE is the exit code of every other command; HANGING is set if transactions hang. With the
configuration `/for-ever` it never exits.
"""

import json
import os
import signal
import sys
from pathlib import Path

RUNS = {"ingest": 11, "compact": 12, "expire": 13, "emit": 14, "maintain": 15}
VERSIONS = ("offset_commits", "transaction_markers", "group_records", "share_state_records", "quarantine", "offsets",
            "pending_offsets", "groups", "group_members", "tombstones", "alterations", "runs",
            "audit_events", "share_partitions")  # fmt: skip
POSITIONS = [{"topic": "__consumer_offsets", "partition": 3, "position": 55, "tail_checksum": None}]

words = sys.argv[1:]
environment = {name: value for name, value in os.environ.items() if name.startswith("OFFSETLAKE_")}
with Path(os.environ["RECORD"]).open("a", encoding="utf-8") as record:
    record.write(json.dumps({"words": words, "environment": environment}) + "\n")
sys.stderr.write(f"    0.1 s  at work on {words[0]}\n")
while environment.get("OFFSETLAKE_CONFIG") == "/for-ever":
    signal.pause()
if words[0] == "check":
    failed = f"--suite={os.environ.get('FAILING')}" in words
    row = {"suite": "after_compact", "expectation": "keys are unique", "table": "offsets", "version": 7,
           "success": not failed, "observed": "group billing, topic orders, partition 3: 2 rows"}  # fmt: skip
    sys.stdout.write(json.dumps(row) + "\n")
    if failed:
        sys.stderr.write(
            "error: 1 of 1 expectation failed. after_compact: keys are unique; in offsets at version 3: group billing\n"
        )
        sys.exit(9)
elif "EXIT_CODE" in os.environ:
    sys.stderr.write("error: as asked\n")
    sys.exit(int(os.environ["EXIT_CODE"]))
elif words[0] == "transactions" and "HANGING" in os.environ:
    for producer_id in range(7):
        sys.stdout.write(json.dumps({"producer_id": producer_id, "groups": ["ledger"]}) + "\n")
elif "--what-if" in words:
    sys.stdout.write("group_id  now\nbilling     6\n")
elif words[0] in RUNS:
    versions = {table: 20 + number for number, table in enumerate(VERSIONS)}
    read = words[0] in ("ingest", "compact")
    row = {"run_id": RUNS[words[0]], "job": words[0], "outcome": "done", "positions": POSITIONS if read else None}
    sys.stdout.write(json.dumps({**row, "run_id": 1, "outcome": "nothing new", "versions": versions}) + "\n")
    sys.stdout.write(json.dumps({**row, "versions": versions}) + "\n")
