-- Which share partitions have a start offset that does not move although records are in flight, and since when.
--
-- The start offset moves when the records at it are completed, so it does not move while one of them is delivered again
-- and again, or acquired by a consumer that does not answer, or while the group has no consumers.
--
--   group_id            share group
--   topic_id            topic id
--   partition           partition of that topic
--   start_offset        share-partition start offset
--   in_flight_records   number of offsets from it to the end offset
--   completed_records   number of them that are acknowledged or archived
--   max_delivery_count  how often the one that was delivered most often was delivered
--   since_timestamp     when the start offset was first written, in ms since the epoch, as far as history is known
--   stalled_ms          time from then to the newest record in the lake
--
-- worst first: stalled_ms DESC, group_id, topic_id, partition
-- since: since_timestamp
-- least important: since_timestamp, max_delivery_count
WITH
moved AS (
  SELECT records.group_id, records.topic_id, records.partition, max(records.log_offset) AS log_offset
  FROM share_state_records AS records
  JOIN share_partitions AS stored ON stored.group_id = records.group_id AND stored.topic_id = records.topic_id
    AND stored.partition = records.partition
  WHERE records.kind = 'tombstone' OR (records.kind = 'snapshot' AND records.start_offset <> stored.start_offset)
    OR (records.kind = 'update' AND records.start_offset <> -1 AND records.start_offset <> stored.start_offset)
  GROUP BY records.group_id, records.topic_id, records.partition
),
unmoved AS (
  SELECT records.group_id, records.topic_id, records.partition, min(records.log_timestamp) AS since_timestamp
  FROM share_state_records AS records
  LEFT JOIN moved ON moved.group_id = records.group_id AND moved.topic_id = records.topic_id
    AND moved.partition = records.partition
  WHERE moved.log_offset IS NULL OR records.log_offset > moved.log_offset
  GROUP BY records.group_id, records.topic_id, records.partition
)
SELECT share_partitions.group_id, share_partitions.topic_id, share_partitions.partition, share_partitions.start_offset,
  share_partitions.in_flight_records,
  share_partitions.acknowledged_records + share_partitions.archived_records AS completed_records,
  share_partitions.max_delivery_count, unmoved.since_timestamp,
  log_clock.clock_timestamp - unmoved.since_timestamp AS stalled_ms
FROM share_partitions
JOIN unmoved ON unmoved.group_id = share_partitions.group_id AND unmoved.topic_id = share_partitions.topic_id
  AND unmoved.partition = share_partitions.partition
CROSS JOIN log_clock
WHERE share_partitions.in_flight_records > 0
