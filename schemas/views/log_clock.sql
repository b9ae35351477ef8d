-- The clock of the lake: when the newest record in it was appended. The other views compute ages up to that time.
--
-- The view has one row. With the current time instead, every group of a lake that lags its log would look idle.
-- A record cannot be appended after it is read. Records with a timestamp more than an hour after the ingest run that
-- read them do not count, unless all are like that: their clock was wrong. An hour is the default of the broker's setting
-- `log.message.timestamp.after.max.ms` (KIP-937). A run before September 2001 had a wrong clock itself.
--
--   clock_timestamp when the newest record was appended, in ms since the epoch; null if no record has a timestamp
--
-- worst first: clock_timestamp
-- since: clock_timestamp
SELECT coalesce(max(plausible_timestamp), max(log_timestamp)) AS clock_timestamp
FROM (
  SELECT max(records.log_timestamp) AS log_timestamp,
    max(CASE WHEN ingests.until_timestamp IS NULL OR records.log_timestamp <= ingests.until_timestamp
      THEN records.log_timestamp END) AS plausible_timestamp
  FROM (
    SELECT run_id, finished_at + 3600000 AS until_timestamp FROM runs
    WHERE job = 'ingest' AND finished_at >= 1000000000000
  ) AS ingests
  RIGHT JOIN offset_commits AS records ON ingests.run_id = records.ingest_run
  UNION ALL
  SELECT max(records.log_timestamp) AS log_timestamp,
    max(CASE WHEN ingests.until_timestamp IS NULL OR records.log_timestamp <= ingests.until_timestamp
      THEN records.log_timestamp END) AS plausible_timestamp
  FROM (
    SELECT run_id, finished_at + 3600000 AS until_timestamp FROM runs
    WHERE job = 'ingest' AND finished_at >= 1000000000000
  ) AS ingests
  RIGHT JOIN group_records AS records ON ingests.run_id = records.ingest_run
  UNION ALL
  SELECT max(records.log_timestamp) AS log_timestamp,
    max(CASE WHEN ingests.until_timestamp IS NULL OR records.log_timestamp <= ingests.until_timestamp
      THEN records.log_timestamp END) AS plausible_timestamp
  FROM (
    SELECT run_id, finished_at + 3600000 AS until_timestamp FROM runs
    WHERE job = 'ingest' AND finished_at >= 1000000000000
  ) AS ingests
  RIGHT JOIN share_state_records AS records ON ingests.run_id = records.ingest_run
) AS newest
