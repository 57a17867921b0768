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
_HEADER = re.compile(r"([A-Za-z-]+): (.*)\n?")


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
            if name[1] != "token":  # a new one with every lease
                assert found == self.known.setdefault(name[1], found), place
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


def parts(text: str) -> tuple[str, dict[str, str], str]:
    """The first line, headers, and the JSON that follows."""
    line, _, rest = text.partition("\n")
    headers: dict[str, str] = {}
    while found := _HEADER.match(rest):
        headers[found[1].lower()] = found[2]
        rest = rest[found.end() :]
    return line, headers, rest


def test_the_broker_answers_as_its_page_says(ask: Caller) -> None:
    reader, replayed = Reader(), 0
    for block in blocks(PAGE):
        if block.language != "http":
            continue
        request, _, answer = block.text.partition("\n\n")
        line, headers, body = parts(reader.filled(request))
        method, path = line.split()
        status, promised, expected = parts(answer.strip())
        found = ask(method, path, json.loads(body) if body else None, headers=headers)
        assert found.status_code == int(status), f"line {block.line}: {found.text}"
        assert promised.items() <= found.headers.items(), f"line {block.line}: {found.headers}"
        if expected:
            reader.compare(json.loads(expected), found.json(), f"line {block.line}")
        else:
            assert found.content == b""
        replayed += 1
    assert replayed > 12
