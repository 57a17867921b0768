-- Complete the record with the status and with details that were not known before.
update tarry.audit
set status = %(status)s, detail = coalesce(detail || %(detail)s::jsonb, detail, %(detail)s::jsonb)
where id = %(id)s
returning id
