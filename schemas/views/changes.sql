-- Every change of every offset: from what to what, of which kind, and by whose decision, as far as anybody knows.
--
-- The first that fits tells the kind:
-- * expiry: a tombstone that retention planned and `emit` wrote; or one that came without us (a broker's own) for a
-- commit that retention had planned to let go.
-- * delete: any other tombstone. Whether a tool, a client or a broker that nobody had judged for wrote it, no log tells.
-- * undelete: a run of ours set an offset where a tombstone had taken one.
-- * reset: a run of ours set it (`repair` sets what was there, and is no reset); or a plain commit came while a group that
-- had members had none: no member can have sent it, a tool did, or a consumer that assigns partitions to itself.
-- * rewind: less than was in force, and nothing above explains it.
-- * skip ahead: a step ahead longer than all other steps ahead of that offset together, where there are at least two
-- others. No length is too long in itself; a burst after a quiet time can look the same.
-- * commit: all else, also the first one and one of the value there was.
-- A tombstone of a group alone, which hides its offsets until it commits again, is no change of any offset.
--
--   group_id            consumer group
--   topic               topic the offset is of
--   partition           partition of that topic
--   effective_timestamp when it took effect, ms since the epoch; null: the log does not say
--   change              expiry, delete, undelete, reset, rewind, skip ahead or commit
--   old_offset          the offset before; null: none, or history does not have it
--   new_offset          the offset after; null: none
--   difference          new_offset less old_offset; null where one of them is
--   run_id              run of ours that decided it: runs.run_id; null: none
--   decision            its strategy (`alterations`) or rule (`tombstones`)
--   evidence            what the decision rests on
--   producer_id         transactional producer; null: none
--   log_partition       partition of the log topic
--   log_offset          where the commit or tombstone stands in it
--
-- worst first: effective_timestamp DESC, log_partition, log_offset DESC
-- since: effective_timestamp
-- least important: evidence, producer_id, log_partition, log_offset, decision, run_id, difference
-- by log partition
WITH
steps AS (
  SELECT *,
    sum(ahead) OVER (PARTITION BY group_id, topic, partition) AS all_ahead,
    count(ahead) OVER (PARTITION BY group_id, topic, partition) AS steps_ahead
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
