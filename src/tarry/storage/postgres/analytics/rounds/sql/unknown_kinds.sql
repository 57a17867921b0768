-- Kinds of events that a newer version of Tarry has added to the database, as it may during a rolling deploy.
select enumlabel::text as kind from pg_enum
where enumtypid = 'tarry.event_kind'::regtype and enumlabel::text <> all (%(known)s::text[])
order by 1
