-- What was answered before, by the place of the request. Always one row more, for the patience of this transaction: a request
-- that another transaction is carrying out is waited for in short pieces, so that group commits can set it aside.
-- The row lock is written to the log, so the commit waits for the disk and for a synchronous standby, as that of the first
-- answer did: the session of the first try may have ended while it waited, or the server may have been restarted.
with patience as materialized (select set_config('lock_timeout', '200ms', true) as said)
select p.said, found.place, found.fingerprint, found.status, found.body
from patience p
left join (
    select w.place, a.fingerprint, a.status, a.body
    from unnest(%(callers)s::text[], %(keys)s::text[]) with ordinality as w(caller, key, place)
    join tarry.answer a on a.caller = w.caller and a.key = w.key
    for key share of a
) found on true
