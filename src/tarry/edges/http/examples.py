"""What a request or an answer looks like, by the name of its schema: for the OpenAPI document, and checked against it."""

from __future__ import annotations

from typing import Any

_ID = "b3JkZXJzL29yZGVyLTE3"
_TOKEN = "3f0c3f8e-9d5c-4a71-8a5e-0d6f0b3c2a19"  # noqa: S105 - of nobody
_HELD = {"id": _ID, "lock_token": _TOKEN}
_OFFER = {"key": "order-17", "payload": {"total": 40}, "delay": "30m"}
_OFFERED = {"id": _ID, "key": "order-17", "outcome": "created"}
_DELIVERY = {
    "id": _ID,
    "queue": "orders",
    "key": "order-17",
    "version": 4,
    "lock_token": _TOKEN,
    "attempt": 1,
    "redelivered": False,
    "priority": 0,
    "type": None,
    "headers": None,
    "due_at": "2030-01-31T18:00:00.000000Z",
    "leased_at": "2030-01-31T18:00:00.003000Z",
    "lease_until": "2030-01-31T18:00:30.003000Z",
    "payload": {"total": 40},
    "content_type": "application/json",
}

EXAMPLES: dict[str, Any] = {
    "AckRequest": {"note": "the nightly import"},
    "BackfillRequest": {"since": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z", "dry_run": True},
    "BuryBatch": {"messages": [_HELD], "error": "no such customer"},
    "BuryRequest": {"lock_token": _TOKEN, "error": "no such customer"},
    "Deliveries": {"messages": [_DELIVERY]},
    "DueRequest": {"owned": ["reports"], "limit": 10},
    "EditRequest": {"priority": 9, "delay": "5m"},
    "KeyRequest": {"name": "shop", "actions": ["produce"], "queues": ["orders", "mails-*"], "expires_for": "90d"},
    "MuteRequest": {"queue": "orders", "detector": "burst_dequeue", "mute_for": "2h", "reason": "a load test"},
    "NackBatch": {"messages": [{**_HELD, "error": "card declined", "delay": "1m"}]},
    "NackRequest": {"lock_token": _TOKEN, "error": "card declined", "delay": "1m"},
    "OfferBatch": {"messages": [_OFFER, {"payload": "hello"}]},
    "OfferRequest": _OFFER,
    "Offered": _OFFERED,
    "OfferedBatch": {"messages": [_OFFERED]},
    "PlanRequest": {
        "rulings": [
            {
                "prefix": "daily-report",
                "expected": 3,
                "ruled_at": "2030-01-31T08:59:00Z",
                "cursor_at": "2030-01-31T09:00:00Z",
                "wake_at": "2030-02-01T08:59:00Z",
                "ticks": [{"tick": "2030-01-31T09:00:00Z"}],
            }
        ]
    },
    "PollRequest": {"max": 10, "wait": "20s", "lease_for": "1m", "consumer": "worker-1"},
    "ProblemAnswer": {
        "type": "urn:tarry:problem:lease_lost",
        "title": "Conflict",
        "status": 409,
        "code": "lease_lost",
        "detail": "this lock_token is no longer the message's lease",
        "hint": "stop working on it: it was offered again, taken over or given back",
        "request_id": "5f2b8c1d9e3a7046",
    },
    "PurgeRequest": {"confirm": "orders"},
    "QueueChanges": {"lease_for": "2m", "max_attempts": 5, "retry": {"initial_for": "10s", "cap_for": "10m"}},
    "QueueRequest": {"name": "orders", "lease_for": "2m"},
    "ReasonRequest": {"reason": "stock-taking"},
    "RedriveNowRequest": {"versions": [4, 17]},
    "RedriveRequest": {"fingerprint": "0123456789ab", "rate": 50, "canary": 5},
    "ReleaseBatch": {"messages": [_HELD], "delay": "10s"},
    "ReleaseRequest": {"lock_token": _TOKEN, "delay": "10s"},
    "RenameRequest": {"new_name": "orders-2030"},
    "RuleRequest": {
        "rulings": [{"prefix": "daily-report", "expected": 3, "ruled_at": "2030-01-31T08:59:00Z", "after": None}]
    },
    "ScheduleRequest": {
        "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "queue": "reports", "payload": {"kind": "daily"},
    },
    "SettleBatch": {"messages": [_HELD]},
    "SettleRequest": {"lock_token": _TOKEN},
    "SettledAnswer": {"outcome": "done"},
    "SettledBatch": {"messages": [{"id": _ID, "outcome": "done"}]},
    "TouchBatch": {"messages": [_HELD], "extend_seconds": 60},
    "TouchRequest": {"lock_token": _TOKEN, "extend_seconds": 60},
}  # fmt: skip
