-- The change of each queue's depth per date: the baseline of later dates.
select queue_id, date, sum(net) as net, sum(dead_net) as dead_net from {metrics} group by queue_id, date
