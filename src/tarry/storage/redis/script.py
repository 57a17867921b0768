"""Lua scripts: the text with its includes, and the SHA-1 hash for EVALSHA."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import LiteralString

_INCLUDE = re.compile(r"^-- include: (\S+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n|  --.*$|^\n", re.MULTILINE)
_WORD = re.compile(r"\w+")
_FUNCTION = re.compile(r"^local function (\w+)\(.*(?: end\n|\n(?:  .*\n)*end\n)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str


@cache
def script(name: LiteralString) -> Script:
    """The script of messages/lua/ack.lua for "messages/ack".

    A line `-- include: lua/_rows` stands for the text of that file, once. Scripts that store more messages begin with
    `#!lua`: when memory is full, Redis refuses them before the first command. The others run even then, so consumers can
    empty a full queue. Without a `#!` line Redis would refuse single commands in the middle of a script."""
    subject, _, verb = name.rpartition("/")
    text = _without_unused(_COMMENT.sub("", _text(f"{subject}/lua/{verb}", set())))
    if not text.startswith("#!"):
        text = f"#!lua flags=allow-oom\n{text}"
    return Script(name, text, sha1(text.encode()).hexdigest())  # noqa: S324 - the hash that EVALSHA takes


def _without_unused(text: str) -> str:
    """Remove included functions that the script does not call: Redis would create a closure for each one in every call."""
    words = Counter(_WORD.findall(text))
    used = _FUNCTION.sub(lambda each: each[0] if words[each[1]] > 1 else "", text)
    return text if used == text else _without_unused(used)


def _text(path: str, included: set[str]) -> str:
    included.add(path)
    text = files("tarry.storage.redis").joinpath(f"{path}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: "" if line[1] in included else _text(line[1], included), text)
