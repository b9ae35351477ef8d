-- Offsets of the groups {groups} that records of the ingest runs {runs} changed. {partitions} lets files be skipped.
SELECT group_id, count(DISTINCT concat(topic, ':', partition)) AS changed_offsets,
  max(log_timestamp) AS last_timestamp
FROM offset_commits
WHERE ingest_run IN ({runs}) AND log_partition IN ({partitions}) AND group_id IN ({groups})
GROUP BY group_id
