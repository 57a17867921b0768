-- Delete a bounded number of old facts. Repeated until none is left, so that every transaction is short.
with old as materialized (
    select ctid from tarry.message_fact where settled_at < %(before)s limit %(limit)s::int
), gone as (
    delete from tarry.message_fact where ctid = any (array(select ctid from old)) returning 1
)
select count(*) from gone
