-- Which releases consumers ran since then: few rows each, and a bounded number of all.
select consumer, release, first_at, last_at from tarry.worker_release where last_at >= %(since)s::timestamptz
order by last_at desc, consumer limit 5000
