-- The number of settled messages `d`, and their keys unless all were settled.
-- one: (d.key is not null)::int as settled
count(d.key)::int as settled -- many
, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key::text) end as settled_keys -- many
