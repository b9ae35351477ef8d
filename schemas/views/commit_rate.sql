-- How often each group commits, and how many commits are redundant: commits by group, topic and day.
--
-- Commits that took effect are counted; a redundant commit repeats the value in force. Days and hours are in UTC, by
-- the timestamps of the log; commits without a timestamp are omitted.
--
--   group_id               consumer group
--   topic                  topic of the offsets
--   day_timestamp          start of the day, in ms since the epoch
--   commits                number of offsets committed on that day
--   redundant              number of these commits that changed nothing
--   busiest_hour_timestamp start of the hour with the most commits, in ms since the epoch
--   busiest_hour_commits   number of offsets committed in that hour
--
-- worst first: redundant DESC, commits DESC, group_id, topic, day_timestamp
-- since: day_timestamp
-- by log partition
WITH
hours AS (
  SELECT group_id, topic, hour_timestamp, count(*) AS commits, sum(redundant) AS redundant
  FROM (
    SELECT group_id, topic, log_timestamp - log_timestamp % 3600000 AS hour_timestamp,
      CASE WHEN repeats > 0 THEN 1 ELSE 0 END AS redundant
    FROM offset_commits WHERE routine AND log_timestamp IS NOT NULL
    UNION ALL
    SELECT group_id, topic, effective_timestamp - effective_timestamp % 3600000 AS hour_timestamp,
      CASE WHEN new_offset = old_offset THEN 1 ELSE 0 END AS redundant
    FROM turning_points WHERE kind = 'commit' AND effective_timestamp IS NOT NULL
  ) AS steps
  GROUP BY group_id, topic, hour_timestamp
)
SELECT group_id, topic, hour_timestamp - hour_timestamp % 86400000 AS day_timestamp,
  CAST(sum(commits) AS BIGINT) AS commits, CAST(sum(redundant) AS BIGINT) AS redundant,
  hour_timestamp - hour_timestamp % 86400000 + 82800000
    - max(commits * 86400000 + 82800000 - hour_timestamp % 86400000) % 86400000 AS busiest_hour_timestamp,
  max(commits) AS busiest_hour_commits
FROM hours GROUP BY group_id, topic, hour_timestamp - hour_timestamp % 86400000
