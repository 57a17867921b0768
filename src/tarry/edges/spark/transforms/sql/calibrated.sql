-- Workers of a queue, from its facts: the number of concurrent leases, their mean duration, and the resulting throughput per
-- minute if no worker is idle. While messages waited, all workers were busy: the average number of leases over that time. If no
-- message waited longer than the mean duration: the maximum number of concurrent leases.
with worked as (
    select queue_id, unix_micros(first_leased_at) as start_us, processing_s / greatest(attempts, 1) as service_s, wait_s,
        avg(processing_s / greatest(attempts, 1)) over (partition by queue_id) as mean_s
    from {facts} where first_leased_at is not null and processing_s > 0
), moved as (
    select queue_id, start_us as us, 1 as lease, 0 as wait, service_s from worked
    union all
    select queue_id, start_us + bigint(service_s * 1000000), -1, 0, null from worked
    union all
    select queue_id, start_us - bigint(wait_s * 1000000), 0, 1, null from worked where wait_s > greatest(mean_s, 0.05)
    union all
    select queue_id, start_us, 0, -1, null from worked where wait_s > greatest(mean_s, 0.05)
), held as (
    select queue_id, service_s, sum(lease) over until_now as leases, sum(wait) over until_now as waiting,
        lead(us) over (partition by queue_id order by us, lease) - us as lasted
    from moved
    window until_now as (partition by queue_id order by us, lease rows between unbounded preceding and current row)
), counted as (
    select queue_id, avg(service_s) as service_s, count(service_s) as messages,
        coalesce(sum(if(waiting > 0 and leases > 0, leases * lasted, null)) / sum(if(waiting > 0 and leases > 0, lasted, null)),
            max(leases)) as workers
    from held
    group by queue_id
)
select queue_id, int(greatest(round(workers), 1)) as workers, service_s, messages, 60 * workers / service_s as capacity
from counted
