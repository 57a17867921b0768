-- A bounded number of facts that ended long ago: repeated until none is left, so that no transaction is long.
with old as materialized (
    select ctid from tarry.message_fact where settled_at < %(before)s limit %(limit)s::int
), gone as (
    delete from tarry.message_fact where ctid = any (array(select ctid from old)) returning 1
)
select count(*) from gone
