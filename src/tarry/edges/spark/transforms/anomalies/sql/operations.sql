-- Per queue and transaction: the number of its messages, and its time range.
select queue_id, xid, max_by(queue, id) as queue, min(id) as id, count(distinct id) as count, min(at) as window_from,
    max(at) as window_to, date_from_unix_date(int(floor(unix_seconds(min(at)) / 86400))) as date
from {events}
group by queue_id, xid
