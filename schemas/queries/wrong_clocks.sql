-- The groups with records whose timestamps no clock can have shown when they were appended: after {clock}, the newest
-- record (the view log_clock), or before the epoch. Commits carry a time of their own, which may be an hour later.
SELECT group_id, count(*) AS records, min(least_timestamp) AS least_timestamp,
  max(greatest_timestamp) AS greatest_timestamp, count(*) OVER () AS matches
FROM (
  SELECT group_id, least(coalesce(log_timestamp, commit_timestamp), coalesce(commit_timestamp, log_timestamp))
    AS least_timestamp,
    greatest(coalesce(log_timestamp, commit_timestamp), coalesce(commit_timestamp, log_timestamp)) AS greatest_timestamp
  FROM offset_commits
  WHERE log_timestamp > {clock} OR log_timestamp < 0 OR commit_timestamp > {clock} + 3600000 OR commit_timestamp < 0
  UNION ALL
  SELECT group_id, log_timestamp AS least_timestamp, log_timestamp AS greatest_timestamp FROM group_records
  WHERE log_timestamp > {clock} OR log_timestamp < 0
  UNION ALL
  SELECT group_id, log_timestamp AS least_timestamp, log_timestamp AS greatest_timestamp FROM share_state_records
  WHERE log_timestamp > {clock} OR log_timestamp < 0
) AS timed
GROUP BY group_id ORDER BY greatest_timestamp DESC, least_timestamp, group_id
