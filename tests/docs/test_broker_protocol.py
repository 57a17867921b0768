"""The exchanges on the page of the broker's protocol, replayed in their order."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docs.pages import DOCS, blocks
from tests.edges.http.conftest import Caller, behind, call, http_loop, pinned

__all__ = ["behind", "call", "http_loop", "pinned"]

PAGE = DOCS / "reference" / "broker-protocol.md"
_NAME = re.compile(r"\$([a-z]+)")
_HEADER = re.compile(r"([A-Za-z-]+): (.*)\n?")


class Reader:
    """Knows the values that were named so far."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def filled(self, text: str) -> str:
        return _NAME.sub(lambda match: self.known[match[1]], text)

    def compare(self, expected: Any, actual: Any, position: str) -> None:
        if expected == "…":
            return
        if isinstance(expected, str) and (name := _NAME.fullmatch(expected)):
            if name[1] != "token":  # a new one with every lease
                assert actual == self.known.setdefault(name[1], actual), position
            self.known[name[1]] = actual
        elif isinstance(expected, dict):
            missing = expected.keys() - {"…"} - actual.keys()
            more = actual.keys() - expected.keys()
            assert not missing, f"{position}: {missing} is not answered"
            assert "…" in expected or not more, f"{position}: the page does not mention {more}"
            for field in expected.keys() - {"…"}:
                self.compare(expected[field], actual[field], f"{position}.{field}")
        elif isinstance(expected, list):
            assert len(expected) == len(actual), f"{position}: {actual}"
            for i, (left, right) in enumerate(zip(expected, actual, strict=True)):
                self.compare(left, right, f"{position}[{i}]")
        else:
            assert expected == actual, f"{position}: the page has {expected}, and it is {actual}"


def parts(text: str) -> tuple[str, dict[str, str], str]:
    """The first line, headers, and the JSON that follows."""
    line, _, rest = text.partition("\n")
    headers: dict[str, str] = {}
    while match := _HEADER.match(rest):
        headers[match[1].lower()] = match[2]
        rest = rest[match.end() :]
    return line, headers, rest


def test_the_broker_responds_as_documented(call: Caller) -> None:
    reader, replayed = Reader(), 0
    for block in blocks(PAGE):
        if block.language != "http":
            continue
        request, _, documented = block.text.partition("\n\n")
        line, headers, body = parts(reader.filled(request))
        method, path = line.split()
        status, promised, expected = parts(documented.strip())
        response = call(method, path, json.loads(body) if body else None, headers=headers)
        assert response.status_code == int(status), f"line {block.line}: {response.text}"
        assert promised.items() <= response.headers.items(), f"line {block.line}: {response.headers}"
        if expected:
            reader.compare(json.loads(expected), response.json(), f"line {block.line}")
        else:
            assert response.content == b""
        replayed += 1
    assert replayed > 12
