-- How many messages `d` a statement has settled, and the keys of these where it was not all.
count(d.key)::int as settled
, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key) end as settled_keys -- many
