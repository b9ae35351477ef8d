-- The topics of groups of the view orphan_groups, by the conditions of that view: idle offsets of deleted topics or, if no
-- topic was deleted, of topics to which the members do not subscribe. {groups} is a list of groups.
SELECT stored.group_id, array_sort(array_agg(DISTINCT stored.topic)) AS topics
FROM (
  SELECT group_id, topic, max(coalesce(log_timestamp, commit_timestamp)) AS last_commit_timestamp
  FROM offsets WHERE group_id IN ({groups}) GROUP BY group_id, topic
) AS stored
JOIN orphan_groups ON orphan_groups.group_id = stored.group_id
CROSS JOIN log_clock
LEFT JOIN groups ON groups.group_id = stored.group_id
LEFT JOIN (SELECT DISTINCT topic FROM tombstones WHERE rule = 'topic_deleted') AS deleted
  ON deleted.topic = stored.topic
WHERE last_commit_timestamp >= 0 AND clock_timestamp - last_commit_timestamp >= 172800000
  AND CASE
    WHEN why = 'topics_deleted' THEN deleted.topic IS NOT NULL
    ELSE NOT array_contains(groups.subscribed_topics, stored.topic)
  END
GROUP BY stored.group_id
