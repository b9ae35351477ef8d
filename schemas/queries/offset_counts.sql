-- The number of offsets of each of the groups {groups}. {partitions} lets files be skipped.
SELECT group_id, count(*) AS offsets FROM offsets
WHERE log_partition IN ({partitions}) AND group_id IN ({groups}) GROUP BY group_id
