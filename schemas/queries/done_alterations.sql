-- What the run {run_id} set, beside the commit that was replaced.
SELECT done.committed_offset AS set_offset, done.previous_offset AS committed_offset,
  done.previous_offset AS went_offset, done.previous_leader_epoch AS leader_epoch,
  done.previous_metadata AS metadata, done.group_id, done.topic, done."partition", done.log_partition,
  past.expire_timestamp, past.topic_id
FROM alterations AS done LEFT JOIN offset_commits AS past
  ON past.log_partition = done.log_partition AND past.log_offset = done.judged_offset
WHERE done.run_id = {run_id} AND done.outcome = 'done' AND done.topic IS NOT NULL
  AND coalesce(done.group_type, '') <> 'share'
