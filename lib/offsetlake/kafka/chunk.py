"""Decodes chunks of a log into offset commits, other records and audit events, in one pass."""

from collections.abc import Container
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlake.kafka.audit import events
from offsetlake.kafka.batches.reader import CorruptRegion, Records
from offsetlake.kafka.commits import decoding
from offsetlake.kafka.commits.steps import Steps, find_steps
from offsetlake.kafka.records import other_records
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC

COMMITS = pa.schema([*decoding.SCHEMA, pa.field("superseded", pa.bool_())])
OTHERS = other_records.SCHEMA
AUDIT_EVENTS = events.SCHEMA


class Chunk(NamedTuple):
    """The decoded rows of a chunk, with the schemas COMMITS, OTHERS and AUDIT_EVENTS, and the steps of the commits."""

    commits: pa.RecordBatch
    others: pa.RecordBatch
    audit_events: pa.RecordBatch
    steps: Steps


def decode_chunk(topic: str, records: Records, corrupt: list[CorruptRegion], before: Steps | None = None) -> Chunk:
    """Return the rows of consecutive records of a partition of a log topic, and of its corrupt regions.

    `before` are the steps of the chunk directly before; they are complete afterwards.
    """
    is_commit = np.zeros(len(records), np.bool_)
    if topic == OFFSETS_TOPIC:
        is_commit = np.isin(records.record_types(), decoding.RECORD_TYPES) & ~records.control
    commits = records.where(is_commit)
    rows, undecodable = decoding.decode_offset_commits(commits)
    steps = _steps(commits, rows, undecodable, before)
    others = other_records.decode_others(topic, records.where(~is_commit), corrupt, commits, undecodable)
    no_records = commits  # other topics contain no offset commits, and no audit events
    audit_events = events.read_audit_events(records if topic == OFFSETS_TOPIC else no_records)
    commit_rows = pa.RecordBatch.from_arrays([*rows.columns, pa.array(steps.superseded)], schema=COMMITS)
    return Chunk(commit_rows, others, audit_events, steps)


def _steps(commits: Records, rows: pa.RecordBatch, undecodable: Container[int], before: Steps | None) -> Steps:
    """Return the steps of the decodable commits, which `rows` has."""
    if rows.num_rows < len(commits):
        commits = commits.where(np.array([row not in undecodable for row in range(len(commits))]))
    # Whether a commit in parts takes effect depends on all its parts, some of which may be in other chunks.
    is_part = rows["commit_id"].is_valid().to_numpy(zero_copy_only=False)
    final = ((commits.producer_id == -1) | (commits.value_length < 0)) & ~is_part
    return find_steps(commits, final, rows["committed_offset"].fill_null(0).to_numpy(), before)
