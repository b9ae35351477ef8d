WITH
farthest AS (SELECT topic, partition, max(committed_offset) AS reached FROM offsets GROUP BY topic, partition),
lagging AS (
  SELECT offsets.group_id, offsets.topic, offsets.partition, farthest.reached
  FROM offsets JOIN farthest ON farthest.topic = offsets.topic AND farthest.partition = offsets.partition
  WHERE offsets.committed_offset < farthest.reached
),
moves AS (
  SELECT group_id, topic, partition, log_offset, effective_timestamp, new_offset, max(
    CASE WHEN old_offset IS NULL OR new_offset IS NULL OR new_offset <> old_offset THEN effective_log_offset END
  ) OVER (
    PARTITION BY group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC ROWS UNBOUNDED PRECEDING
  ) AS moved_at
  FROM commit_steps
),
stays AS (
  SELECT group_id, topic, partition, moved_at, max(new_offset) AS committed_offset, count(*) AS commits,
    min(effective_timestamp) AS since_timestamp, max(effective_timestamp) AS last_timestamp,
    max(moved_at) OVER (PARTITION BY group_id, topic, partition) AS last_moved_at
  FROM moves GROUP BY group_id, topic, partition, moved_at
)
SELECT stays.group_id, stays.topic, stays.partition, stays.committed_offset,
  CAST(lagging.reached AS DECIMAL(20)) - CAST(stays.committed_offset AS DECIMAL(20)) AS known_behind,
  stays.commits, stays.since_timestamp, stays.last_timestamp,
  stays.last_timestamp - stays.since_timestamp AS stalled_ms
FROM stays
JOIN lagging
  ON lagging.group_id = stays.group_id AND lagging.topic = stays.topic AND lagging.partition = stays.partition
WHERE stays.moved_at = stays.last_moved_at AND stays.commits > 1
