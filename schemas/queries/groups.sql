-- Groups with the number of their offsets, without `replay_state`, which would be most of the memory of the join.
-- {where} is a WHERE clause or empty.
SELECT groups.* EXCLUDE (replay_state), coalesce(counted.offsets, 0) AS offsets FROM groups
LEFT JOIN (SELECT group_id, count(*) AS offsets FROM offsets GROUP BY group_id) AS counted
  ON counted.group_id = groups.group_id
{where} ORDER BY groups.group_id
