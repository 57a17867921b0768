"""Forms: what is taken out of them, and that no form costs more than one pass over it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.edges.http.multipart import PARTS, BadForm, file_of
from tests.edges.http.conftest import Caller

FORM = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'


def form(*parts: tuple[bytes, bytes], end: bytes = b"--x--\r\n") -> bytes:
    return b"".join(PART % part for part in parts) + end


@given(content=st.binary(max_size=200).filter(lambda content: b"\r\n--x" not in b"\r\n" + content))
def test_the_file_is_what_was_sent(content: bytes) -> None:
    assert file_of(FORM, form((b"other", b"1"), (b"file", content))) == content


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/form-data; boundary="x"',
        "Multipart/Form-Data;boundary=x",
        "multipart/form-data; charset=utf-8; BOUNDARY=x ; more=1",
    ],
)
def test_the_boundary_is_read_in_every_way_of_writing_it(content_type: str) -> None:
    assert file_of(content_type, form((b"file", b"1"))) == b"1"


@pytest.mark.parametrize(
    "disposition",
    [
        b'form-data; filename="a \\"b\\"; name=other.json"; name="file"',
        b"form-data; name=file; filename=messages.json",
        b'form-data;name="file"',
    ],
)
def test_the_name_is_read_in_every_way_of_writing_it(disposition: bytes) -> None:
    body = b"preamble\r\n--x \r\nX: y\r\ncontent-disposition: " + disposition + b"\r\n\r\n{}\r\n--x--"
    assert file_of(FORM, body) == b"{}"


def test_a_form_without_the_file_has_none() -> None:
    assert file_of(FORM, form((b"other", b"1"))) is None
    assert file_of(FORM, b"--x--") is None


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", form((b"file", b"1"))),
        ("multipart/form-data; boundary=", form((b"file", b"1"))),
        ("multipart/form-data; boundary=" + "x" * 71, b""),
        ("multipart/form-data" + ";" * 30_000 + "boundary=x", form((b"file", b"1"))),
        (FORM, b""),
        (FORM, b"nothing"),
        (FORM, b"--x\r\n"),
        (FORM, b"--xyz\r\n\r\n1\r\n--x--"),
        (FORM, form((b"other", b"1"), end=b"")),
        (FORM, b"--x\r\n\r\n\r\n" * 30_000),
        (FORM, form(*[(b"other", b"")] * (PARTS + 1))),
        (FORM, b"--x\r\nX: " + b"y" * 5_000 + b"\r\n\r\n1\r\n--x--"),
    ],
    ids=lambda given: str(given)[:60],
)
def test_what_is_no_form_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(BadForm):
        file_of(content_type, body)


@given(st.binary(max_size=300), st.text(max_size=80))
def test_nonsense_is_refused_or_has_no_file(body: bytes, content_type: str) -> None:
    for media_type in (content_type, FORM):
        with suppress(BadForm):
            assert isinstance(file_of(media_type, body), bytes | None)


NESTED = (
    b"--x\r\nContent-Disposition: form-data; name=file\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n"
    b"--y\r\nContent-Type: text/plain\r\n\r\n[]\r\n--y--\r\n\r\n--x--"
)


@pytest.mark.parametrize(
    ("body", "code"),
    [(NESTED, "not_json"), (b"--x\r\n\r\n\r\n" * 11_000, "invalid"), (form((b"other", b"1")), "invalid")],
    ids=["nested", "many parts", "no file"],
)
def test_a_form_that_cannot_be_imported_is_400(call: Caller, body: bytes, code: str) -> None:
    response = call("POST", "/api/queue/import", content=body, headers={"content-type": FORM})
    assert (response.status_code, response.json()["code"]) == (400, code)
