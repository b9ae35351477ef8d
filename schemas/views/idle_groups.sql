-- Which groups have not committed for long: all groups with offsets, the longest idle first.
--
--   group_id              consumer group
--   group_type            classic, consumer, share or streams; null if a tombstone of the group hides its offsets
--   state                 state of the group; null as for group_type
--   member_count          number of members, null if the state is Unknown; a group with members that commits nothing is stuck, or its topics are
--                         quiet
--   offsets               number of its offsets
--   last_commit_timestamp when the newest of its offsets was committed, in ms since the epoch
--   idle_ms               time from then to the newest record in the lake; 0 if its time is after that of that record
--
-- worst first: idle_ms DESC, group_id
-- since: last_commit_timestamp
-- least important: group_type, member_count, last_commit_timestamp
SELECT stored.group_id, groups.group_type, groups.state, groups.member_count, stored.offsets,
  stored.last_commit_timestamp,
  CASE
    WHEN stored.last_commit_timestamp > log_clock.clock_timestamp THEN 0
    ELSE log_clock.clock_timestamp - greatest(stored.last_commit_timestamp, 0)
  END AS idle_ms
FROM (
  SELECT group_id, count(*) AS offsets, max(coalesce(log_timestamp, commit_timestamp)) AS last_commit_timestamp
  FROM offsets GROUP BY group_id
) AS stored
LEFT JOIN groups ON groups.group_id = stored.group_id
CROSS JOIN log_clock
