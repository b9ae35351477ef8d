-- Records of ingest runs after {since} whose timestamps no clock can have shown when they were read: more than an hour
-- later, as in the view log_clock, or before the epoch. {least} is the earliest such time of any of these runs.
SELECT log_topic, log_partition, log_offset, group_id,
  CASE WHEN log_timestamp > until_timestamp OR log_timestamp < 0 THEN log_timestamp ELSE commit_timestamp END
    AS wrong_timestamp
FROM (
  SELECT run_id, finished_at + 3600000 AS until_timestamp FROM runs
  WHERE job = 'ingest' AND finished_at >= 1000000000000
) AS ingests
RIGHT JOIN (
  SELECT '__consumer_offsets' AS log_topic, log_partition, log_offset, group_id, ingest_run, log_timestamp,
    commit_timestamp FROM offset_commits
  WHERE ingest_run > {since}
    AND (log_timestamp > {least} OR log_timestamp < 0 OR commit_timestamp > {least} OR commit_timestamp < 0)
  UNION ALL
  SELECT '__consumer_offsets', log_partition, log_offset, group_id, ingest_run, log_timestamp, CAST(NULL AS BIGINT)
  FROM group_records WHERE ingest_run > {since} AND (log_timestamp > {least} OR log_timestamp < 0)
  UNION ALL
  SELECT '__consumer_offsets', log_partition, log_offset, CAST(NULL AS VARCHAR), ingest_run, log_timestamp,
    CAST(NULL AS BIGINT)
  FROM transaction_markers WHERE ingest_run > {since} AND (log_timestamp > {least} OR log_timestamp < 0)
  UNION ALL
  SELECT '__share_group_state', log_partition, log_offset, group_id, ingest_run, log_timestamp, CAST(NULL AS BIGINT)
  FROM share_state_records WHERE ingest_run > {since} AND (log_timestamp > {least} OR log_timestamp < 0)
) AS records ON ingests.run_id = records.ingest_run
WHERE log_timestamp > until_timestamp OR log_timestamp < 0 OR commit_timestamp > until_timestamp OR commit_timestamp < 0
