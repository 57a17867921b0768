-- The input of metrics and consumer statistics; without keys and payloads, a small fraction of the journal.
-- net is not "+1 for offered": a queue whose journal was off for a while must not have a negative count for ever.
select id, xid, at, date_from_unix_date(int(floor(unix_seconds(at) / 86400))) as date, kind, queue_id, queue, version, attempt,
    holder as consumer, reason, size, lag_us, wait_us, worked_us as processing_us,
    if(was_live is null, 0, int(kind not in ('acked', 'dropped', 'buried', 'cron_replaced')) - int(was_live)) as net,
    case when kind = 'buried' then 1 when kind in ('redriven', 'discarded') then -1 else 0 end as dead_net
from {sequence}
