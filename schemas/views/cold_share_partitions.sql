-- Which share partitions have not changed for long: all share partitions, the longest without an update first.
--
-- A share coordinator writes snapshots also of share partitions that do not change, so only updates count. If no update
-- is known, the time is that of the oldest known record since the share partition was deleted last.
--
--   group_id              share group
--   topic_id              topic id
--   partition             partition of that topic
--   start_offset          share-partition start offset; null if undecided
--   in_flight_records     number of offsets from the start offset to the end offset; null if undecided
--   available_records     number of them that wait to be delivered again
--   updated_timestamp     when it was last updated, in ms since the epoch; null if the log has no timestamps
--   idle_ms               time from then to the newest record in the lake
--
-- worst first: idle_ms DESC, group_id, topic_id, partition
-- since: updated_timestamp
-- least important: available_records, updated_timestamp
SELECT group_id, topic_id, partition, start_offset, in_flight_records, available_records, updated_timestamp,
  log_clock.clock_timestamp - updated_timestamp AS idle_ms
FROM share_partitions
CROSS JOIN log_clock
