-- Which offsets two writers commit in turns: two producers, or two consumers that both believe they own the partition.
--
-- A commit does not name the member that sent it. So a turn is counted if a producer commits again after another one
-- (A, B, A; commits without a producer count as one producer), and, for commits of one producer, if a commit goes back
-- and the next one continues from the value before (100, 70, 110): its sender had not seen the step back. A single turn
-- can be innocent: a partition that moved to another producer and back, or a rewind that was caught up within one
-- commit. Many turns are not.
--
-- A turn does not count if one of its commits was set by a decision of offsetlake (reset, restore, undelete or repair),
-- or is a reset in the view `changes`: a plain commit while the group, which had had members, had none.
--
--   group_id        consumer group
--   topic           topic of the offset
--   partition       partition of that topic
--   turns           number of turns
--   producers       number of transactional producers that took part in these turns
--   last_timestamp  when the last turn was, in ms since the epoch; null if the log has no timestamps
--   log_partition   partition of the log topic
--   last_log_offset log offset of that commit
--
-- worst first: turns DESC, group_id, topic, partition
-- since: last_timestamp
-- least important: last_log_offset, log_partition, producers
-- by log partition
WITH
steps AS (
  SELECT *,
    lag(topic) OVER one_group AS old_topic, lag(partition) OVER one_group AS old_partition,
    lag(old_offset) OVER one_group AS older_offset, lag(new_offset) OVER one_group AS former_offset,
    lag(writer) OVER one_group AS old_writer, lag(log_offset) OVER one_group AS old_at,
    lag(topic, 2) OVER one_group AS older_topic, lag(partition, 2) OVER one_group AS older_partition,
    lag(writer, 2) OVER one_group AS older_writer, lag(log_offset, 2) OVER one_group AS older_at
  FROM (
    SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, old_offset,
      new_offset, repeats, coalesce(producer_id, -1) AS writer
    FROM turning_points WHERE kind = 'commit'
  ) AS commits
  WINDOW one_group AS (
    PARTITION BY log_partition, group_id ORDER BY topic, partition, effective_log_offset, log_offset DESC
  )
),
turns AS (
  SELECT *, CASE WHEN writer <> old_writer THEN 3 ELSE 2 END AS commits
  FROM steps
  WHERE topic = old_topic AND partition = old_partition AND (
    (writer = older_writer AND writer <> old_writer AND topic = older_topic AND partition = older_partition)
    OR (
      writer = old_writer AND former_offset < older_offset AND new_offset >= older_offset
      AND (repeats IS NOT NULL OR old_offset IS NOT NULL)
    )
  )
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
      PARTITION BY of_turns.log_partition, of_turns.group_id, of_turns.topic, of_turns.partition, of_turns.log_offset
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
