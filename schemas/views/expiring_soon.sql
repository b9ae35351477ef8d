-- Which offsets go next, and when, if nothing else happens: by the seven days a broker keeps them unless told otherwise.
--
-- With another retention, by your policy of groups and topics: `offsetlake expire --what-if`.
--
--   group_id          consumer group
--   topic             topic the offset is of
--   partition         partition of that topic
--   committed_offset  the offset that goes
--   expires_timestamp when it goes, ms since the epoch
--   remaining_ms      from the newest record the lake has read until then; below 0: it may go at any time
--   clock             the clock that counts for it: see retention_clocks
--   clock_timestamp   what that clock says, ms since the epoch
--   state             state of the group
--
-- worst first: expires_timestamp, group_id, topic, partition
-- since: expires_timestamp
-- least important: clock_timestamp, clock, remaining_ms, state
SELECT ages.group_id, ages.topic, ages.partition, ages.committed_offset, ages.expires_timestamp,
  greatest(ages.expires_timestamp, 0) - log_clock.clock_timestamp AS remaining_ms, ages.clock, ages.clock_timestamp, ages.state
FROM (
  SELECT *, CASE clock
    WHEN 'expire_timestamp' THEN clock_timestamp ELSE least(clock_timestamp, 9223372036249975807) + 604800000
  END AS expires_timestamp
  FROM retention_clocks WHERE kept_by IS NULL
) AS ages
CROSS JOIN log_clock
