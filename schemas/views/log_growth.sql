-- Which groups make the log grow: their records by day, for offsets and for all else.
--
-- Records are counted, not bytes: the tables do not have the sizes of records. Days are in UTC.
--
--   group_id      group
--   day_timestamp start of the day, in ms since the epoch; null if the log has no timestamps
--   records       number of records of the group appended on that day
--   commits       number of these that are commits of offsets
--   tombstones    number of these that are tombstones of offsets
--   group_records number of these that are about the group and its members
--
-- worst first: records DESC, group_id, day_timestamp
-- since: day_timestamp
-- by log partition
SELECT group_id, day_timestamp, CAST(sum(commits + tombstones + group_records) AS BIGINT) AS records,
  CAST(sum(commits) AS BIGINT) AS commits, CAST(sum(tombstones) AS BIGINT) AS tombstones,
  CAST(sum(group_records) AS BIGINT) AS group_records
FROM (
  SELECT group_id, log_timestamp - log_timestamp % 86400000 AS day_timestamp,
    count(CASE WHEN kind = 'commit' THEN 1 END) AS commits,
    count(CASE WHEN kind = 'tombstone' THEN 1 END) AS tombstones, 0 AS group_records
  FROM offset_commits GROUP BY group_id, log_timestamp - log_timestamp % 86400000
  UNION ALL
  SELECT group_id, log_timestamp - log_timestamp % 86400000 AS day_timestamp, 0 AS commits, 0 AS tombstones,
    count(*) AS group_records
  FROM group_records GROUP BY group_id, log_timestamp - log_timestamp % 86400000
) AS counted
GROUP BY group_id, day_timestamp
