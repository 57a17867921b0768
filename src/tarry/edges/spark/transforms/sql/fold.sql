-- The state of every version that is open or had events. The events of a version fold into one row by sums, minima and
-- maxima only, so folding yesterday's result with today's events equals folding all events.
-- carried: yesterday's result. fresh: an event contributed, not only the carried row. was_open: there was a carried row.
-- is_open: later events can change it. It is live, or dead and may be redriven; lost counts only without an end.
with event as (
    select *, kind in ('offered', 'updated', 'edited', 'redriven') as creates,
        if(kind = 'redriven', bigint(get_json_object(detail, '$.from_version')), null) as origin
    from {sequence}
    where kind <> 'refused'
), contribution as (
    -- To the version of the event, to the version that it ended, and to the dead version that it redrove.
    select *, inline(array_compact(array(
        struct(version as about, 'self' as role),
        if(creates and was_live and before.version <> version, struct(before.version as about, 'ended' as role), null),
        if(origin is not null, struct(origin as about, 'origin' as role), null))))
    from event
), part as (
    select *, role = 'self' as own, role = 'self' and creates as created,
        -- An update ends the version before it. Any other new version of a live key means that its end was not journaled.
        role = 'ended' and kind in ('updated', 'edited') as replaced,
        role = 'ended' and kind not in ('updated', 'edited') as missed,
        case when role = 'self' then
            case kind when 'acked' then 'done' when 'dropped' then 'dropped' when 'buried' then 'dead'
                when 'cron_replaced' then 'dropped' end
        when role = 'ended' and kind in ('updated', 'edited') then 'superseded' end as outcome
    from contribution
), every as (
    select queue_id, queue, key, about as version, id as last_id, if(created, at, null) as offered_at,
        if(created, due_at, null) as due_at, if(own, origin, null) as origin, if(created, size, null) as size,
        if(own, priority, null) as priority, if(own and kind = 'leased', at, null) as first_leased_at,
        if(own and kind = 'released', at, null) as released_at, bigint(own and kind = 'leased') as leases,
        bigint(own and kind = 'released') as releases, bigint(own and kind = 'expired') as expiries,
        if(own and kind = 'expired', attempt, null) as expired_attempt, if(own, worked_us, null) as processing_us,
        if(own and kind in ('leased', 'touched'), struct(id, at, lease_until, consumer), null) as held,
        if(own and error is not null, struct(id, error), null) as failed,
        if(outcome is null, null, struct(id, at, outcome, reason, if(own, attempt, null) as attempt)) as settled,
        if(missed, struct(id, at), null) as lost, if(role = 'origin', at, null) as redriven_at,
        if(own and kind = 'discarded', at, null) as discarded_at, if(own, kind, null) as last_kind, true as fresh
    from part
    union all
    select *, false from {carried}
)
select *, redriven_at is null and discarded_at is null and coalesce(settled.outcome = 'dead', lost is null) as is_open
from (
    select queue_id, max_by(queue, last_id) as queue, key, version, max(last_id) as last_id, max(offered_at) as offered_at,
        max(due_at) as due_at, max(origin) as origin, max(size) as size, max(priority) as priority,
        min(first_leased_at) as first_leased_at, max(released_at) as released_at, sum(leases) as leases, sum(releases) as releases,
        sum(expiries) as expiries, max(expired_attempt) as expired_attempt, sum(coalesce(processing_us, 0)) as processing_us,
        -- Structs compare by their first field, the event id: the latest wins.
        max(held) as held, max(failed) as failed, max(settled) as settled, max(lost) as lost, max(redriven_at) as redriven_at,
        max(discarded_at) as discarded_at, max(if(last_kind is null, null, struct(last_id, last_kind))).last_kind as last_kind,
        max(fresh) as fresh, not min(fresh) as was_open
    from every
    group by queue_id, key, version
)
