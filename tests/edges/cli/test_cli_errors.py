"""Every error is one line with the problem; tracebacks only on request."""

from __future__ import annotations

import pytest

from tarry.edges.secrets import without_secrets
from tests.edges.conftest import Run


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "list", "--output", "xml"],
        ["queue", "show"],
        ["pipeline", "replay"],
        ["queue", "list", "--unknown"],
        ["message", "list", "q", "--limit", "many"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_a_line_that_cannot_be_read_is_a_usage_error(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    error, hint = ran.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: see: tarry ")
    assert run(*words, "--json").error["exit_code"] == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["cron", "add", "x", "0 2 * * *"], "give times with --cron, --daily or --every; see: tarry cron add -h"),
        (["queue", "list", "--dsn", "http://localhost:8080"], "redis://host; the URL of a broker is for tarry.http"),
    ],
    ids=["times of a schedule", "the URL of a broker"],
)
def test_a_mistake_of_a_new_user_has_a_hint(run: Run, words: list[str], hint: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert hint in ran.err.splitlines()[1]


@pytest.mark.parametrize("words", [["-o", "json"], ["-ojson"], ["--output=jsonl"], ["--json"], ["--output", "jsonl"]])
def test_an_error_in_json_mode_is_one_object_on_stderr(run: Run, words: list[str]) -> None:
    ran = run("queue", "show", *words)
    assert ran.out == ""
    assert ran.error.keys() == {"schema", "error", "hint", "exit_code"}
    assert ran.error["schema"] == "tarry.error/1"


def test_a_payload_after_two_dashes_does_not_select_json(run: Run) -> None:
    assert run("queue", "show", "--", "a", "--json").err.startswith("error: ")


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(name: str) -> str:
        raise error

    monkeypatch.setattr("tarry.edges.cli.commands.database.version_of", fail)


def test_an_unexpected_error_fails_without_a_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError("one\ntwo \x1b[31mthree"))
    ran = run("version")
    assert ran.code == 1
    assert ran.err.splitlines()[0] == "error: ZeroDivisionError: one two \\e[31mthree"
    assert "--debug" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("words", [["version", "--debug"], ["--debug", "version"]], ids=" ".join)
def test_a_traceback_is_printed_on_request(run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    failing(monkeypatch, ZeroDivisionError("postgresql://u:s3cret@host/x"))
    ran = run(*words)
    assert ran.code == 1
    assert "Traceback" in ran.err
    assert "s3cret" not in ran.err


@pytest.mark.parametrize("words", [["version"], ["version", "--json"]], ids=" ".join)
def test_an_interrupt_is_no_error_and_ends_with_its_own_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    ran = run(*words)
    assert (ran.code, ran.err) == (130, "")


def test_a_reader_that_went_away_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, BrokenPipeError())
    ran = run("version")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:s3cret@host/db",
        "host=h password=s3cret user=u",
        "host=h password = 's3 \\' cret' user=u",
        "postgresql://u@h/db?sslmode=off&password=s3cret&x=y",
        "postgresql://u@h/db?sslpassword=s3cret",
        'missing "=" after "PASSWORD=s3cret"',
        "postgresql://user:s3@s3cret@host/db",
        "postgresql://user:s3/s3cret@host/db",
        "postgresql://user:s/3@s3/cret@host/db",
        "postgresql://h:5432/db?password=s3@s3cret",
        "host=h password=s3@s3/s3cret user=u",
        "host=h password=s'3&s3cret user=u",
        "host=h password=s3\\ s3cret user=u",
        "host=h password='s3 s3cret",
    ],
)
def test_secrets_are_taken_out_of_texts(text: str) -> None:
    assert "cret" not in without_secrets(text)
    assert "***" in without_secrets(text)


@pytest.mark.parametrize("piece", ["://a:", "password='\\'", "password ", "password=", "password='", "@://:"])
def test_taking_secrets_out_of_a_long_text_is_linear(piece: str) -> None:
    """A quadratic pattern would need hours for a text of 4 MB, and so the time limit of the test decides."""
    assert without_secrets(piece * 500_000)


def test_addresses_without_a_password_stay_as_they_are() -> None:
    text = "http://127.0.0.1:8080/docs postgresql://u@h/db mail@example.com"
    assert without_secrets(text) == text


def test_options_may_stand_before_and_after_the_command(cli: Run, database: str, run: Run) -> None:
    assert cli("-o", "json", "queue", "list").data == cli("queue", "list", "-o", "json").data
    assert run("queue", "list", "--dsn", database, "--json").code == 0
    assert run("--dsn", "host=/nowhere", "queue", "list", "--dsn", database).code == 0
    assert cli("-o", "json", "queue", "list", "-o", "jsonl").out == ""


def test_quiet_leaves_errors_but_no_remarks(cli: Run) -> None:
    assert cli("queue", "list", "-q").err == ""
    assert cli("-q", "queue", "list").err == ""
    assert cli("-q", "queue", "show", "typo").err.startswith("error: ")


def test_programs_get_no_remarks(cli: Run) -> None:
    assert cli("offer", "orders", "1", "--after", "5m", "--json").err == ""
