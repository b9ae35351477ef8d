-- For every stored offset: which clock retention goes by, what it says, and what keeps the offset whatever its age.
--
-- The rule of a broker since Kafka 2.1 (KIP-211), as `expire` applies it, but for the two things the tables do not hold:
-- how long your retention is, and which topics a live cluster has no more.
--
--   group_id        consumer group
--   topic           topic the offset is of
--   partition       partition of that topic
--   committed_offset the offset committed
--   group_type      classic, consumer, share or streams; null: a tombstone of the group hides the offset
--   state           state of the group; null as above
--   kept_by         no_group, share_group, active_group, subscribed or pending_transaction; null: its age decides
--   clock           expire_timestamp (of old clients), state_timestamp (the group's: since when it is Empty) or commit_timestamp
--   clock_timestamp what that clock says, ms since the epoch; the offset goes then, if the clock is expire_timestamp, else
--                   when it is as long ago as the retention
--
-- worst first: clock_timestamp, group_id, topic, partition
-- since: clock_timestamp
-- least important: group_type, committed_offset, state
SELECT offsets.group_id, offsets.topic, offsets.partition, offsets.committed_offset, groups.group_type, groups.state,
  CASE
    WHEN groups.group_id IS NULL THEN 'no_group'
    WHEN groups.group_type = 'share' THEN 'share_group'
    WHEN groups.group_type = 'classic' AND groups.protocol_type IS NOT NULL AND groups.state <> 'Empty' AND NOT (
      groups.protocol_type = 'consumer' AND groups.state = 'Stable' AND groups.subscription = 'known'
    ) THEN 'active_group'
    WHEN groups.subscription = 'everything' OR array_contains(groups.subscribed_topics, offsets.topic) THEN 'subscribed'
    WHEN pending.group_id IS NOT NULL THEN 'pending_transaction'
  END AS kept_by,
  CASE
    WHEN offsets.expire_timestamp IS NOT NULL THEN 'expire_timestamp'
    WHEN groups.group_type = 'classic' AND groups.protocol_type IS NOT NULL AND groups.state = 'Empty'
      AND groups.state_timestamp IS NOT NULL THEN 'state_timestamp'
    ELSE 'commit_timestamp'
  END AS clock,
  CASE
    WHEN offsets.expire_timestamp IS NOT NULL THEN offsets.expire_timestamp
    WHEN groups.group_type = 'classic' AND groups.protocol_type IS NOT NULL AND groups.state = 'Empty'
      AND groups.state_timestamp IS NOT NULL THEN groups.state_timestamp
    ELSE offsets.commit_timestamp
  END AS clock_timestamp
FROM offsets
LEFT JOIN groups ON groups.group_id = offsets.group_id
LEFT JOIN (SELECT DISTINCT group_id, topic, partition FROM pending_offsets) AS pending
  ON pending.group_id = offsets.group_id AND pending.topic = offsets.topic AND pending.partition = offsets.partition
