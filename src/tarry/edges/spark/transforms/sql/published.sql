-- The facts, in their published form. An expiry that ended in the dead letters was no redelivery.
select queue_id, queue, key, version, origin, priority, size, offered_at, due_at, first_leased_at,
    coalesce(settled.at, lost.at, redriven_at, discarded_at) as settled_at,
    case when redriven_at is not null then 'redriven' when settled is not null then settled.outcome
        when discarded_at is not null then 'dead' when lost is not null then 'unknown' else 'live' end as outcome,
    settled.reason, int(leases - releases) as attempts,
    int(expiries - coalesce(int(settled.outcome = 'dead' and settled.attempt = expired_attempt), 0)) as redeliveries,
    int(releases) as releases,
    (unix_micros(first_leased_at) - unix_micros(greatest(due_at, offered_at))) / 1000000D as wait_s,
    processing_us / 1000000D as processing_s, held.consumer, failed.error as last_error, last_id,
    date_from_unix_date(int(floor(unix_seconds(settled_at) / 86400))) as date
from {known}
