-- Every value that an offset ever had, with its period: a WHERE clause answers for any instant or difference.
--
-- The offsets a broker served at the instant T (ms): from_timestamp <= T AND (to_timestamp > T OR to_timestamp IS
-- NULL). The result is that of `offsets --as-of` if the markers of each transactional producer are in the order of
-- their timestamps. A commit that was never in force, because a newer one had taken effect before it, is omitted; one
-- that was replaced within the same millisecond has from_timestamp = to_timestamp. If there is no row for an instant,
-- the group had no offset then.
--
-- If partitions were added to __consumer_offsets, a group can have versions in several log partitions, each as its own
-- coordinator knew them: only those in the log partition that coordinated the group at the instant were served.
--
--   group_id         consumer group
--   topic            topic of the offset
--   partition        partition of that topic
--   committed_offset the offset in force
--   from_timestamp   start of the period, in ms since the epoch; 0 if the log has no timestamps
--   to_timestamp     end of the period, exclusive, in ms since the epoch; null if the offset is still in force
--   log_partition    partition of the log topic
--   log_offset       log offset of the commit
--   to_log_offset    log offset of the commit or tombstone that replaced it; null if it is still in force
--   leader_epoch     leader epoch of the last consumed record; null if unknown
--   metadata         text that the client committed with the offset
--   commit_timestamp when the offset was committed, in ms since the epoch
--   producer_id      id of the transactional producer; null for a commit without a transaction
--
-- worst first: group_id, topic, partition, from_timestamp DESC, log_offset DESC
-- since: from_timestamp
-- least important: leader_epoch, producer_id, metadata, to_log_offset, commit_timestamp, log_partition, log_offset
-- outcomes in this order: group_id, topic, partition, coalesce(effective_timestamp, 0) DESC, log_offset DESC
-- by log partition
WITH
placed AS (
  SELECT group_id, topic, partition, kind, committed_offset, log_partition, log_offset, leader_epoch, metadata,
    commit_timestamp, producer_id, from_timestamp,
    max(log_offset) OVER (
      PARTITION BY log_partition, group_id, topic, partition ORDER BY from_timestamp, log_offset
      ROWS UNBOUNDED PRECEDING
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
  WINDOW one_key AS (PARTITION BY log_partition, group_id, topic, partition ORDER BY from_timestamp, log_offset)
)
SELECT group_id, topic, partition, committed_offset, from_timestamp, to_timestamp, log_partition, log_offset,
  to_log_offset, leader_epoch, metadata, commit_timestamp, producer_id
FROM versions WHERE kind = 'commit'
