-- Queues with the settings of the one that the library has created.
insert into tarry.queue (name, lease_for, max_attempts, retry, journal, retention_for, target_lag_for, created_at, updated_at)
select 'queue-' || to_char(n, 'FM00000'), lease_for, max_attempts, retry, journal, retention_for, target_lag_for, created_at,
    updated_at
from tarry.queue cross join generate_series(1, %(queues)s - 1) n
