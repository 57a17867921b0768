"""The file of a multipart form (RFC 7578), parsed in one pass, with limits on everything that a client may repeat."""

import re

PARTS = 100
HEADER_BYTES = 4_096
"""The size of all headers of one part."""
_BOUNDARY = re.compile(r"""[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]""")
_PARAMETER = re.compile(r"""\s*+([A-Za-z*-]++)=(?:"((?:[^"\\]|\\.)*+)"|([^\s;"]++))\s*+(?:;|\Z)""")


class BadForm(ValueError):
    """The form cannot be parsed."""


def file_of(content_type: str, body: bytes, name: str = "file") -> bytes | None:
    """The content of the part with this name, or None."""
    boundary = _parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise BadForm("its Content-Type has no boundary of 1 to 70 characters")
    # The first delimiter may be at the start of the body, without the line break that belongs to it.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), PARTS + 1)
    for part in parts[:PARTS]:
        if part.startswith(b"--"):
            return None
        part_name, content = _split(part)
        if part_name == name:
            return content
    if len(parts) > PARTS:
        raise BadForm(f"it has more than {PARTS} parts")
    raise BadForm("it has no end")


def _split(part: bytes) -> tuple[str | None, bytes]:
    """The name and the content of a part. Nested forms are not parsed."""
    start = part.find(b"\r\n")
    if start < 0 or part[:start].strip(b" \t"):
        raise BadForm("a boundary is not at the end of its line")
    end = part.find(b"\r\n\r\n", start, start + HEADER_BYTES)
    if end < 0:
        raise BadForm(f"the headers of a part have no end within {HEADER_BYTES:,} bytes")
    name = None
    for line in part[start:end].decode("utf-8", "replace").split("\r\n"):
        field, _, value = line.partition(":")
        if field.strip().lower() == "content-disposition":
            name = _parameters(value).get("name")
    return name, part[end + 4 :]


def _parameters(value: str) -> dict[str, str]:
    """Parameters of a header (`form-data; name="file"`), up to the first that is malformed."""
    parameters: dict[str, str] = {}
    position = value.find(";") + 1
    while 0 < position < len(value):
        parameter = _PARAMETER.match(value, position)
        if parameter is None:
            break
        name, quoted, plain = parameter.groups()
        parameters.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = parameter.end()
    return parameters
