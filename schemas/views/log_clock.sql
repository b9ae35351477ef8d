-- How late it is for the lake: when the newest record it has read was appended. Ages in the other views are up to then.
--
-- One row. A lake that is behind its log would otherwise take every group for idle.
--
--   clock_timestamp when the newest record was appended, ms since the epoch; null: no record says
--
-- worst first: clock_timestamp
-- since: clock_timestamp
SELECT max(log_timestamp) AS clock_timestamp
FROM (
  SELECT max(log_timestamp) AS log_timestamp FROM offset_commits
  UNION ALL
  SELECT max(log_timestamp) AS log_timestamp FROM group_records
) AS newest
