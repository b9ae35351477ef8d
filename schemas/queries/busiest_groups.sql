-- Records of each group that the ingest runs {runs} read, the group with the most records first.
SELECT group_id, array_agg(DISTINCT log_partition) AS log_partitions,
  sum(CASE WHEN kind = 'commit' THEN 1 ELSE 0 END) AS commits,
  sum(CASE WHEN kind = 'tombstone' THEN 1 ELSE 0 END) AS tombstones
FROM offset_commits WHERE ingest_run IN ({runs}) GROUP BY group_id
ORDER BY count(*) DESC, max(log_timestamp) DESC NULLS LAST, group_id
