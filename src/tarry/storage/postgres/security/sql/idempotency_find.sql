-- The stored responses, by the index of the request. There is always one row, which sets the lock timeout of this transaction:
-- the wait for a request that another transaction is executing is short, so that group commits can set it aside. The row lock is
-- written to the WAL, so the commit waits for the disk and for a synchronous standby, like the commit of the first response: the
-- session of the first try may have ended while it waited, or the server may have been restarted.
with timeout as materialized (select set_config('lock_timeout', '200ms', true) as lock_timeout)
select found.place, found.fingerprint, found.status, found.body
from timeout p
left join (
    select w.place, a.fingerprint, a.status, a.body
    from unnest(%(callers)s::text[], %(keys)s::text[]) with ordinality as w(caller, key, place)
    join tarry.stored_response a on a.caller = w.caller and a.key = w.key
    for key share of a
) found on true
