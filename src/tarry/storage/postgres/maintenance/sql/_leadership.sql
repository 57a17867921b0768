-- One row if the caller is still the leader. The share lock lasts until the transaction ends, so leadership cannot pass to
-- another process while the statement writes.
leadership as materialized (
    select 1 from tarry.leader
    where name = %(leader)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    for share
)
