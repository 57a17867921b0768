-- Drop a day's partition, if nothing has come to it since it was found to be archived.
select tarry.journal_drop(%(day)s::date, %(rows)s::bigint)
