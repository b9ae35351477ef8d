-- Each decision of `tombstones` once, with its newest outcome. A decision is about a commit (or the newest record of a
-- group), so a later commit of the same key is the subject of another decision. Decisions of runs before {since_run} are
-- omitted.
SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY group_id, topic, "partition", judged_offset ORDER BY run_id DESC
  ) AS newest FROM tombstones WHERE run_id >= {since_run}
) WHERE newest = 1
