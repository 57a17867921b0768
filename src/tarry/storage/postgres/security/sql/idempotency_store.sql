-- Store responses in the transaction of their requests, in key order (lock order). The insert waits for a concurrent execution
-- of the same request; fewer rows than given are then stored, and the caller rolls back.
with kept as (
    insert into tarry.stored_response (caller, key, fingerprint, status, body, at)
    select w.caller, w.key, w.fingerprint, w.status, w.body, coalesce(%(now)s::timestamptz, clock_timestamp())
    from unnest(%(callers)s::text[], %(request_keys)s::text[], %(fingerprints)s::bytea[], %(statuses)s::smallint[],
        %(bodies)s::bytea[]) as w(caller, key, fingerprint, status, body)
    order by w.caller collate "C", w.key collate "C"
    on conflict (caller, key) do nothing
    returning 1
)
select count(*)::int as stored from kept
