-- The ledger of a schedule; for a removed one, the ledger that its name used last. Relies on ledger_owner.
ledger(name) as materialized (
    select coalesce(
        (select coalesce(s.ledger, s.name) from tarry.schedule s where s.name = %(name)s),
        (select l.name from tarry.ledger l where l.schedule = %(name)s order by l.installed_at desc, l.name limit 1))
)
