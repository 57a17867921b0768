"""Dead letters by group, and redrives as jobs, through the broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tarry.app import AsyncApp
from tarry.core.settings import QueueSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code, offered, polled
from tests.kit.blocking import Loop


def dead(call: Caller, queue: str, *keys: str, error: str = "boom 1") -> None:
    for key in keys:
        offered(call, queue, key=key)
        held = polled(call, queue)
        call("POST", f"/v1/messages/{held['id']}/bury", {"token": held["token"], "error": error})


def started(call: Caller, queue: str, **body: Any) -> dict[str, Any]:
    response = call("POST", f"/v1/queues/{queue}/dead:start_redrive", body)
    assert response.status_code == 202, response.text
    return response.json()


class TestGroups:
    def test_what_died_of_the_same_is_one_group_and_its_name_chooses_it(self, call: Caller) -> None:
        dead(call, "q", "a", "b", error="timeout after 3 s")
        dead(call, "q", "c", error="no such host")
        groups = call("GET", "/v1/queues/q/dead:groups").json()["groups"]
        assert {group["pattern"]: group["count"]["n"] for group in groups} == {
            "timeout after <n> s": 2,
            "no such host": 1,
        }
        (timeouts,) = [group for group in groups if group["count"]["n"] == 2]
        chosen = {"fingerprint": timeouts["fingerprint"]}
        count = call("GET", "/v1/queues/q/dead:count", params=chosen).json()
        assert count == {"letters": {"n": 2, "capped": False}, "blocked": 0}
        listed = call("GET", "/v1/queues/q/dead", params=chosen).json()["dead_letters"]
        assert [letter["key"] for letter in listed] == ["b", "a"]

    def test_a_count_includes_what_could_not_be_redriven(self, call: Caller) -> None:
        dead(call, "q", "a", "b")
        offered(call, "q", key="a")
        assert call("GET", "/v1/queues/q/dead:count").json()["blocked"] == 1


class TestJobs:
    def test_a_job_is_carried_on_to_its_end(self, call: Caller) -> None:
        dead(call, "q", "a", "b")
        job = started(call, "q")
        assert (job["state"], job["total"]["n"], job["started_by"], job["share"]) == ("running", 2, "anonymous", 0.0)
        while (response := call("POST", f"/v1/redrives/{job['id']}/advance")).status_code == 200:
            pass
        assert response.status_code == 204
        ended = call("GET", f"/v1/redrives/{job['id']}").json()
        assert (ended["state"], ended["redriven"], ended["share"]) == ("done", 2, 1.0)
        assert polled(call, "q")["attempt"] == 1
        assert [redrive["id"] for redrive in call("GET", "/v1/redrives?queue=q").json()["redrives"]] == [job["id"]]

    def test_a_sweeper_carries_it_on(self, call: Caller, behind: AsyncApp, http_loop: Loop) -> None:
        dead(call, "q", "a", "b")
        job = started(call, "q")
        http_loop.run(behind.sweeper().run_once())
        assert call("GET", f"/v1/redrives/{job['id']}").json()["state"] == "done"

    def test_repeated_pause_resume_and_cancel_change_nothing(self, call: Caller) -> None:
        dead(call, "q", "a")
        job = f"/v1/redrives/{started(call, 'q')['id']}"
        for _ in range(2):
            paused = call("POST", f"{job}/pause", {"reason": "lunch"}).json()
            assert (paused["state"], paused["reason"]) == ("paused", "lunch")
        assert call("POST", f"{job}/advance").status_code == 204
        for _ in range(2):
            assert call("POST", f"{job}/resume").json()["state"] == "running"
        for _ in range(2):
            assert call("POST", f"{job}/cancel").json()["state"] == "cancelled"
        assert code(call("POST", f"{job}/resume")) == (409, "invalid_state")
        assert len(call("GET", "/v1/queues/q/dead").json()["dead_letters"]) == 1

    def test_canaries_go_first_and_stop_the_job_when_they_die_again(self, call: Caller, pinned: MutableClock) -> None:
        dead(call, "q", "a", "b", "c")
        job = f"/v1/redrives/{started(call, 'q', canary=1)['id']}"
        assert call("POST", f"{job}/advance").json()["canary_keys"] == ["a"]
        held = polled(call, "q")
        call("POST", f"/v1/messages/{held['id']}/bury", {"token": held["token"], "error": "again"})
        pinned.advance(timedelta(seconds=5))
        call("POST", f"{job}/advance")
        stopped = call("GET", job).json()
        assert (stopped["state"], stopped["redriven"]) == ("paused", 1)
        assert "died again" in stopped["reason"]

    def test_at_a_rate(self, call: Caller, pinned: MutableClock) -> None:
        dead(call, "q", "a", "b", "c")
        job = started(call, "q", rate=1)
        path = f"/v1/redrives/{job['id']}/advance"
        assert (call("POST", path).json()["redriven"], call("POST", path).status_code) == (1, 204)
        pinned.advance(timedelta(seconds=1))
        assert call("POST", path).json()["redriven"] == 2

    def test_no_versions_are_not_all_of_them(self, call: Caller, broker_url: str) -> None:
        dead(call, "q", "a")
        assert started(call, "q", versions=[])["total"]["n"] == 0
        with Client(broker_url) as client:
            letters = client.queue("q").dead_letters
            assert (letters.list(versions=[]), letters.count(versions=[]).letters.n) == ([], 0)
            assert letters.discard(versions=[]) == 0
            assert len(letters.list()) == 1

    def test_the_same_request_is_the_same_job(self, call: Caller) -> None:
        dead(call, "q", "a")
        request = str(uuid4())
        assert len({started(call, "q", request=request)["id"] for _ in range(3)}) == 1

    def test_a_few_can_be_delivered_again_at_once(self, call: Caller) -> None:
        dead(call, "q", "a", "b")
        assert call("POST", "/v1/queues/q/dead:redrive", {"limit": 1}).json() == {"redriven": 1}
        assert polled(call, "q")["key"] == "a"

    def test_what_is_no_job_is_not_there(self, call: Caller) -> None:
        assert code(call("GET", "/v1/redrives/999")) == (404, "unknown_redrive")
        assert code(call("POST", "/v1/redrives/999/pause")) == (404, "unknown_redrive")
        for number in ("-1", "x", "1e3", "9" * 30, "%C2%B2"):
            assert code(call("GET", f"/v1/redrives/{number}"))[0] == 422

    @pytest.mark.parametrize(
        "body",
        [
            {"rate": 0},
            {"rate": -1},
            {"rate": "fast"},
            {"rate": 1e9},
            {"canary": -1},
            {"canary": 1001},
            {"fingerprint": "x"},
            {"fingerprint": "\x00"},
            {"key_prefix": ""},
            {"died_from": "yesterday"},
            {"versions": [0]},
            {"started_by": ""},
            {"started_by": "a\x00b"},
            {"request": "1"},
            {"more": 1},
        ],
        ids=str,
    )
    def test_what_is_not_allowed_starts_no_job(self, call: Caller, body: Any) -> None:
        call("POST", "/v1/queues", {"name": "q"})
        assert code(call("POST", "/v1/queues/q/dead:start_redrive", body))[0] == 422
        assert call("GET", "/v1/redrives").json() == {"redrives": []}

    def test_a_queue_that_is_not_there_is_not_made(self, call: Caller) -> None:
        assert code(call("POST", "/v1/queues/nowhere/dead:start_redrive")) == (404, "unknown_queue")
        for verb in ("groups", "count"):
            assert code(call("GET", f"/v1/queues/nowhere/dead:{verb}")) == (404, "unknown_queue")


def test_a_foreign_job_is_unknown(behind: AsyncApp, http_loop: Loop, key: Callable[..., str]) -> None:
    for name in ("own", "foreign"):
        http_loop.run(behind.queues.create(name, QueueSettings()))
    call = Caller(broker_app(behind, BrokerSettings()), http_loop)
    jobs = {name: started(call.with_key(key("admin")), name)["id"] for name in ("own", "foreign")}
    mine = call.with_key(key("read", "admin", queues=("own",)))
    assert [redrive["queue"] for redrive in mine("GET", "/v1/redrives").json()["redrives"]] == ["own"]
    assert code(mine("GET", "/v1/redrives?queue=foreign")) == (403, "forbidden")
    for method, verb in (("GET", ""), ("POST", "/pause"), ("POST", "/cancel"), ("POST", "/advance")):
        there = mine(method, f"/v1/redrives/{jobs['foreign']}{verb}")
        nowhere = mine(method, f"/v1/redrives/987654{verb}")
        assert code(there) == code(nowhere) == (404, "unknown_redrive")
        assert there.json()["detail"].replace(str(jobs["foreign"]), "987654") == nowhere.json()["detail"]
    assert mine("POST", f"/v1/redrives/{jobs['own']}/pause").status_code == 200
    assert code(call.with_key(key("read"))("POST", f"/v1/redrives/{jobs['own']}/pause")) == (403, "forbidden")
    assert http_loop.run(behind.redrives.get(jobs["foreign"])).job.state.value == "running"
