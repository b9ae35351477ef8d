-- Every value an offset ever had, from when to when: offsets at an instant, and the difference of two, are plain WHEREs.
--
-- What a broker served at the instant T (ms): from_timestamp <= T AND (to_timestamp > T OR to_timestamp IS NULL). That is
-- what `offsets --as-of` gives, as long as the markers of a transaction's producer are in the order of their timestamps.
-- A commit that a newer one had overtaken before it counted was never in force, and is left out; one replaced within its
-- own millisecond is from and to the same. Where there is no row for an instant, the group had no offset there.
--
--   group_id         consumer group
--   topic            topic the offset is of
--   partition        partition of that topic
--   committed_offset the offset in force
--   from_timestamp   since when it was, ms since the epoch; 0: the log does not say
--   to_timestamp     until when, ms since the epoch, not included; null: still in force
--   log_partition    partition of the log topic
--   log_offset       where the commit stands in it
--   to_log_offset    where the commit or tombstone stands that took its place; null: still in force
--   leader_epoch     leader epoch of the record before it; null: unknown
--   metadata         free text of the committing client
--   commit_timestamp when the commit was made, ms since the epoch
--   producer_id      transactional producer; null: none
--
-- worst first: group_id, topic, partition, from_timestamp DESC, log_offset DESC
-- since: from_timestamp
-- least important: leader_epoch, producer_id, metadata, to_log_offset, commit_timestamp, log_partition, log_offset
-- by log partition
WITH
placed AS (
  SELECT group_id, topic, partition, kind, committed_offset, log_partition, log_offset, leader_epoch, metadata,
    commit_timestamp, producer_id, from_timestamp,
    max(log_offset) OVER (
      PARTITION BY group_id, topic, partition ORDER BY from_timestamp, log_offset ROWS UNBOUNDED PRECEDING
    ) AS newest
  FROM (
    SELECT *, coalesce(effective_timestamp, 0) AS from_timestamp
    FROM commit_outcomes WHERE effective_log_offset IS NOT NULL
  ) AS counting
),
versions AS (
  SELECT *,
    lead(from_timestamp) OVER one_key AS to_timestamp,
    lead(log_offset) OVER one_key AS to_log_offset
  FROM placed WHERE log_offset = newest
  WINDOW one_key AS (PARTITION BY group_id, topic, partition ORDER BY from_timestamp, log_offset)
)
SELECT group_id, topic, partition, committed_offset, from_timestamp, to_timestamp, log_partition, log_offset,
  to_log_offset, leader_epoch, metadata, commit_timestamp, producer_id
FROM versions WHERE kind = 'commit'
