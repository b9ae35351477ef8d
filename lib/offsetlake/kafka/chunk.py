"""Decodes chunks of a log into offset commits, other records and audit events, in one pass."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlake.kafka.audit import events
from offsetlake.kafka.batches.reader import CorruptRegion, Records
from offsetlake.kafka.commits import decoding
from offsetlake.kafka.commits.superseded import superseded
from offsetlake.kafka.records import other_records
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC

COMMITS = pa.schema([*decoding.SCHEMA, pa.field("superseded", pa.bool_())])
OTHERS = other_records.SCHEMA
AUDIT_EVENTS = events.SCHEMA


class Chunk(NamedTuple):
    """The decoded rows of a chunk, with the schemas COMMITS, OTHERS and AUDIT_EVENTS."""

    commits: pa.RecordBatch
    others: pa.RecordBatch
    audit_events: pa.RecordBatch


def decode_chunk(topic: str, records: Records, corrupt: list[CorruptRegion]) -> Chunk:
    """Return the rows of consecutive records of a partition of a log topic, and of its corrupt regions."""
    is_commit = np.zeros(len(records), np.bool_)
    if topic == OFFSETS_TOPIC:
        is_commit = np.isin(records.record_types(), decoding.RECORD_TYPES) & ~records.control
    commits = records.where(is_commit)
    rows, undecodable = decoding.decode_offset_commits(commits)
    decoded = np.ones(len(commits), np.bool_)
    decoded[list(undecodable)] = False
    final = decoded & ((commits.producer_id == -1) | (commits.value_length < 0))
    # Whether a commit in parts takes effect depends on all its parts, some of which may be in other chunks.
    final[np.flatnonzero(decoded)[rows["commit_id"].is_valid().to_numpy(zero_copy_only=False)]] = False
    is_superseded = pa.array(superseded(commits, final)[decoded])
    others = other_records.decode_others(topic, records.where(~is_commit), corrupt, commits, undecodable)
    no_records = commits  # other topics contain no offset commits, and no audit events
    audit_events = events.read_audit_events(records if topic == OFFSETS_TOPIC else no_records)
    return Chunk(pa.RecordBatch.from_arrays([*rows.columns, is_superseded], schema=COMMITS), others, audit_events)
