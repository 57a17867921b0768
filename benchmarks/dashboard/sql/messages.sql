-- Live messages: of 100, 60 are due within a week, 39 are ready, one is leased.
insert into tarry.message (due_at, planned_at, created_at, queue, priority, conflict, lease_until, leased_at, token, attempt,
    consumer, key, payload, type, last_error)
select due_at, due_at, now() - interval '2 hours' - interval '1 day' * random(), 1 + n %% %(queues)s, case when n %% 10 = 0 then 7 else 5 end, 0,
    case when n %% 100 = 0 then now() + interval '1 hour' else '-infinity' end,
    case when n %% 100 = 0 then now() end, case when n %% 100 = 0 then n end, case when n %% 20 = 0 then 2 else 0 end,
    case when n %% 100 = 0 then 'worker-' || n / 100 %% %(consumers)s end, 'order-' || lpad(n::text, 8, '0'),
    convert_to(json_build_object('order', n, 'note', repeat('x', 100), 'customer',
        json_build_object('id', n %% 5000, 'country', (array['de', 'fr', 'us'])[1 + n %% 3]))::text, 'utf8'),
    (array['created', 'paid', 'shipped'])[1 + n %% 3], case when n %% 20 = 0 then %(error)s end
from (
    select n, case when n %% 100 between 1 and 60 then now() + interval '7 days' * random()
        else now() - interval '1 hour' * random() end as due_at
    from generate_series(1, %(messages)s) n
) rows
