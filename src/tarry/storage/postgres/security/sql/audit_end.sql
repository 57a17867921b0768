-- Complete the record with the status and later details.
update tarry.audit
set status = %(status)s, detail = coalesce(detail || %(detail)s::jsonb, detail, %(detail)s::jsonb)
where id = %(id)s
returning id
