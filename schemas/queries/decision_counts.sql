-- Decisions by their newest outcome. {decisions} is newest_decisions.sql; {condition} limits the decisions.
SELECT outcome, rule, count(*) AS decisions FROM ({decisions}) WHERE {condition}
GROUP BY outcome, rule ORDER BY decisions DESC, outcome, rule
