-- The newest translation of each offset, if the offset still has its value.
SELECT group_id, topic, evidence, committed_offset, commit_timestamp FROM (
  SELECT done.group_id, done.topic, done.evidence, done.committed_offset, done.commit_timestamp, now.committed_offset AS present,
    row_number() OVER (PARTITION BY done.group_id, done.topic, done."partition" ORDER BY done.run_id DESC) AS number
  FROM alterations AS done JOIN offsets AS now
    ON now.group_id = done.group_id AND now.topic = done.topic AND now."partition" = done."partition"
  WHERE done.strategy = 'translate' AND done.outcome = 'done'
) AS newest WHERE number = 1 AND committed_offset = present
