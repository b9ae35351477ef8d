-- Which groups have long committed nothing: all that have offsets, the longest idle first.
--
--   group_id              consumer group
--   group_type            classic, consumer, share or streams; null: a tombstone of the group hides its offsets
--   state                 its state; null as above
--   member_count          its members: one that has some and commits nothing is stuck, or reads quiet topics
--   offsets               how many offsets it has
--   last_commit_timestamp when the newest of them was committed, ms since the epoch
--   idle_ms               from then to the newest record the lake has read
--
-- worst first: idle_ms DESC, group_id
-- since: last_commit_timestamp
-- least important: group_type, member_count, last_commit_timestamp
SELECT stored.group_id, groups.group_type, groups.state, groups.member_count, stored.offsets,
  stored.last_commit_timestamp, log_clock.clock_timestamp - greatest(stored.last_commit_timestamp, 0) AS idle_ms
FROM (
  SELECT group_id, count(*) AS offsets, max(coalesce(log_timestamp, commit_timestamp)) AS last_commit_timestamp
  FROM offsets GROUP BY group_id
) AS stored
LEFT JOIN groups ON groups.group_id = stored.group_id
CROSS JOIN log_clock
