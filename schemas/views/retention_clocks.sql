-- For every stored offset: the clock from which its retention counts, and what keeps the offset at any age.
--
-- The rules are those of a broker since Kafka 2.1 (KIP-211), as `expire` applies them, except for what the tables do
-- not have: your retention times, records that are missing in the log, and topics that a live cluster does not have.
--
--   group_id         consumer group
--   topic            topic of the offset
--   partition        partition of that topic
--   committed_offset the committed offset
--   group_type       classic, consumer, share or streams; null if a tombstone of the group hides the offset
--   state            state of the group; null as for group_type
--   kept_by          quarantined (a later record could not be decoded: see unresolved_records), no_group, share_group,
--                    active_group, subscribed or pending_transaction; null if the age decides
--   clock            expire_timestamp (set by old clients), state_timestamp (since when the group is Empty) or
--                    commit_timestamp
--   clock_timestamp  value of the clock, in ms since the epoch; the offset expires at this time if the clock is
--                    expire_timestamp, otherwise when the retention time has passed since then
--
-- worst first: clock_timestamp, group_id, topic, partition
-- since: clock_timestamp
-- least important: group_type, committed_offset, state
SELECT offsets.group_id, offsets.topic, offsets.partition, offsets.committed_offset, groups.group_type, groups.state,
  CASE
    WHEN groups.state = 'Unknown' OR unknown.group_id IS NOT NULL OR offsets.log_offset < batches.log_offset
      THEN 'quarantined'
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
LEFT JOIN (
  SELECT DISTINCT group_id, topic, partition FROM unresolved_records WHERE scope = 'offset'
) AS unknown
  ON unknown.group_id = offsets.group_id AND unknown.topic = offsets.topic AND unknown.partition = offsets.partition
LEFT JOIN (
  SELECT log_partition, max(log_offset) AS log_offset FROM unresolved_records
  WHERE scope = 'log_partition' AND log_topic = '__consumer_offsets' GROUP BY log_partition
) AS batches ON batches.log_partition = offsets.log_partition
