-- Transactions that are open for at least {open_longer_ms} at the instant {now}, and the offsets and groups they block.
SELECT producer_id, max(producer_epoch) AS producer_epoch, log_partition, min(log_offset) AS first_log_offset,
  min(log_timestamp) AS first_timestamp, {now} - min(log_timestamp) AS age_ms,
  count(*) AS offsets, array_sort(array_agg(DISTINCT group_id)) AS groups
FROM pending_offsets WHERE producer_id IS NOT NULL GROUP BY producer_id, log_partition
HAVING coalesce({now} - min(log_timestamp), 9223372036854775807) >= {open_longer_ms}
ORDER BY log_partition, first_log_offset
