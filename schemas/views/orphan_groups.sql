-- Which groups nobody stands behind any more, or hold offsets of topics nobody reads: candidates for `offsetlake cleanup`.
--
-- A group is here if a tombstone has taken it and offsets are left; if some of its topics were found deleted (by an
-- `expire` that asked a live cluster: the log does not tell); if it has no members, and of none of its topics is there a
-- group with offsets whose members read it; or if it has members and offsets of topics they are not subscribed to.
--
--   group_id              consumer group
--   why                   group_gone, topics_deleted, nobody_reads or not_subscribed: the first that holds
--   state                 state of the group; null: it is gone
--   topics                of how many topics it has offsets
--   deleted_topics        how many of them were found deleted
--   unsubscribed_topics   how many of them its members, or where it has none anybody's, are not subscribed to
--   offsets               how many offsets it has
--   last_commit_timestamp when the newest of them was committed, ms since the epoch
--
-- worst first: offsets DESC, group_id
-- since: last_commit_timestamp
-- least important: last_commit_timestamp, deleted_topics, unsubscribed_topics
WITH
stored AS (
  SELECT group_id, topic, count(*) AS offsets, max(coalesce(log_timestamp, commit_timestamp)) AS last_commit_timestamp
  FROM offsets GROUP BY group_id, topic
),
deleted AS (SELECT DISTINCT topic FROM tombstones WHERE rule = 'topic_deleted'),
read_topics AS (
  SELECT DISTINCT stored.topic FROM stored JOIN groups ON groups.group_id = stored.group_id
  WHERE groups.member_count > 0
    AND (groups.subscription = 'everything' OR array_contains(groups.subscribed_topics, stored.topic))
),
judged AS (
  SELECT stored.group_id, stored.offsets, stored.last_commit_timestamp, groups.state, groups.member_count,
    CASE WHEN deleted.topic IS NULL THEN 0 ELSE 1 END AS is_deleted,
    CASE
      WHEN groups.group_id IS NULL OR groups.subscription = 'everything' THEN 0
      WHEN groups.member_count > 0 AND array_contains(groups.subscribed_topics, stored.topic) THEN 0
      WHEN groups.member_count = 0 AND read_topics.topic IS NOT NULL THEN 0
      ELSE 1
    END AS is_unsubscribed,
    CASE WHEN groups.group_id IS NULL THEN 1 ELSE 0 END AS is_gone
  FROM stored
  LEFT JOIN groups ON groups.group_id = stored.group_id
  LEFT JOIN deleted ON deleted.topic = stored.topic
  LEFT JOIN read_topics ON read_topics.topic = stored.topic
),
counted AS (
  SELECT group_id, state, member_count, is_gone, count(*) AS topics, CAST(sum(is_deleted) AS BIGINT) AS deleted_topics,
    CAST(sum(is_unsubscribed) AS BIGINT) AS unsubscribed_topics, CAST(sum(offsets) AS BIGINT) AS offsets,
    max(last_commit_timestamp) AS last_commit_timestamp
  FROM judged GROUP BY group_id, state, member_count, is_gone
)
SELECT group_id,
  CASE
    WHEN is_gone = 1 THEN 'group_gone'
    WHEN deleted_topics > 0 THEN 'topics_deleted'
    WHEN member_count = 0 THEN 'nobody_reads'
    ELSE 'not_subscribed'
  END AS why,
  state, topics, deleted_topics, unsubscribed_topics, offsets, last_commit_timestamp
FROM counted
WHERE is_gone = 1 OR deleted_topics > 0
  OR (member_count = 0 AND unsubscribed_topics = topics) OR (member_count > 0 AND unsubscribed_topics > 0)
