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
