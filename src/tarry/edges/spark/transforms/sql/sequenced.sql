-- Each message event with its history, which the event itself does not contain. The lag of a delivery needs the end of the lease
-- lost before it, and `expired` does not have the consumer that lost it. `refused` and `discarded` are not part of the life of a
-- live row: the first is not written under its lock, the second belongs to a dead letter.
-- carried: the versions that were open before; a live one is one event here that stands for its history.
with life as (
    select id, xid, at, kind, queue_id, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer, size, error,
        detail, false as is_carried,
        if(kind in ('offered', 'updated', 'edited', 'redriven'), struct(version, at), null) as created,
        if(kind in ('leased', 'touched'), struct(version, id, at, lease_until, consumer), null) as held,
        if(kind = 'released', struct(version, at), null) as released
    from {events}
    where kind in ('offered', 'updated', 'edited', 'redriven', 'leased', 'touched', 'nacked', 'released', 'expired', 'acked',
        'dropped', 'buried', 'cron_replaced')
    union all
    select last_id, null, null, coalesce(last_kind, 'carried'), queue_id, queue, key, version, null, null, null, null, null, null, null, null, null,
        true, struct(version, offered_at as at),
        if(held is null, null, struct(version, held.id, held.at, held.lease_until, held.consumer)),
        if(released_at is null, null, struct(version, released_at as at))
    from {carried}
    where settled is null
), followed as (
    select * except (created, held, released),
        last_value(created, true) over until_now as created,
        last_value(held, true) over until_before as held,
        last_value(released, true) over until_before as released,
        lag(struct(kind, version)) over (partition by queue_id, key order by id) as before
    from life
    window until_now as (partition by queue_id, key order by id rows between unbounded preceding and current row),
        until_before as (partition by queue_id, key order by id rows between unbounded preceding and 1 preceding)
), beside as (
    select *, false as is_carried, null as created, null as held, null as released, null as before
    from (
        select id, xid, at, kind, queue_id, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer, size,
            error, detail
        from {events}
        where kind in ('refused', 'discarded')
    )
), known as (
    select * except (created, held, released, is_carried), kind in ('refused', 'discarded') as is_beside, held as last_held,
        if(created.version = version, created, null) as created,
        if(held.version = version, held, null) as held,
        if(released.version = version, released, null) as released,
        if(kind = 'buried', get_json_object(detail, '$.reason'), null) as reason
    from (select * from followed where not is_carried union all select * from beside)
)
select * except (created, held, released, is_beside),
    if(is_beside, null, coalesce(before.kind not in ('acked', 'dropped', 'buried', 'cron_replaced'), false)) as was_live,
    -- The poll that buries an exhausted message is the consumer of `expired`, but did not lose the lease.
    if(kind in ('released', 'expired'), held.consumer, consumer) as holder,
    -- Deliverable since: due, created, and not leased. After a lost lease that is its end, after a release the release.
    if(kind = 'leased',
        unix_micros(at)
            - unix_micros(greatest(due_at, created.at, if(before.kind = 'expired', held.lease_until, null), released.at)),
        null) as lag_us,
    if(kind = 'leased', unix_micros(at) - unix_micros(created.at), null) as wait_us,
    -- Unknown for a lease that expired or was released, for the burial after the last nack or expiry, and for a payload
    -- that could not be decoded.
    if(kind in ('acked', 'nacked') or reason = 'buried', unix_micros(at) - unix_micros(leased_at), null) as worked_us
from known
