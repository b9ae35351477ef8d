-- Which share partitions have records in flight that were delivered repeatedly: possibly, no consumer can process them.
--
-- A record that is released, or whose acquisition lock times out, is delivered again up to a limit, by default five
-- times, and then archived. `offsetlake share --batches` shows the ranges of these records.
--
--   group_id            share group
--   topic_id            topic id
--   partition           partition of that topic
--   redelivered_records number of records in flight that were delivered more than once
--   max_delivery_count  how often the one that was delivered most often was delivered
--   available_records   number of records in flight that wait to be delivered again
--   archived_records    number of records in flight that are archived
--   start_offset        share-partition start offset
--   log_timestamp       when the newest record of its state was appended, in ms since the epoch
--
-- worst first: max_delivery_count DESC, redelivered_records DESC, group_id, topic_id, partition
-- since: log_timestamp
-- least important: log_timestamp, start_offset, available_records
SELECT group_id, topic_id, partition, redelivered_records, max_delivery_count, available_records, archived_records,
  start_offset, log_timestamp
FROM share_partitions WHERE redelivered_records > 0
