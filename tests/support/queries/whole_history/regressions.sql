SELECT group_id, topic, partition, count(*) AS regressions, sum(-difference) AS records_again,
  max(-difference) AS farthest, max(effective_timestamp) AS last_timestamp, log_partition,
  max(log_offset) AS last_log_offset
FROM changes WHERE change = 'rewind'
GROUP BY group_id, topic, partition, log_partition
