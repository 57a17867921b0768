-- Whether a scanned message `s` matches, apart from its due time and priority.
(%(state)s::text is null or s.state = %(state)s) and (%(key)s::text is null or s.key = %(key)s)
and (%(key_prefix)s::text is null or starts_with(s.key, %(key_prefix)s))
and (%(type)s::text is null or s.type = %(type)s) and (%(consumer)s::text is null or s.consumer = %(consumer)s)
and s.attempt between %(fewest)s::int and %(most)s::int
and s.created_at >= %(created_since)s::timestamptz and s.created_at < %(created_until)s::timestamptz
and (%(version)s::bigint is null or s.version = %(version)s) and (%(trace)s::text is null or starts_with(s.trace, %(trace)s))
and (%(lag_least)s::interval is null or s.lag >= %(lag_least)s)
and (%(lag_below)s::interval is null or s.lag < %(lag_below)s)
and (%(error)s::text is null or position(lower(%(error)s) in lower(s.last_error)) > 0)
