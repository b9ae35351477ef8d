-- How many offsets of each group would have expired with a retention of 1, 3, 7, 14 or 30 days.
--
-- The offsets are evaluated at the newest record in the lake. With your own policy and for any instant: `expire --what-
-- if`.
--
--   group_id         consumer group
--   offsets          number of its offsets
--   kept             number of offsets that are kept at any age: see kept_by of retention_clocks
--   gone_with_1d     number of offsets expired with a retention of one day
--   gone_with_3d     with three days
--   gone_with_7d     with seven days, which is the default of a broker
--   gone_with_14d    with fourteen days
--   gone_with_30d    with thirty days
--   oldest_timestamp oldest clock of the offsets that can expire, in ms since the epoch; null if there are none
--
-- worst first: gone_with_7d DESC, gone_with_1d DESC, group_id
-- since: oldest_timestamp
SELECT group_id, count(*) AS offsets,
  count(kept_by) AS kept,
  count(CASE WHEN age_ms >= 86400000 THEN 1 END) AS gone_with_1d,
  count(CASE WHEN age_ms >= 259200000 THEN 1 END) AS gone_with_3d,
  count(CASE WHEN age_ms >= 604800000 THEN 1 END) AS gone_with_7d,
  count(CASE WHEN age_ms >= 1209600000 THEN 1 END) AS gone_with_14d,
  count(CASE WHEN age_ms >= 2592000000 THEN 1 END) AS gone_with_30d,
  min(CASE WHEN kept_by IS NULL THEN clock_timestamp END) AS oldest_timestamp
FROM (
  SELECT retention_clocks.group_id, retention_clocks.kept_by, retention_clocks.clock_timestamp, CASE
    WHEN kept_by IS NOT NULL THEN NULL
    WHEN clock <> 'expire_timestamp' THEN log_clock.clock_timestamp - greatest(retention_clocks.clock_timestamp, 0)
    WHEN retention_clocks.clock_timestamp <= log_clock.clock_timestamp THEN 9223372036854775807
  END AS age_ms
  FROM retention_clocks CROSS JOIN log_clock
) AS aged
GROUP BY group_id
