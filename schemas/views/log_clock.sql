-- The clock of the lake: when the newest record in it was appended. The other views compute ages up to that time.
--
-- The view has one row. With the current time instead, every group of a lake that lags its log would look idle.
--
--   clock_timestamp when the newest record was appended, in ms since the epoch; null if no record has a timestamp
--
-- worst first: clock_timestamp
-- since: clock_timestamp
SELECT max(log_timestamp) AS clock_timestamp
FROM (
  SELECT max(log_timestamp) AS log_timestamp FROM offset_commits
  UNION ALL
  SELECT max(log_timestamp) AS log_timestamp FROM group_records
  UNION ALL
  SELECT max(log_timestamp) AS log_timestamp FROM share_state_records
) AS newest
