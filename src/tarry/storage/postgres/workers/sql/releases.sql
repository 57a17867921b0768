-- The releases that consumers have run since an instant: few rows each, and a bounded total.
select consumer, release, first_at, last_at from tarry.worker_release where last_at >= %(since)s::timestamptz
order by last_at desc, consumer limit 5000
