-- Partitions are made without long work under a lock, however many events the overflow has.
-- Making one needs an exclusive lock on the overflow, into which every verb may be writing. Moving events costs 8 µs each
-- under it, and ATTACH reads the whole overflow. So events are moved only out of a small overflow (2 MB, some 14,000 events). A
-- large one is first proven to have nothing of the days ahead: a check constraint `closed_<first day>_<last day>`, added
-- NOT VALID (a moment), validated while everybody writes, relied on by ATTACH, and dropped. What the overflow has of today
-- stays there until it is pruned.

create function tarry.journal_overflow_is_large() returns boolean language sql stable as $$
    select pg_relation_size('tarry.event_overflow') > 2097152
$$;

-- The days that the overflow is closed to, if any.
create function tarry.journal_closed(out name text, out first date, out last date, out is_proven boolean)
language sql stable as $$
    select conname::text, to_date(split_part(conname::text, '_', 2), 'YYYYMMDD'),
        to_date(split_part(conname::text, '_', 3), 'YYYYMMDD'), convalidated
    from pg_constraint where conrelid = 'tarry.event_overflow'::regclass and conname ~ '^closed_[0-9]{8}_[0-9]{8}$'
$$;

-- Makes the partition of one day. True if it was made now; false also where the overflow is large and not proven to have
-- nothing of that day. Asked of pg_class, because to_regclass answers from a cache that waiting for an advisory lock does
-- not refresh.
create or replace function tarry.journal_partition(day date) returns boolean language plpgsql as $$
declare
    part text := format('event_%s', to_char(day, 'YYYYMMDD'));
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
    is_proven boolean := coalesce((select c.is_proven and day between c.first and c.last from tarry.journal_closed() c), false);
begin
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    if not is_proven and tarry.journal_overflow_is_large() then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('tarry.journal_partition'));
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    execute format('create table tarry.%I (like tarry.event including defaults including storage)', part);
    -- A row that came in between would be in the way of the partition.
    lock table tarry.event_overflow in access exclusive mode;
    if not is_proven then
        execute format(
            'with moved as (delete from tarry.event_overflow where at >= %L and at < %L returning *) '
            'insert into tarry.%I select * from moved', from_at, to_at, part);
    end if;
    execute format('alter table tarry.event attach partition tarry.%I for values from (%L) to (%L)', part, from_at, to_at);
    -- An empty table is born with its first range summarised, and every event would rewrite that summary: 1.2 KB of WAL.
    perform brin_desummarize_range(i.indexrelid, 0)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = format('tarry.%I', part)::regclass and c.relam = (select oid from pg_am where amname = 'brin');
    return true;
end $$;

-- The next step on the way to partitions beside a large overflow, one per transaction: close it, prove it, and, when the
-- partitions are made, open it again. True: there is another step. The days that it is closed to begin at least an hour from
-- now, and it is opened a quarter of an hour before they do: an event that finds neither a partition nor the overflow fails.
create function tarry.journal_step(days int) returns boolean language plpgsql as $$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    first date := ((clock_timestamp() + interval '1 hour') at time zone 'UTC')::date + 1;
    last date := today + days;
    closed record;
begin
    select * into closed from tarry.journal_closed();
    if closed.name is not null then
        if not closed.is_proven and closed.first::timestamp at time zone 'UTC' > clock_timestamp() + interval '15 minutes' then
            execute format('alter table tarry.event_overflow validate constraint %I', closed.name);
            return true;
        end if;
        execute format('alter table tarry.event_overflow drop constraint %I', closed.name);
        return false;
    end if;
    if not tarry.journal_overflow_is_large() or not exists (
        select from generate_series(first, last, '1 day') day where not exists (
            select from pg_class where relnamespace = 'tarry'::regnamespace and relname = 'event_' || to_char(day, 'YYYYMMDD')))
    then
        return false;
    end if;
    execute format('alter table tarry.event_overflow add constraint %I check (at < %L or at >= %L) not valid',
        format('closed_%s_%s', to_char(first, 'YYYYMMDD'), to_char(last, 'YYYYMMDD')),
        first::timestamp at time zone 'UTC', (last + 1)::timestamp at time zone 'UTC');
    return true;
end $$;
