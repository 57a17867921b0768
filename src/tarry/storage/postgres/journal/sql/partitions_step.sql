-- The next step towards partitions in addition to a large overflow, if this role may; true if another step follows. A separate
-- statement, because it alters the overflow, which nothing else in the statement may then read.
with
-- include: maintenance/_leadership
, timeout as materialized (
    select set_config('lock_timeout', '2s', true)
)
select case when has_schema_privilege('tarry', 'create') and pg_has_role(c.relowner, 'usage')
    and (%(leader)s::text is null or exists (select from leadership)) then tarry.journal_step(%(days)s::int) else false end as more
from pg_class c cross join timeout where c.oid = 'tarry.event'::regclass
