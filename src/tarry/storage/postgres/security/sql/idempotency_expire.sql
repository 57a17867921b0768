-- Delete the oldest stored responses, a bounded number at a time, along stored_response_at.
with
-- include: maintenance/_leadership
, gone as (
    delete from tarry.stored_response
    where ctid = any (array(
        select ctid from tarry.stored_response
        where at < coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %(older_than)s)
          and (%(leader)s::text is null or exists (select from leadership))
        order by at
        limit %(limit)s::int
        for update skip locked))
    returning 1
)
select count(*)::int from gone
