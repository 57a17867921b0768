-- The kinds of these events, and the time of the first new event in microseconds.
select collect_set(kind) as kinds, min(if(round > :judged, unix_micros(at), null)) as first from {events}
