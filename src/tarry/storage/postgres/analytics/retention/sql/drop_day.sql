-- Drop the partition of a day, unless rows were added since it was found to be archived.
select tarry.journal_drop(%(day)s::date, %(rows)s::bigint)
