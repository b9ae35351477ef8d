-- Which offsets expire next, and when, with the seven days of retention that a broker has by default.
--
-- With other retention times, by your policy for groups and topics: `offsetlake expire --what-if`.
--
--   group_id          consumer group
--   topic             topic of the offset
--   partition         partition of that topic
--   committed_offset  the offset that expires
--   expires_timestamp when it expires, in ms since the epoch
--   remaining_ms      time from the newest record in the lake until then; negative if it may expire at any time
--   clock             the clock that determines its age: see retention_clocks
--   clock_timestamp   value of that clock, in ms since the epoch
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
