"""One request costs the broker a bounded amount of work, memory and disk, whatever its client sends."""

from __future__ import annotations

import hashlib
import json

from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code


def test_a_duration_that_is_too_long_to_parse_is_refused(ask: Caller) -> None:
    answer = ask("POST", "/v1/queues/q/messages", {"payload": 1, "delay": "P" + "1Y" * 1_000 + "!"})
    assert code(answer) == (422, "invalid")
    assert "64 characters" in answer.json()["detail"]


class TestAudit:
    def test_white_space_hides_no_body(self, ask: Caller) -> None:
        body = b'{"name":' + b" " * 5_000 + b'"q", "journal": "off"}'
        assert ask("POST", "/v1/queues", content=body).status_code == 201
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"]) == {"name": "q", "journal": "off"}
        assert detail["body_bytes"] == len(body)
        assert detail["body_sha256"] == hashlib.sha256(body).hexdigest()

    def test_a_long_text_hides_no_field_behind_it(self, ask: Caller) -> None:
        body = json.dumps({"padding": "x" * 5_000, "name": "q"}).encode()
        assert ask("POST", "/v1/queues", content=body).status_code == 422
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"])["name"] == "q"
        assert len(detail["body"]) <= 4_096

    def test_a_body_that_is_not_json_is_kept_from_its_first_character(self, ask: Caller) -> None:
        assert code(ask("POST", "/v1/queues", content=b" " * 5_000 + b"{nonsense")) == (400, "not_json")
        assert ask("GET", "/v1/audit").json()["audit"][0]["detail"]["body"] == "{nonsense"
