-- Forget the oldest answers, a bounded number at a time, along answer_at.
with lead as materialized (
    select 1 from tarry.leader
    where name = %(leader)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    for share
), gone as (
    delete from tarry.answer
    where ctid = any (array(
        select ctid from tarry.answer
        where at < coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %(older_than)s)
          and (%(leader)s::text is null or exists (select from lead))
        order by at
        limit %(limit)s::int
        for update skip locked))
    returning 1
)
select count(*)::int from gone
