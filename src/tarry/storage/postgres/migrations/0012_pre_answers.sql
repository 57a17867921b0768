-- Answers to requests that carry a key of their own, stored with what they tell of: a request that is said again, because its
-- answer was lost, is answered again and not carried out again. A sweeper forgets them after a day.
create table tarry.answer (
    caller text collate "C" not null,  -- id of the API key; empty without one
    key text collate "C" not null check (char_length(key) between 1 and 200),
    fingerprint bytea not null check (octet_length(fingerprint) = 32),
    status smallint not null,
    body bytea not null,
    at timestamptz not null,
    primary key (caller, key)
);
create index answer_at on tarry.answer (at);
