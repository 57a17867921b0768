-- The names a queue had before, the latest last, at most ten: a settle or a repeated offer that was in flight while its queue
-- was renamed finds the queue by the name that the caller knows.
alter table tarry.queue add column former_names text[] not null default '{}';
