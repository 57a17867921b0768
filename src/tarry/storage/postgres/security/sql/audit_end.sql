-- How it ended, and what was only known then: it is added to the detail.
update tarry.audit
set status = %(status)s, detail = coalesce(detail || %(detail)s::jsonb, detail, %(detail)s::jsonb)
where id = %(id)s
returning id
