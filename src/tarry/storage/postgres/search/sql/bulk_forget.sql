-- Delete jobs beyond their retention, oldest first, and return their number.
with gone as (
    delete from tarry.bulk_job where id in (
        select id from tarry.bulk_job
        where ended_at < coalesce(%(now)s::timestamptz, clock_timestamp()) - %(kept_for)s::interval
        order by id limit %(limit)s::int)
    returning 1
)
select count(*)::int as forgotten from gone
