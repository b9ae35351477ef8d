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
    SELECT group_id, topic, effective_timestamp - effective_timestamp % 3600000 AS hour_timestamp,
      CASE WHEN new_offset = old_offset THEN 1 ELSE 0 END AS redundant
    FROM commit_steps WHERE kind = 'commit' AND effective_timestamp IS NOT NULL
  ) AS steps
  GROUP BY group_id, topic, hour_timestamp
),
ranked AS (
  SELECT *, hour_timestamp - hour_timestamp % 86400000 AS day_timestamp, row_number() OVER (
    PARTITION BY group_id, topic, hour_timestamp - hour_timestamp % 86400000 ORDER BY commits DESC, hour_timestamp
  ) AS place
  FROM hours
)
SELECT group_id, topic, day_timestamp, CAST(sum(commits) AS BIGINT) AS commits,
  CAST(sum(redundant) AS BIGINT) AS redundant,
  max(CASE WHEN place = 1 THEN hour_timestamp END) AS busiest_hour_timestamp, max(commits) AS busiest_hour_commits
FROM ranked GROUP BY group_id, topic, day_timestamp
