-- Recorded messages for the simulation of a queue, in seconds from the start. A version that was dropped or replaced before its
-- delivery leaves at that time. Live versions are excluded: their outcome is unknown.
select queue_id, (unix_micros(greatest(due_at, offered_at)) - :since_us) / 1000000D as at_s,
    coalesce(processing_s / greatest(attempts, 1), 0D) as service_s, coalesce(priority, 0) as priority,
    greatest(attempts - redeliveries - if(outcome = 'done', 1, 0), 0) as failures, redeliveries as losses,
    outcome in ('dead', 'redriven') as is_dead, coalesce(reason = 'buried', false) as is_buried,
    if(first_leased_at is null, (unix_micros(settled_at) - :since_us) / 1000000D, double('infinity')) as leaves_s,
    (unix_micros(first_leased_at) - :since_us) / 1000000D as start_s, (unix_micros(settled_at) - :since_us) / 1000000D as end_s,
    processing_s as worked_s
from {facts}
where outcome in ('done', 'dead', 'redriven') or (outcome in ('dropped', 'superseded') and first_leased_at is null)
