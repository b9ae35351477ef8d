-- When groups that had had members had none: a commit at that time comes from a tool or a job, not from a member.
--
-- The periods are derived from the group records: for classic groups from the members in each record, for consumer and
-- streams groups from the members that joined and left. A group that never had a member, which only commits, is
-- omitted.
--
--   group_id        group
--   log_partition   partition of the log topic
--   from_log_offset log offset of the record with which the last member left
--   to_log_offset   log offset of the next record about its members, exclusive; null if the group is still empty
--   from_timestamp  when the last member left, in ms since the epoch; null if the log has no timestamps
--
-- worst first: from_timestamp DESC, group_id
-- since: from_timestamp
-- by log partition
WITH
classic AS (
  SELECT group_id, log_partition, log_offset, log_timestamp, CASE
    WHEN value LIKE '%"members":[]%' AND value NOT LIKE '%"generation":0,%' THEN 0 ELSE 1
  END AS members
  FROM group_records WHERE record_name = 'GroupMetadata'
),
members AS (
  SELECT group_id, log_partition, log_offset, log_timestamp, there, coalesce(
    lag(there) OVER (PARTITION BY log_partition, group_id, member_id ORDER BY log_offset), 0
  ) AS was_there
  FROM (
    SELECT *, CASE kind WHEN 'value' THEN 1 ELSE 0 END AS there FROM group_records
    WHERE record_name IN ('ConsumerGroupMemberMetadata', 'StreamsGroupMemberMetadata')
  ) AS of_members
),
counted AS (
  SELECT group_id, log_partition, log_offset, log_timestamp, members FROM classic
  UNION ALL
  SELECT group_id, log_partition, log_offset, log_timestamp, sum(there - was_there) OVER (
    PARTITION BY log_partition, group_id ORDER BY log_offset ROWS UNBOUNDED PRECEDING
  ) AS members
  FROM members
),
periods AS (
  SELECT *,
    lead(log_offset) OVER (PARTITION BY log_partition, group_id ORDER BY log_offset) AS to_log_offset
  FROM counted
)
SELECT group_id, log_partition, log_offset AS from_log_offset, to_log_offset, log_timestamp AS from_timestamp
FROM periods WHERE members = 0
