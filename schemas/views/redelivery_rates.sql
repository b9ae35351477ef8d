-- How many deliveries each share group needs for a record, by topic: for the records in flight whose state is known.
--
--   group_id              share group
--   topic_id              topic id
--   partitions            number of share partitions
--   known_records         number of records in flight that were delivered or released
--   deliveries            number of their deliveries
--   redelivered_records   number of them that were delivered more than once
--   archived_records      number of them that are archived
--   redelivery_rate       redelivered_records divided by known_records; null without these
--   log_timestamp         when the newest record of their state was appended, in ms since the epoch
--
-- worst first: redelivery_rate DESC NULLS LAST, group_id, topic_id
-- since: log_timestamp
-- least important: log_timestamp, partitions
SELECT group_id, topic_id, partitions, known_records, deliveries, redelivered_records, archived_records,
  CASE WHEN known_records > 0 THEN CAST(redelivered_records AS DOUBLE) / CAST(known_records AS DOUBLE) END
    AS redelivery_rate,
  log_timestamp
FROM (
  SELECT group_id, topic_id, count(*) AS partitions,
    CAST(sum(available_records + acknowledged_records + archived_records) AS BIGINT) AS known_records,
    CAST(sum(deliveries) AS BIGINT) AS deliveries, CAST(sum(redelivered_records) AS BIGINT) AS redelivered_records,
    CAST(sum(archived_records) AS BIGINT) AS archived_records, max(log_timestamp) AS log_timestamp
  FROM share_partitions GROUP BY group_id, topic_id
) AS counted
