-- How many messages `d` a statement has settled, and the keys of these where it was not all.
-- one: (d.key is not null)::int as settled
count(d.key)::int as settled -- many
, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key::text) end as settled_keys -- many
