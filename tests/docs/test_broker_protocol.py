"""The exchanges on the page of the broker's protocol, replayed in their order."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docs.pages import DOCS, blocks
from tests.edges.http.conftest import Caller, ask, behind, http_loop, pinned

__all__ = ["ask", "behind", "http_loop", "pinned"]

PAGE = DOCS / "reference" / "broker-protocol.md"
_NAME = re.compile(r"\$([a-z]+)")


class Reader:
    """Knows the values that were named so far."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def filled(self, text: str) -> str:
        return _NAME.sub(lambda found: self.known[found[1]], text)

    def compare(self, expected: Any, found: Any, place: str) -> None:
        if expected == "…":
            return
        if isinstance(expected, str) and (name := _NAME.fullmatch(expected)):
            if name[1] == "id":
                assert found == self.known.setdefault("id", found), place
            self.known[name[1]] = found
        elif isinstance(expected, dict):
            missing = expected.keys() - {"…"} - found.keys()
            more = found.keys() - expected.keys()
            assert not missing, f"{place}: {missing} is not answered"
            assert "…" in expected or not more, f"{place}: the page does not tell of {more}"
            for field in expected.keys() - {"…"}:
                self.compare(expected[field], found[field], f"{place}.{field}")
        elif isinstance(expected, list):
            assert len(expected) == len(found), f"{place}: {found}"
            for i, (left, right) in enumerate(zip(expected, found, strict=True)):
                self.compare(left, right, f"{place}[{i}]")
        else:
            assert expected == found, f"{place}: the page says {expected}, and it is {found}"


def test_the_broker_answers_as_its_page_says(ask: Caller) -> None:
    reader, replayed = Reader(), 0
    for block in blocks(PAGE):
        if block.language != "http":
            continue
        request, _, answer = block.text.partition("\n\n")
        line, _, body = reader.filled(request).partition("\n")
        method, path = line.split()
        status, _, expected = answer.strip().partition("\n")
        found = ask(method, path, json.loads(body) if body else None)
        assert found.status_code == int(status), f"line {block.line}: {found.text}"
        if expected:
            reader.compare(json.loads(expected), found.json(), f"line {block.line}")
        else:
            assert found.content == b""
        replayed += 1
    assert replayed > 12
