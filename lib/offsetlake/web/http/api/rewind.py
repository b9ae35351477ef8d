"""`POST /v1/rewind`: sets offsets of a group while its members run."""

from fastapi import Request

from offsetlake.auth.acl import ADMIN
from offsetlake.kafka.audit import headers as audit_headers
from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.core import Core
from offsetlake.serve.writes.conditional import read_batch
from offsetlake.util.times import now_ms
from offsetlake.web.http.access import audit_headers_of, client_of
from offsetlake.web.http.api.request_models import RewindBody
from offsetlake.web.http.problems import Problem, problem_of_error_code


async def rewind(core: Core, request: Request, body: RewindBody) -> dict[str, int]:
    """Set offsets of a group while its members run, all in one record batch or none.

    The response is sent when members have given up the partitions and the offsets are written.
    """
    client, group = client_of(request, ADMIN, body.group), body.group.encode()
    if core.store.group(group) is None:
        raise Problem("group-not-found", f"Group {body.group!r} does not exist.")
    for offset in body.offsets:
        if not core.topics.has_partition(offset.topic.encode(), offset.partition):
            raise problem_of_error_code(UNKNOWN_TOPIC_OR_PARTITION, body.group)
    now = now_ms()
    records = (
        (
            offset_commit_key(group, offset.topic.encode()) + offset.partition.to_bytes(4),
            offset_commit_value(
                offset.offset,
                -1 if offset.leader_epoch is None else offset.leader_epoch,
                offset.metadata.encode(),
                now,
                -1,
                ZERO_UUID,
            ),
        )
        for offset in body.offsets
    )
    batch = record_batch(now, records, audit_headers_of(client, request, audit_headers.COMMIT))
    if core.writes.broken is not None:
        raise Problem("log-not-writable", f"{core.writes.broken} Nothing was written.")
    log_offset, refusal = await core.rewinds.rewind(read_batch(bytes(batch.data)))
    if refusal:
        raise Problem("rewind-refused", f"The offsets of group {body.group!r} were not set: {refusal}.")
    for offset in body.offsets:
        core.topics.grow(offset.topic.encode(), offset.partition)
    return {"log_partition": core.log_partition(group), "log_offset": log_offset}
