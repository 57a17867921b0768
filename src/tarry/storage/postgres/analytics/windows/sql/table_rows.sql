-- Estimated numbers of rows, for the number of ranges.
select greatest(reltuples, pg_relation_size(oid) / 200)::bigint as rows, pg_relation_size(oid) / 8192 as blocks
from pg_class where oid = %(relation)s::regclass
