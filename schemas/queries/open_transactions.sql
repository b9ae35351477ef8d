-- Transactions that are open for at least {open_longer_ms} at the instant {now}, and the offsets and groups they block.
-- Timestamps after {clock}, that of the newest record (the view log_clock), or before the epoch are wrong: no age is
-- computed from them.
SELECT producer_id, max(producer_epoch) AS producer_epoch, log_partition, min(log_offset) AS first_log_offset,
  coalesce(min(plausible_timestamp), min(log_timestamp)) AS first_timestamp, {now} - min(plausible_timestamp) AS age_ms,
  count(*) AS offsets, array_sort(array_agg(DISTINCT group_id)) AS groups
FROM (
  SELECT *, CASE WHEN log_timestamp BETWEEN 0 AND {clock} THEN log_timestamp END AS plausible_timestamp
  FROM pending_offsets WHERE producer_id IS NOT NULL
) AS waiting
GROUP BY producer_id, log_partition
HAVING coalesce({now} - min(plausible_timestamp), 9223372036854775807) >= {open_longer_ms}
ORDER BY log_partition, first_log_offset
