-- How it ended.
update tarry.audit set status = %(status)s where id = %(id)s returning id
