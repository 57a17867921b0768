-- Keep answers, in the transaction of what they tell of. In the order of their keys (lock order). Whoever says the same is
-- waited for here; fewer are then kept than were given, and the caller takes everything back.
with kept as (
    insert into tarry.answer (caller, key, fingerprint, status, body, at)
    select w.caller, w.key, w.fingerprint, w.status, w.body, coalesce(%(now)s::timestamptz, clock_timestamp())
    from unnest(%(callers)s::text[], %(keys)s::text[], %(fingerprints)s::bytea[], %(statuses)s::smallint[],
        %(bodies)s::bytea[]) as w(caller, key, fingerprint, status, body)
    order by w.caller collate "C", w.key collate "C"
    on conflict (caller, key) do nothing
    returning 1
)
select count(*)::int from kept
