-- Every change of every offset: old and new value, kind of change, and the decision that caused it, if known.
--
-- The kind of a change is the first that applies:
-- * expiry: a tombstone that retention planned and `emit` wrote, or one that another program wrote (such as the broker)
-- for a commit whose tombstone retention had planned.
-- * delete: any other tombstone. The log does not tell whether a tool, a client, or a broker wrote it.
-- * undelete: a run of offsetlake set an offset that a tombstone had deleted.
-- * reset: a run of offsetlake set the offset (but `repair` restores the former value, which is no reset); or a plain
-- commit was made while a group that had had members had none, so that not a member but a tool made it, or a consumer
-- that assigns its partitions itself.
-- * rewind: a value lower than the one in force, and none of the above explains it.
-- * skip ahead: an increase larger than all other increases of that offset together, if there are at least two others.
-- No absolute length is too large; a burst after a quiet time can look the same.
-- * commit: all others, including the first commit and a commit of the same value.
-- The tombstone of a group, which hides its offsets until it commits again, is no change of an offset.
--
--   group_id            consumer group
--   topic               topic of the offset
--   partition           partition of that topic
--   effective_timestamp when it took effect, in ms since the epoch; null if the log has no timestamps
--   change              expiry, delete, undelete, reset, rewind, skip ahead or commit
--   old_offset          the offset before; null if there was none, or history does not have it
--   new_offset          the offset after; null if there is none
--   difference          new_offset minus old_offset; null if one of them is null
--   run_id              run of offsetlake that decided it: runs.run_id; null if none did
--   decision            strategy (of `alterations`) or rule (of `tombstones`) of the decision
--   evidence            basis of the decision
--   producer_id         id of the transactional producer; null for a commit without a transaction
--   log_partition       partition of the log topic
--   log_offset          log offset of the commit or tombstone
--
-- worst first: effective_timestamp DESC, log_partition, log_offset DESC
-- since: effective_timestamp
-- least important: evidence, producer_id, log_partition, log_offset, decision, run_id, difference
-- outcomes in this order: effective_timestamp DESC, log_partition, log_offset DESC
-- by log partition
WITH
steps AS (
  SELECT *,
    sum(ahead) OVER (PARTITION BY log_partition, group_id, topic, partition) AS all_ahead,
    count(ahead) OVER (PARTITION BY log_partition, group_id, topic, partition) AS steps_ahead
  FROM (
    SELECT *, CASE
      WHEN new_offset > old_offset THEN CAST(new_offset AS DOUBLE) - CAST(old_offset AS DOUBLE)
    END AS ahead
    FROM commit_steps
  ) AS measured
),
decisions AS (
  SELECT log_partition, log_offset, run_id, strategy AS decision, evidence, FALSE AS is_retention
  FROM alterations WHERE outcome = 'done'
  UNION ALL
  SELECT log_partition, log_offset, run_id, rule AS decision, CAST(NULL AS STRING) AS evidence,
    rule <> 'cleanup' AS is_retention
  FROM tombstones WHERE outcome = 'emitted' AND topic IS NOT NULL
),
foreseen AS (
  SELECT log_partition, judged_offset, max(run_id) AS run_id, max(rule) AS rule
  FROM tombstones WHERE outcome = 'gone' AND topic IS NOT NULL AND rule <> 'cleanup'
  GROUP BY log_partition, judged_offset
)
SELECT steps.group_id, steps.topic, steps.partition, steps.effective_timestamp,
  CASE
    WHEN steps.kind = 'tombstone' AND (decisions.is_retention OR foreseen.rule IS NOT NULL) THEN 'expiry'
    WHEN steps.kind = 'tombstone' THEN 'delete'
    WHEN decisions.decision <> 'repair' AND steps.old_offset IS NULL AND steps.old_log_offset IS NOT NULL THEN 'undelete'
    WHEN decisions.decision <> 'repair' THEN 'reset'
    WHEN steps.producer_id IS NULL AND empty_periods.group_id IS NOT NULL AND decisions.decision IS NULL THEN 'reset'
    WHEN steps.new_offset < steps.old_offset THEN 'rewind'
    WHEN steps.ahead > steps.all_ahead - steps.ahead AND steps.steps_ahead > 2 THEN 'skip ahead'
    ELSE 'commit'
  END AS change,
  steps.old_offset, steps.new_offset,
  CAST(steps.new_offset AS DECIMAL(20)) - CAST(steps.old_offset AS DECIMAL(20)) AS difference,
  coalesce(decisions.run_id, CASE WHEN steps.kind = 'tombstone' THEN foreseen.run_id END) AS run_id,
  coalesce(decisions.decision, CASE WHEN steps.kind = 'tombstone' THEN foreseen.rule END) AS decision,
  decisions.evidence, steps.producer_id, steps.log_partition, steps.log_offset
FROM steps
LEFT JOIN decisions
  ON decisions.log_partition = steps.log_partition AND decisions.log_offset = steps.log_offset
LEFT JOIN foreseen
  ON foreseen.log_partition = steps.log_partition AND foreseen.judged_offset = steps.old_log_offset
LEFT JOIN empty_periods
  ON empty_periods.log_partition = steps.log_partition AND empty_periods.group_id = steps.group_id
  AND steps.log_offset > empty_periods.from_log_offset
  AND (steps.log_offset < empty_periods.to_log_offset OR empty_periods.to_log_offset IS NULL)
