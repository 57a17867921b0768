-- A part of the events of messages that were offered, leased and acked within the last day, in the order of time, many per
-- transaction.
create procedure pg_temp.load_events(first bigint, last bigint, events bigint, batch bigint, queues int, consumers int) language plpgsql as $$
begin
    for begin_at in first..last by batch loop
        insert into tarry.event (at, version, due_at, leased_at, lease_until, kind, queue, attempt, size, priority, key, consumer)
        select at, n / 3, at - interval '2 seconds' * random(),
            case when n % 3 = 2 then at - interval '1 second' * random() end,
            case when n % 3 = 1 then at + interval '1 minute' end,
            (array['offered', 'leased', 'acked'])[1 + n % 3]::tarry.event_kind, 1 + n / 3 % queues, sign(n % 3)::int, 170, 5,
            'done-' || lpad((n / 3)::text, 8, '0'), case when n % 3 > 0 then 'worker-' || n / 3 % consumers end
        from (
            select n, now() - (events - n) * (interval '1 day' / events) as at
            from generate_series(begin_at, least(begin_at + batch - 1, last)) n
        ) rows;
        commit;
    end loop;
end $$
