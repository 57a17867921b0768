-- What consumers did. A failure is a nack, or a burial requested by the consumer or caused by its decoder; a burial after the
-- last nack or expiry is already counted there. A consumer without a name is `unknown`.
select * except (consumer), coalesce(consumer, 'unknown') as consumer,
    kind = 'nacked' or (kind = 'buried' and reason in ('buried', 'undecodable')) as failed,
    timestamp_seconds(floor(unix_seconds(at) / 3600) * 3600) as hour
from {traced}
where kind in ('leased', 'acked', 'expired', 'released', 'nacked')
    or (kind = 'buried' and reason in ('buried', 'undecodable'))
