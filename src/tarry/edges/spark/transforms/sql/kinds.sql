-- The kinds of these events, and the instant of the first one that is new, in microseconds.
select collect_set(kind) as kinds, min(if(round > :judged, unix_micros(at), null)) as first from {events}
