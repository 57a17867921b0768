-- The messages of these leases. Key and token are both compared, so a stale token finds nothing. Keys arrive sorted (lock
-- order). Each row is found along message_key, then by ctid: no other plan exists, whatever the table's statistics.
held as materialized (
    select h.key, h.token, found.ctid as tid, found.leased_at, found.consumer
    from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as h(key, token)
    cross join lateral (
        select m.ctid, m.leased_at, m.consumer from tarry.message m
        where m.key = h.key and m.queue = (select id from q) and m.token = h.token offset 0) found
)
