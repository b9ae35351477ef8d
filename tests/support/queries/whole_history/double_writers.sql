WITH
steps AS (
  SELECT *,
    lag(old_offset) OVER one_key AS older_offset,
    lag(writer) OVER one_key AS old_writer, lag(log_offset) OVER one_key AS old_at,
    lag(writer, 2) OVER one_key AS older_writer, lag(log_offset, 2) OVER one_key AS older_at
  FROM (
    SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, old_offset,
      new_offset, coalesce(producer_id, -1) AS writer
    FROM commit_steps WHERE kind = 'commit'
  ) AS commits
  WINDOW one_key AS (PARTITION BY group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC)
),
turns AS (
  SELECT *, CASE WHEN writer = older_writer AND writer <> old_writer THEN 3 ELSE 2 END AS commits
  FROM steps
  WHERE (writer = older_writer AND writer <> old_writer)
    OR (writer = old_writer AND old_offset < older_offset AND new_offset >= older_offset)
),
commits_of_turns AS (
  SELECT group_id, topic, partition, log_partition, log_offset, effective_timestamp,
    CASE back WHEN 0 THEN log_offset WHEN 1 THEN old_at ELSE older_at END AS commit_at,
    nullif(CASE back WHEN 0 THEN writer WHEN 1 THEN old_writer ELSE older_writer END, -1) AS producer_id
  FROM turns CROSS JOIN (SELECT 0 AS back UNION ALL SELECT 1 AS back UNION ALL SELECT 2 AS back) AS places
  WHERE back < commits
),
evaluated AS (
  SELECT of_turns.group_id, of_turns.topic, of_turns.partition, of_turns.log_partition, of_turns.log_offset,
    of_turns.effective_timestamp, of_turns.producer_id,
    max(CASE WHEN alterations.log_offset IS NOT NULL OR empty_periods.group_id IS NOT NULL THEN 1 ELSE 0 END) OVER (
      PARTITION BY of_turns.group_id, of_turns.topic, of_turns.partition, of_turns.log_offset
    ) AS is_set
  FROM commits_of_turns AS of_turns
  LEFT JOIN alterations
    ON alterations.log_partition = of_turns.log_partition AND alterations.log_offset = of_turns.commit_at
    AND alterations.outcome = 'done'
  LEFT JOIN empty_periods
    ON empty_periods.log_partition = of_turns.log_partition AND empty_periods.group_id = of_turns.group_id
    AND of_turns.producer_id IS NULL AND of_turns.commit_at > empty_periods.from_log_offset
    AND (of_turns.commit_at < empty_periods.to_log_offset OR empty_periods.to_log_offset IS NULL)
)
SELECT group_id, topic, partition, count(DISTINCT log_offset) AS turns, count(DISTINCT producer_id) AS producers,
  max(effective_timestamp) AS last_timestamp, log_partition, max(log_offset) AS last_log_offset
FROM evaluated WHERE is_set = 0
GROUP BY group_id, topic, partition, log_partition
