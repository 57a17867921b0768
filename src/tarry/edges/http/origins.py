"""Checks on the origin of requests without a key: from this machine, and not from a page of another site."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request

from tarry.edges.http.problems import Problem

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN_PAGES = frozenset({"same-origin", "none"})
_HINT = "create a key and send it: tarry key create"
_BY_A_PROXY = frozenset(
    {
        b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"x-original-host", b"x-original-for",
        b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip", b"x-envoy-external-address",
    }
)  # fmt: skip
"""Headers that reverse proxies add, besides `x-forwarded…`."""


@lru_cache(maxsize=100)
def hostname(netloc: str) -> str | None:
    """The host of `host:port`, or None if it is invalid."""
    try:
        return urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None


def is_loopback(host: str | None) -> bool:
    if host in LOOPBACK:
        return True
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def require_this_machine(request: Request) -> None:
    """Require a loopback peer and Host, and no proxy. An unknown peer, as on a Unix socket, is refused."""
    # As bytes: Starlette decodes all headers for each look at one, and this runs for each request.
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 or not is_loopback(hostname(hosts[0].decode("latin-1"))):
        raise _refused("without a key, requests must have a Host of localhost")
    if request.client is None or not is_loopback(request.client.host):
        raise _refused("without a key, only clients on the machine of the broker are accepted")
    # nginx by default sends HTTP/1.0 with its own Host and no other sign of a proxy.
    signs = [name for name, _ in headers if name in _BY_A_PROXY or name.startswith(b"x-forwarded")]
    if signs or request.scope.get("http_version") == "1.0":
        sign = signs[0].decode("latin-1") if signs else "HTTP/1.0"
        raise _refused(f"without a key, requests through a proxy are refused, and {sign} indicates one")


def refuse_other_sites(request: Request, *, changes_by_get: bool = False) -> None:
    """Refuse requests that a browser sends for pages of other sites. The broker's own pages and typed addresses are allowed.

    `changes_by_get`: images and links also cause GET requests, without an Origin. Browsers send `Sec-Fetch-Site: none` for
    links in other programs too, so only scripts on the broker's own pages and non-browser clients are allowed (`fetch` in
    Node.js sends Sec-Fetch-Mode: cors and no Sec-Fetch-Site).
    """
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers.get("host"):
        raise _refused("without a key, requests from pages of other sites are refused")
    sites = request.headers.getlist("sec-fetch-site")
    if not _OWN_PAGES.issuperset(sites):
        raise _refused("without a key, requests from pages of other sites are refused")
    if not changes_by_get:
        return
    if "none" in sites or "navigate" in request.headers.getlist("sec-fetch-mode"):
        raise _refused("without a key, a link opened in a browser cannot lease messages")
    if not sites and request.headers.get("user-agent", "").startswith("Mozilla/"):
        raise _refused("without a key, a browser must send Sec-Fetch-Site to lease by GET")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _refused(detail: str) -> Problem:
    return Problem(403, "forbidden", detail, hint=_HINT)
