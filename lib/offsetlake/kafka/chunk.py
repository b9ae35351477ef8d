"""A chunk of the log, decoded once: offset commits as columns, the rows of all else, and who did what."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlake.kafka.audit import events as audit_events
from offsetlake.kafka.batches.reader import CorruptRegion, Records
from offsetlake.kafka.commits import decoding as offset_commits
from offsetlake.kafka.commits.superseded import superseded
from offsetlake.kafka.records import other_records
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC

COMMITS = pa.schema([*offset_commits.SCHEMA, pa.field("superseded", pa.bool_())])
OTHERS = other_records.SCHEMA
AUDIT_EVENTS = audit_events.SCHEMA


class Chunk(NamedTuple):
    """The rows of a chunk: `commits` by schema COMMITS, `others` by OTHERS, `audit_events` by AUDIT_EVENTS."""

    commits: pa.RecordBatch
    others: pa.RecordBatch
    audit_events: pa.RecordBatch


def decode_chunk(topic: str, records: Records, corrupt: list[CorruptRegion]) -> Chunk:
    """Decode records that stand one behind the other in a partition of a log topic, and tell of corrupt regions."""
    is_commit = np.zeros(len(records), np.bool_)
    if topic == OFFSETS_TOPIC:
        is_commit = np.isin(records.record_types(), offset_commits.RECORD_TYPES) & ~records.control
    commits = records.where(is_commit)
    rows, undecodable = offset_commits.decode_offset_commits(commits)
    good = np.ones(len(commits), np.bool_)
    good[list(undecodable)] = False
    decided = good & ((commits.producer_id == -1) | (commits.value_length < 0))
    # What becomes of a part is known when all parts of its commit are: it may lie in another chunk.
    decided[np.flatnonzero(good)[rows["commit_id"].is_valid().to_numpy(zero_copy_only=False)]] = False
    marks = pa.array(superseded(commits, decided)[good])
    others = other_records.decode_others(topic, records.where(~is_commit), corrupt, commits, undecodable)
    done = audit_events.read_audit_events(
        records if topic == OFFSETS_TOPIC else commits
    )  # of another topic there are none
    return Chunk(pa.RecordBatch.from_arrays([*rows.columns, marks], schema=COMMITS), others, done)
