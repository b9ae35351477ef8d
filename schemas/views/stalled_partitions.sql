-- Which offsets are committed repeatedly with one value although there is more to read: another group has read further.
--
-- That there is more to read is known only from the offsets of other groups: this view does not use log end offsets. A
-- group that does not commit at all is in idle_groups. Only groups that repeat an offset in a step of turning_points are
-- examined: the last commit of an offset is among these steps.
--
--   group_id         consumer group
--   topic            topic of the offset
--   partition        partition of that topic
--   committed_offset the repeated offset
--   known_behind     distance to the farthest group: at least as many records are left to read
--   commits          number of commits of that value, including the first
--   since_timestamp  when the value was first committed, in ms since the epoch; null if the log has no timestamps
--   last_timestamp   when the value was last committed, in ms since the epoch
--   stalled_ms       time from the first to the last commit
--
-- worst first: known_behind DESC, group_id, topic, partition
-- since: last_timestamp
-- least important: since_timestamp, commits, last_timestamp
-- by log partition
WITH
farthest AS (SELECT topic, partition, max(committed_offset) AS reached FROM offsets GROUP BY topic, partition),
lagging AS (
  SELECT offsets.group_id, offsets.topic, offsets.partition, offsets.log_partition, farthest.reached
  FROM offsets JOIN farthest ON farthest.topic = offsets.topic AND farthest.partition = offsets.partition
  WHERE offsets.committed_offset < farthest.reached
),
moves AS (
  SELECT *,
    CASE
      WHEN old_offset IS NULL OR new_offset IS NULL OR new_offset <> old_offset THEN effective_log_offset
    END AS moved_at,
    CASE
      WHEN repeats > 0 AND topic = old_topic AND partition = old_partition THEN repeats - coalesce(old_repeats, 0)
      WHEN repeats > 0 THEN repeats
      ELSE 1
    END AS commits
  FROM (
    SELECT *, lag(topic) OVER one_group AS old_topic, lag(partition) OVER one_group AS old_partition,
      lag(repeats) OVER one_group AS old_repeats
    FROM (
      SELECT *,
        max(CASE WHEN new_offset = old_offset THEN 1 ELSE 0 END) OVER (PARTITION BY log_partition, group_id) AS can_stall
      FROM turning_points
    ) AS of_groups
    WHERE can_stall = 1
    WINDOW one_group AS (
      PARTITION BY log_partition, group_id ORDER BY topic, partition, effective_log_offset, log_offset DESC
    )
  ) AS steps
),
since_last AS (
  SELECT *, max(moved_at) OVER (PARTITION BY log_partition, group_id, topic, partition) AS last_moved_at FROM moves
),
stays AS (
  SELECT group_id, topic, partition, log_partition, max(new_offset) AS committed_offset, CAST(sum(commits) AS BIGINT) AS commits,
    min(effective_timestamp) AS since_timestamp, max(effective_timestamp) AS last_timestamp
  FROM since_last WHERE effective_log_offset >= last_moved_at GROUP BY group_id, topic, partition, log_partition
)
SELECT stays.group_id, stays.topic, stays.partition, stays.committed_offset,
  CAST(lagging.reached AS DECIMAL(20)) - CAST(stays.committed_offset AS DECIMAL(20)) AS known_behind,
  stays.commits, stays.since_timestamp, stays.last_timestamp,
  stays.last_timestamp - stays.since_timestamp AS stalled_ms
FROM stays
JOIN lagging
  ON lagging.log_partition = stays.log_partition AND lagging.group_id = stays.group_id AND lagging.topic = stays.topic
  AND lagging.partition = stays.partition
WHERE stays.commits > 1
