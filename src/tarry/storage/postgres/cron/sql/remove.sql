-- Remove schedules whose revision is still the one that was read. Their ledgers stay.
delete from tarry.schedule s
using unnest(%(names)s::text[], %(expected)s::bigint[]) as w(name, expected)
where s.name = w.name and s.revision = w.expected
returning s.name, coalesce(s.ledger, s.name) as ledger
