"""Which database errors are transient, and how the others are translated."""

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from tarry.core.errors import InvalidState, LockTimeout, SchemaMismatch, StoreUnavailable

# Certainly rolled back or never begun: a retry cannot execute anything twice.
_TRANSIENT = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.TooManyConnections,
    errors.CannotConnectNow,
    PoolTimeout,
)
LOCK_PAUSE_S = 0.05
"""Pause before the retry of a statement that ran into `lock_timeout`, which lets other operations use its connection."""

# The connection was lost, and a running statement may or may not be executed. All operations may be repeated: an offer of
# a stored message is ignored or updates it, a poll leaves a lease that expires, a settle finds the message gone, a redrive
# fixes its selection beforehand. The second result may differ from the first: see docs/decisions/0011.
_DISCONNECTED = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout)


def is_transient(error: BaseException) -> bool:
    if isinstance(error, _TRANSIENT + _DISCONNECTED):
        return True
    if isinstance(error, PoolClosed):
        return False
    if isinstance(error, errors.CheckViolation):
        # The event was routed to the overflow while the partition of its day was created, or just after the overflow was
        # closed to that day (tarry.journal_step). The retry finds the partition.
        return error.diag.table_name == "event_overflow" and (error.diag.constraint_name is None or _is_closed(error))
    if isinstance(error, errors.UniqueViolation):
        return error.diag.constraint_name == "queue_name"  # a concurrent rename or creation, which the retry finds
    # An error without SQLSTATE comes from libpq: connection refused, reset, or closed in mid-statement. With class 08 a
    # pooler reports that it lost its server (PgBouncer: 08P01, "server conn crashed?").
    broken = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return broken and (error.sqlstate is None or error.sqlstate.startswith("08"))


def translated(error: psycopg.Error, tries: int) -> BaseException:
    """The Tarry error to raise instead, or the same error if there is none."""
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return SchemaMismatch(
            "this database does not have Tarry's tables, or has them in another version",
            hint="run: tarry db migrate   (or tarry.connect(dsn, migrate=True))",
        )
    if isinstance(error, PoolClosed):
        return InvalidState("this store is closed", hint="use it inside its with block, or connect again")
    if isinstance(error, errors.LockNotAvailable):
        return LockTimeout(
            "another transaction has locked what this needs, and stayed open for too long; nothing was changed",
            hint="try again, or find the open transaction: select pid, state, xact_start, query from pg_stat_activity "
            "where backend_xid is not null order by xact_start",
        )
    if isinstance(error, errors.UniqueViolation) and error.diag.table_name == "stored_response":
        return LockTimeout("the same request was executed at the same time", hint="retry the request")
    if isinstance(error, errors.QueryCanceled):
        return StoreUnavailable(
            f"the database ended a statement: {_message(error)}; nothing of it was stored",
            hint="try again when the database is less busy, or give it longer: StoreSettings(statement_for=…)",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return InvalidState(f"this role lacks a right: {_message(error)}", hint="see what it lacks: tarry doctor")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(
            f"the database takes no changes: {_message(error)}",
            hint="it is a standby, or was made read-only; connect to the primary: tarry doctor",
        )
    if (error.sqlstate or "").startswith("53") and not is_transient(error):
        return StoreUnavailable(
            f"the server has run out of something: {_message(error)}",
            hint="make room on the server (disk, memory); nothing of this was stored",
        )
    if _is_closed(error):
        statement = f"select {error.diag.schema_name}.journal_step(7)"
        return StoreUnavailable(
            "the journal has no partition for this day, and its overflow is closed to it (constraint "
            f"{error.diag.constraint_name}): a process ended before it had made the partitions; nothing was stored",
            hint=f"run as the owner of the tables: tarry sweeper --once   (or in SQL: {statement})",
        )
    if is_transient(error):
        again = "" if tries <= 1 else f", also not after {tries - 1} more {'try' if tries == 2 else 'tries'}"
        return StoreUnavailable(
            f"the database cannot be reached{again}: {_message(error)}",
            hint="check the address and that the server runs: tarry doctor",
        )
    return error


def _is_closed(error: psycopg.Error) -> bool:
    """No partition for an event, and the overflow is closed to its day (tarry.journal_step)."""
    of_overflow = isinstance(error, errors.CheckViolation) and error.diag.table_name == "event_overflow"
    return of_overflow and (error.diag.constraint_name or "").startswith("closed_")


def _message(error: psycopg.Error) -> str:
    return str(error).strip() or type(error).__name__
