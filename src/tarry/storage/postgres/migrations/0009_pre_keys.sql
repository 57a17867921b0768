-- API keys of the broker, and what was done with the powers they give.

create table tarry.api_key (
    id text primary key check (id ~ '^[0-9a-f]{12}$'),
    name text not null,
    secret_hash bytea not null check (octet_length(secret_hash) = 32),  -- SHA-256: the key itself is nowhere
    actions text[] not null check (cardinality(actions) > 0 and actions <@ array['read', 'produce', 'consume', 'admin']),
    queues text[] not null check (cardinality(queues) > 0),  -- names, or beginnings of names followed by *
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz  -- a revoked key stays, so that the audit can name it
);

-- Written before the action, completed with the answer: an action without a row cannot happen.
create table tarry.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text not null,
    action text not null,
    queue text,
    detail jsonb,
    request_id text,
    status int
);
