"""The statements of DelayedQueue on PostgreSQL, as its internals document gives them, with psycopg's placeholders."""

from __future__ import annotations

SCHEMA = (
    """
    CREATE TABLE "delayed_queue" (
        "id" BIGSERIAL PRIMARY KEY,
        "pKey" VARCHAR(200) NOT NULL,
        "pKind" VARCHAR(100) NOT NULL,
        "payload" BYTEA NOT NULL,
        "scheduledAt" BIGINT NOT NULL,
        "scheduledAtInitially" BIGINT NOT NULL,
        "lockUuid" VARCHAR(36) NULL,
        "createdAt" BIGINT NOT NULL
    )
    """,
    'CREATE UNIQUE INDEX "delayed_queue__PKeyPlusKindUniqueIndex" ON "delayed_queue"("pKey", "pKind")',
    'CREATE INDEX "delayed_queue__KindPlusScheduledAtIndex" ON "delayed_queue"("pKind", "scheduledAt")',
    'CREATE INDEX "delayed_queue__LockUuidPlusIdIndex" ON "delayed_queue"("lockUuid", "id")',
)

OFFER = """
    INSERT INTO "delayed_queue" ("pKey", "pKind", "payload", "scheduledAt", "scheduledAtInitially", "createdAt")
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT ("pKey", "pKind") DO NOTHING
"""

COLUMNS = (
    '"id", "pKey", "pKind", "payload", "scheduledAt", "scheduledAtInitially", "lockUuid", "createdAt"'  # as documented
)

SELECT_FIRST = f"""
    SELECT {COLUMNS}
    FROM "delayed_queue"
    WHERE "pKind" = %s AND "scheduledAt" <= %s
    ORDER BY "scheduledAt"
    LIMIT 1
    FOR UPDATE SKIP LOCKED
"""

ACQUIRE = """
    UPDATE "delayed_queue"
    SET "scheduledAt" = %s, "lockUuid" = %s
    WHERE "pKey" = %s AND "pKind" = %s AND "scheduledAt" = %s
"""

ACK = 'DELETE FROM "delayed_queue" WHERE "lockUuid" = %s'

ACQUIRE_MANY = """
    UPDATE "delayed_queue"
    SET "lockUuid" = %s, "scheduledAt" = %s
    WHERE "id" IN (
        SELECT "id"
        FROM "delayed_queue"
        WHERE "pKind" = %s AND "scheduledAt" <= %s
        ORDER BY "scheduledAt"
        LIMIT %s
        FOR UPDATE SKIP LOCKED
    )
"""

SELECT_LOCKED = f"""
    SELECT {COLUMNS}
    FROM "delayed_queue"
    WHERE "lockUuid" = %s
    ORDER BY "id"
    LIMIT %s
"""

INSERT_CHUNK = 200


def existing(n: int) -> str:
    return f'SELECT "pKey" FROM "delayed_queue" WHERE "pKind" = %s AND "pKey" IN ({", ".join(["%s"] * n)})'


def insert(n: int) -> str:
    return (
        'INSERT INTO "delayed_queue" ("pKey", "pKind", "payload", "scheduledAt", "scheduledAtInitially", "lockUuid", '
        f'"createdAt") VALUES {", ".join(["(%s, %s, %s, %s, %s, %s, %s)"] * n)}'
    )


# Not theirs: ways to prepare a measurement quickly.

FILL = """
    INSERT INTO "delayed_queue" ("pKey", "pKind", "payload", "scheduledAt", "scheduledAtInitially", "createdAt")
    SELECT 'filled-' || lpad(i::text, 29, '0'), %(kind)s, %(payload)s::bytea, t.at, t.at, %(now)s::bigint
    FROM generate_series(%(first)s::int, %(first)s::int + %(n)s::int - 1) i
        CROSS JOIN LATERAL (SELECT %(due)s::bigint + i / 10 AS at) t
"""

LEASE_EACH = """
    UPDATE "delayed_queue"
    SET "lockUuid" = gen_random_uuid()::text, "scheduledAt" = %s
    WHERE "id" IN (SELECT "id" FROM "delayed_queue" WHERE "pKind" = %s AND "lockUuid" IS NULL LIMIT %s)
    RETURNING "lockUuid"
"""
