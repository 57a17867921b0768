-- The past days of the journal that no queue retains, oldest first, whether each has its own partition, whether this role may
-- drop it, and whether a lake exists. A day is dropped as a whole, so the longest retention of all queues decides; that of a
-- deleted queue counts until its last event is older.
with first as materialized (
    select ((clock_timestamp() - coalesce(max(retention_for), %(default)s::interval)) at time zone 'UTC')::date as day
    from tarry.queue where deleted_at is null or deleted_at > clock_timestamp() - retention_for
), expired as (
    select to_date(substr(c.relname, 7), 'YYYYMMDD') as day, true as is_partition
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'tarry.event'::regclass and c.relname ~ '^event_[0-9]{8}$'
    union all
    select distinct (at at time zone 'UTC')::date, false
    from tarry.event_overflow
    where at < (select day from first)::timestamp at time zone 'UTC'
)
select expired.day, expired.is_partition, pg_has_role(c.relowner, 'usage') as may,
    exists (select from tarry.archive_batch where state <> 'abandoned') as has_lake
from expired join first on expired.day < first.day join pg_class c on c.oid = 'tarry.event'::regclass
order by 1, 2
