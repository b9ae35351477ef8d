-- Which groups no consumer uses any more, or have offsets of topics that no consumer reads, and since when: candidates
-- for `offsetlake cleanup`.
--
-- Only idle offsets count: those not committed for two days before the newest record in the lake, so that a nightly job
-- is not listed between two of its runs. Offsets with a timestamp before the epoch or after that record are not idle,
-- because it is unknown when they were committed. A group that commits without members, as a consumer does that assigns its
-- partitions itself, is not listed while it commits. A group whose state is Unknown is not listed either.
--
-- A group is listed if a tombstone has deleted it and offsets are left; if some of its topics do not exist any more (as
-- an `expire` with a live cluster found; the log does not tell); if it has no members, and no group with members that
-- reads any of its topics has offsets of it; or if it has members, and offsets of topics to which they do not
-- subscribe.
--
--   group_id            consumer group
--   why                 group_gone, topics_deleted, no_members or not_subscribed: the first that applies
--   state               state of the group; null if it was deleted
--   topics              number of topics it has offsets of
--   deleted_topics      number of these topics that do not exist any more
--   unsubscribed_topics number of these topics to which its members (without members: the members of any group) do not
--                       subscribe
--   offsets             number of its offsets
--   since_timestamp     newest commit of these idle offsets, in ms since the epoch
--   idle_ms             time from then to the newest record in the lake
--
-- worst first: offsets DESC, group_id
-- since: since_timestamp
-- least important: idle_ms, deleted_topics, unsubscribed_topics, state
WITH
stored AS (
  SELECT group_id, topic, offsets, last_commit_timestamp,
    CASE
      WHEN last_commit_timestamp >= 0 AND clock_timestamp - last_commit_timestamp >= 172800000 THEN 1
      ELSE 0
    END AS is_idle
  FROM (
    SELECT group_id, topic, count(*) AS offsets, max(coalesce(log_timestamp, commit_timestamp)) AS last_commit_timestamp
    FROM offsets GROUP BY group_id, topic
  ) AS of_topics
  CROSS JOIN log_clock
),
deleted AS (SELECT DISTINCT topic FROM tombstones WHERE rule = 'topic_deleted'),
read_topics AS (
  SELECT DISTINCT stored.topic FROM groups JOIN stored ON groups.group_id = stored.group_id
  WHERE groups.member_count > 0
    AND (groups.subscription = 'everything' OR array_contains(groups.subscribed_topics, stored.topic))
),
-- Each join keeps its first side in memory, which is the smaller one.
of_groups AS (
  SELECT stored.*, groups.state, groups.member_count,
    CASE WHEN groups.group_id IS NULL THEN 1 ELSE 0 END AS is_gone,
    CASE
      WHEN groups.group_id IS NULL OR groups.subscription = 'everything' THEN 1
      WHEN groups.member_count > 0 AND array_contains(groups.subscribed_topics, stored.topic) THEN 1
      ELSE 0
    END AS is_subscribed
  FROM groups RIGHT JOIN stored ON groups.group_id = stored.group_id
),
compared AS (
  SELECT of_groups.*, CASE WHEN deleted.topic IS NULL THEN 0 ELSE of_groups.is_idle END AS is_deleted
  FROM deleted RIGHT JOIN of_groups ON deleted.topic = of_groups.topic
),
evaluated AS (
  SELECT compared.*,
    CASE
      WHEN is_subscribed = 1 OR (member_count = 0 AND read_topics.topic IS NOT NULL) THEN 0
      ELSE is_idle
    END AS is_unsubscribed
  FROM read_topics RIGHT JOIN compared ON read_topics.topic = compared.topic
),
counted AS (
  SELECT group_id, state, member_count, is_gone, count(*) AS topics, CAST(sum(is_deleted) AS BIGINT) AS deleted_topics,
    CAST(sum(is_unsubscribed) AS BIGINT) AS unsubscribed_topics, CAST(sum(offsets) AS BIGINT) AS offsets,
    CAST(sum(is_idle) AS BIGINT) AS idle_topics,
    max(CASE WHEN is_gone + is_deleted + is_unsubscribed > 0 THEN last_commit_timestamp END) AS since_timestamp
  FROM evaluated GROUP BY group_id, state, member_count, is_gone
)
SELECT group_id,
  CASE
    WHEN is_gone = 1 THEN 'group_gone'
    WHEN deleted_topics > 0 THEN 'topics_deleted'
    WHEN member_count = 0 THEN 'no_members'
    ELSE 'not_subscribed'
  END AS why,
  state, topics, deleted_topics, unsubscribed_topics, offsets, since_timestamp,
  clock_timestamp - greatest(since_timestamp, 0) AS idle_ms
FROM counted CROSS JOIN log_clock
WHERE ((is_gone = 1 AND idle_topics = topics) OR deleted_topics > 0
  OR (member_count = 0 AND unsubscribed_topics = topics) OR (member_count > 0 AND unsubscribed_topics > 0))
  AND coalesce(state, '') <> 'Unknown'
