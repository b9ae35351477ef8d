-- Alterations, newest first, without plans that have an outcome by now. {where} is a WHERE clause or empty.
SELECT * FROM (
  SELECT * FROM (
    SELECT *, lead(outcome) OVER (PARTITION BY group_id, topic, "partition" ORDER BY run_id) AS next_outcome
    FROM alterations
  ) WHERE outcome <> 'planned' OR next_outcome IS NULL OR next_outcome = 'planned'
) {where} ORDER BY run_id DESC, group_id, topic, "partition", outcome
