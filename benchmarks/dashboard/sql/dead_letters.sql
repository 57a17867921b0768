-- Dead letters of five errors, spread over the last day.
insert into tarry.dead_letter (version, queue, died_at, due_at, created_at, priority, attempt, reason, key, payload, consumer,
    error, fingerprint)
select nextval('tarry.version_seq'), 1 + n %% %(queues)s, now() - n * (interval '1 day' / (%(dead)s + 1)),
    now() - interval '1 day', now() - interval '1 day', 5, 5, 'exhausted', 'dead-' || lpad(n::text, 8, '0'),
    convert_to(json_build_object('order', n, 'tenant', (array['acme', 'blue'])[1 + n %% 7 / 6])::text, 'utf8'),
    'worker-' || n %% %(consumers)s, (%(errors)s::text[])[1 + n / %(queues)s %% 5],
    (%(fingerprints)s::text[])[1 + n / %(queues)s %% 5]
from generate_series(1, %(dead)s) n
