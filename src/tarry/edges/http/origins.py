"""Where a request comes from, as far as a request without a key can prove it: this machine, and no page of another site."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from tarry.edges.http.problems import Problem

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN_PAGES = frozenset({"same-origin", "none"})
_HINT = "make a key and send it: tarry key create"
_BY_A_PROXY = frozenset(
    {
        "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host", "x-original-for",
        "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "x-envoy-external-address",
    }
)  # fmt: skip
"""Headers that reverse proxies add; any `x-forwarded…` beside them."""


def hostname(netloc: str) -> str | None:
    """The host of `host:port`. None for what is neither a name nor an address."""
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
    """Peer and Host are loopback, and no proxy is between. What cannot be determined, as on a Unix socket, is refused."""
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(hostname(hosts[0])):
        raise _refused("without a key the broker answers to localhost only")
    if request.client is None or not is_loopback(request.client.host):
        raise _refused("without a key the broker answers to clients on its own machine only")
    # nginx speaks HTTP/1.0 to what is behind it, with a Host of its own and no other sign, unless it is configured.
    forwarded = next((name for name in request.headers if name in _BY_A_PROXY or name.startswith("x-forwarded")), None)
    if forwarded is not None or request.scope.get("http_version") == "1.0":
        sign = "HTTP/1.0" if forwarded is None else forwarded
        raise _refused(f"without a key the broker does not answer through a proxy, and {sign} is a sign of one")


def refuse_other_sites(request: Request, *, changes_by_get: bool = False) -> None:
    """A browser sends requests for pages of any site; only those of the broker's own pages count, and what its user typed.

    `changes_by_get`: an image or a link can ask for it, and neither sends an Origin. Browsers send `Sec-Fetch-Site: none`
    also for links in other programs, so only scripts of the broker's own pages may, and programs that are no browser
    (`fetch` of Node.js sends Sec-Fetch-Mode: cors and no Sec-Fetch-Site).
    """
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers.get("host"):
        raise _refused("without a key the broker does not answer to pages of other sites")
    sites = request.headers.getlist("sec-fetch-site")
    if not _OWN_PAGES.issuperset(sites):
        raise _refused("without a key the broker does not answer to pages of other sites")
    if not changes_by_get:
        return
    if "none" in sites or "navigate" in request.headers.getlist("sec-fetch-mode"):
        raise _refused("without a key a link that is opened in a browser does not lease")
    if not sites and request.headers.get("user-agent", "").startswith("Mozilla/"):
        raise _refused("without a key a browser must send Sec-Fetch-Site to lease by GET")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _refused(detail: str) -> Problem:
    return Problem(403, "forbidden", detail, hint=_HINT)
