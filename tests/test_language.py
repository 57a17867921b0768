"""Retired words do not come back.

`python -m tests.test_language PATH…` lists every use in names, comments, docstrings, messages and SQL.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools", "docs")
SUFFIXES = frozenset({".py", ".sql", ".lua", ".md", ".html", ".js", ".css", ".toml"})

PROSE = """
    ear ears hear hears heard hearer lobby lobbies guest guests ruling rulings chore chores duty duties gate gates
    fleet fleets picture pictures glance strain strains teach teaches taught underway patience upkeep housekeeping
    tell tells told telling say says said saying ask asks asked asking
    somebody someone nobody anybody anyone everybody everyone whoever who whom
    insights ring rings rang ticket tickets
    """
"""Wrong anywhere: in a name, a docstring, a comment, a message or SQL."""

NAMES = """
    answer answers answered answering serving shapes hold holds follow following feed lane lanes room rooms tally
    found one place places wanted
    """
"""Plain English in a sentence, and wrong as (a part of) what a name is bound to."""

PHRASES = re.compile(
    r"(?<![a-z])(?:on_conflict|lock_token|purge_dead|drop_all|lead_on|lead_end|held_up|give_up|take_back|once_key|"
    r"held up|heart-beats?|cron jobs?)(?![a-z])"
)
"""Retired compounds whose words are fine on their own."""

EXEMPT_PHRASES = re.compile(
    r"\b(?:people|users|operators|developers|readers|maintainers) who\b|\bWe ask for\b"
    r"|\bask(?:s|ed|ing)? (?:the (?:user|operator) )?(?:for|to) (?:a )?confirm(?:ation)?\b"
)
"""Ordinary English about human beings."""

EXEMPT_WORDS = {
    "tarry/edges/http/relay": frozenset({"lock_token", "on_conflict"}),  # Relay's own words on the wire
    "tests/edges/http": frozenset({"lock_token", "on_conflict"}),  # the same, in requests to Relay's routes
    "docs/howto/move-from-relay.md": frozenset({"lock_token"}),
    "tarry/delayqueue": frozenset({"ring", "rings"}),  # the ring of a timing wheel
    "docs/explanation/timers.md": frozenset({"ring", "rings"}),
    "tarry/storage/postgres/embedded": frozenset({"nobody"}),  # the account of that name
    "docs/howto/run-the-embedded-database.md": frozenset({"nobody"}),
    "docs/decisions/0019-live-events.md": frozenset({"ticket"}),  # of a browser, a rejected alternative
    "README.md": frozenset({"picture"}),  # the element of HTML
}

LOCAL_VARIABLES = frozenset({"found", "one", "place", "places", "wanted"})
"""Wrong as a whole name only: `find_one` and `places_of` say more than `one` and `places` do."""


_PROSE, _NAMES = frozenset(PROSE.split()), frozenset(NAMES.split())


class Use(NamedTuple):
    word: str
    line: int


def uses(path: Path) -> list[Use]:
    """The retired words of a file, in the order of its lines."""
    exempt = {word for part, words in EXEMPT_WORDS.items() if f"/{part}/" in f"{path.as_posix()}/" for word in words}
    text = path.read_text()
    words, has_phrases = frozenset(_words(f"{path} {text}")), PHRASES.search(text.lower()) is not None
    if not has_phrases and words.isdisjoint(_PROSE | _NAMES):
        return []
    has_prose = has_phrases or not words.isdisjoint(_PROSE)  # most files have none: tokenizing all would take 10 s
    is_python = path.suffix == ".py" or _is_script(path)
    retired = _python(path, text, has_prose=has_prose) if is_python else _retired_prose(text, 1)
    return sorted((use for use in retired if use.word not in exempt), key=lambda use: use.line)


def _python(path: Path, text: str, *, has_prose: bool) -> Iterator[Use]:
    yield from _retired_name(path.parent.name if path.stem == "__init__" else path.stem, 1)
    for node in ast.walk(ast.parse(text)):
        for name in _bound(node):
            yield from _retired_name(name, getattr(node, "lineno", 1))
        if has_prose and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _retired_prose(node.value, node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(text).readline) if has_prose else ():
        if token.type == tokenize.COMMENT:
            yield from _retired_prose(token.string, token.start[0])


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a node gives to something; names that are only read may belong to another library."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case _:
            pass


def _retired_name(name: str, line: int) -> Iterator[Use]:
    yield from _retired_prose(name, line)
    whole = name.strip("_").lower()
    for word in _words(name):
        if word in _NAMES and (word not in LOCAL_VARIABLES or word == whole):
            yield Use(word, line)


def _retired_prose(text: str, line: int) -> Iterator[Use]:
    for number, each in enumerate(text.splitlines(), line):
        plain = EXEMPT_PHRASES.sub(" ", each)
        yield from (Use(phrase, number) for phrase in PHRASES.findall(plain.lower()))
        yield from (Use(word, number) for word in _words(plain) if word in _PROSE)


def _is_script(path: Path) -> bool:
    """A Python program without a suffix."""
    with path.open("rb") as file:
        return not path.suffix and file.readline().rstrip().endswith(b"python3")


def _words(text: str) -> list[str]:
    """`HeldLease`, `held_lease` and "held lease" are the same two words."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())


def listed() -> Iterator[str]:
    """Every use in the repository, as `path:line: word`."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted([*below, *(path for path in ROOT.iterdir() if path.suffix in SUFFIXES)]):
        if path != Path(__file__) and "vendor" not in path.parts and (path.suffix in SUFFIXES or _is_script(path)):
            yield from (f"{path.relative_to(ROOT).as_posix()}:{use.line}: {use.word}" for use in uses(path))


def test_retired_words_are_not_used() -> None:
    retired = list(listed())
    assert not retired, "\n".join(["retired words (the lists are in tests/test_language.py):", *retired[:60]])


def test_retired_words_are_detected_in_names_comments_docstrings_messages_and_sql(tmp_path: Path) -> None:
    module, statement = tmp_path / "module.py", tmp_path / "statement.sql"
    module.write_text(
        '"""The ears of a process."""\n\n'
        "import os as lobby\n\n"
        "def settle(told, on_conflict=None):  # whoever is first\n"
        "    found = [answer for answer in told.answers]\n"
        '    raise ValueError(f"nobody holds {found}, people who hold one know")\n'
        "class GuestList:\n    found_rows: int\n"
    )
    statement.write_text("-- The gate.\nselect 1 on conflict do nothing\n")
    expected = ["ears", "lobby", "told", "on_conflict", "whoever", "found", "answer", "nobody", "guest"]
    assert sorted(use.word for use in uses(module)) == sorted(expected)
    assert uses(statement) == [Use("gate", 1)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.test_language", description=__doc__)
    parser.add_argument("path", nargs="*", help="only files whose path begins so, for example src/tarry/core")
    options = parser.parse_args()
    print(*(line for line in listed() if line.startswith(tuple(options.path) or "")), sep="\n")


if __name__ == "__main__":
    main()
