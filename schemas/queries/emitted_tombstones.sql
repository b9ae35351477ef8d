-- The offsets for which the run {run_id} wrote tombstones, beside the commit that each removed.
SELECT done.committed_offset, past.committed_offset AS went_offset, past.leader_epoch, past.metadata,
  done.group_id, done.topic, done."partition", done.log_partition, past.expire_timestamp, past.topic_id
FROM tombstones AS done LEFT JOIN offset_commits AS past
  ON past.log_partition = done.log_partition AND past.log_offset = done.judged_offset
WHERE done.run_id = {run_id} AND done.outcome = 'emitted' AND done.topic IS NOT NULL
  AND coalesce(done.group_type, '') <> 'share'
