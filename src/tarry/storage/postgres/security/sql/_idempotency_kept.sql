-- A step of an offer statement (`q`, `stored`) that stores the responses in key order (lock order, after the messages). A key
-- that has a response already is an error, which rolls the messages back.
-- With `outcomes`, each request has a response for every outcome. The planner hashes subqueries in an expression and would use
-- nested loops for a join.
, kept as (
    insert into tarry.stored_response (caller, key, fingerprint, status, body, at)
    select w.caller, w.key, w.fingerprint, w.status, w.body, coalesce(%(now)s::timestamptz, clock_timestamp())
    from q, unnest(%(callers)s::text[], %(request_keys)s::text[], %(fingerprints)s::bytea[], %(statuses)s::smallint[],
        %(bodies)s::bytea[]
        -- outcomes: , %(messages)s::text[], %(outcomes)s::text[]
        ) as w(caller, key, fingerprint, status, body
        -- outcomes: , message, outcome
        )
    -- outcomes: where w.outcome = case when w.message in (select s.key from stored s where s.created) then 'created'
    -- outcomes:     when w.message in (select s.key from stored s) then 'updated' else 'ignored' end
    order by w.caller collate "C", w.key collate "C"
)
