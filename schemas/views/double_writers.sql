-- Which offsets two writers commit in turns: two producers, or two consumers that both think the partition is theirs.
--
-- A commit does not name the member that sent it. So a turn is counted where a producer commits again behind another one
-- (A, B, A; no producer counts as one), and, of one and the same, where a commit goes back and the next one goes on from
-- where it was before (100, 70, 110): somebody had not seen the step back. One turn can be innocent: a partition that
-- moved to another producer and home again, a rewind that caught up within one commit. Many cannot.
--
-- A step that has a decision (a reset, restore, undelete, cleanup or expiry of ours), or that the view `changes` calls a
-- reset, is not a writer's: commits are compared only with those after it, never across it.
--
--   group_id       consumer group
--   topic          topic the offset is of
--   partition      partition of that topic
--   turns          how often somebody went on as if the commit before were not there
--   producers      how many transactional producers committed it
--   last_timestamp when the last turn was, ms since the epoch; null: the log does not say
--   log_partition  partition of the log topic
--   last_log_offset where that commit stands in it
--
-- worst first: turns DESC, group_id, topic, partition
-- since: last_timestamp
-- least important: last_log_offset, log_partition, producers
WITH
placed AS (
  SELECT *, coalesce(producer_id, -1) AS writer, CASE WHEN change = 'reset' OR decision IS NOT NULL THEN 1 ELSE 0 END AS is_set
  FROM changes
),
numbered AS (
  SELECT *, sum(is_set) OVER (
    PARTITION BY group_id, topic, partition ORDER BY log_offset ROWS UNBOUNDED PRECEDING
  ) AS times_set
  FROM placed
),
steps AS (
  SELECT *,
    lag(old_offset) OVER one_key AS older_offset,
    lag(writer) OVER one_key AS old_writer,
    lag(writer, 2) OVER one_key AS older_writer
  FROM numbered WHERE new_offset IS NOT NULL AND is_set = 0
  WINDOW one_key AS (PARTITION BY group_id, topic, partition, times_set ORDER BY log_offset)
),
judged AS (
  SELECT *, CASE
    WHEN writer = older_writer AND writer <> old_writer THEN 1
    WHEN writer = old_writer AND old_offset < older_offset AND new_offset >= older_offset THEN 1
    ELSE 0
  END AS turn
  FROM steps
)
SELECT group_id, topic, partition, CAST(sum(turn) AS BIGINT) AS turns, count(DISTINCT producer_id) AS producers,
  max(CASE WHEN turn = 1 THEN effective_timestamp END) AS last_timestamp, log_partition,
  max(CASE WHEN turn = 1 THEN log_offset END) AS last_log_offset
FROM judged GROUP BY group_id, topic, partition, log_partition HAVING sum(turn) > 0
