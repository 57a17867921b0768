-- Administrative actions of five keys.
insert into tarry.audit (at, actor, action, queue, detail, status)
select now() - n * interval '1 minute', 'key-' || n %% 5, 'dashboard: pause a queue', 'queue-00000', '{}', 303
from generate_series(%(audits)s, 1, -1) n
