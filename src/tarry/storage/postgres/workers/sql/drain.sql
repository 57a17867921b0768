-- Request that the workers of a consumer drain. The time of the first request is kept.
with changed as (
    update tarry.worker set drain_at = coalesce(drain_at, %(now)s::timestamptz, clock_timestamp())
    where consumer = %(consumer)s::text and seen_at >= coalesce(%(now)s::timestamptz, clock_timestamp()) - %(kept_for)s::interval
    returning 1
)
select count(*) from changed
