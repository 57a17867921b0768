-- Remove schedules that still have the revision that was read. Their ledgers stay.
delete from tarry.schedule s
using unnest(%(prefixes)s::text[], %(expected)s::bigint[]) as w(prefix, expected)
where s.prefix = w.prefix and s.revision = w.expected
returning s.prefix, coalesce(s.ledger, s.prefix) as ledger
