-- The start offsets of share partitions before and after the run {run_id}, which set or deleted them.
SELECT group_id, topic, "partition", log_partition, previous_offset, committed_offset AS set_offset
FROM alterations WHERE run_id = {run_id} AND outcome = 'done' AND group_type = 'share'
UNION ALL
SELECT group_id, topic, "partition", log_partition, committed_offset AS previous_offset,
  CAST(NULL AS BIGINT) AS set_offset
FROM tombstones WHERE run_id = {run_id} AND outcome = 'emitted' AND group_type = 'share' AND topic IS NOT NULL
