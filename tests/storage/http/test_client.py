"""What the Python client has beyond the contract: keys, the address in the environment, and verbs like an app's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tarry.app import App, AsyncApp
from tarry.core.errors import Refused
from tarry.core.keys import Action
from tarry.edges.http.settings import BrokerSettings
from tarry.handles.keys import ApiKeys, AsyncApiKeys
from tarry.http import AsyncClient, Client
from tarry.storage.http import key_ops
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START

OF_THE_DATABASE = {"dsn", "pipeline", "blocking", "sweeper"}
OF_THE_BROKER = {"events", "on"}


@pytest.mark.parametrize(("client", "app"), [(Client, App), (AsyncClient, AsyncApp)], ids=["blocking", "awaiting"])
def test_a_client_has_the_verbs_of_an_app(client: type, app: type, broker_url: str, behind: AsyncApp) -> None:
    opened: Any = client(broker_url)
    whole: Any = behind if app is AsyncApp else App(behind.store)  # pyright: ignore[reportArgumentType]
    there = {name for name in (*dir(app), *vars(whole)) if not name.startswith("_")}
    here = {name for name in (*dir(client), *vars(opened)) if not name.startswith("_")}
    assert (there - here, here - there) == (OF_THE_DATABASE & there, OF_THE_BROKER)
    for name in ("queue", "cron", "close"):
        assert list(inspect.signature(getattr(client, name)).parameters) == list(
            inspect.signature(getattr(app, name)).parameters
        )


@pytest.mark.parametrize("verb", [key_ops.create, key_ops.list, key_ops.revoke], ids=lambda verb: verb.__name__)
def test_a_verb_about_keys_has_the_arguments_of_the_library(verb: Any) -> None:
    found = inspect.signature(verb).parameters
    for handle in (ApiKeys, AsyncApiKeys):
        asked = inspect.signature(getattr(handle, verb.__name__)).parameters
        assert list(found) == [one for one in asked if one != "self"]
        assert [found[one].default for one in found] == [asked[one].default for one in found]


def test_keys_are_made_listed_and_revoked(behind: AsyncApp, http_loop: Loop, key: Callable[..., str]) -> None:
    with broker_on(behind, http_loop, BrokerSettings()) as url, Client(url, key(*Action)) as admin:
        issued = admin.keys.create("shop", ["produce"], ["orders"], expires_for=timedelta(hours=1))
        assert (issued.key.actions, issued.key.queues) == ({Action.PRODUCE}, ("orders",))
        assert issued.key.expires_at == START + timedelta(hours=1)
        with Client(url, issued.text) as shop:
            assert shop.queue("orders").offer("a", 1).value == "created"
            with pytest.raises(Refused, match="may not read"):
                shop.queue("orders").read("a")
            revoked = admin.keys.revoke(issued.key.id)
            assert revoked in admin.keys.list()
            with pytest.raises(Refused, match="not valid"):
                shop.queue("orders").offer("b", 1)
        assert admin.keys.revoke("000000000000") is None
        assert admin.keys.revoke("../queues") is None
        assert [one.active for one in admin.keys.list() if one.name == "shop"] == [False]


def test_the_address_is_that_of_the_environment_and_its_key_goes_nowhere_else(
    behind: AsyncApp, http_loop: Loop, key: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker_on(behind, http_loop, BrokerSettings()) as url:
        monkeypatch.setenv("TARRY_URL", url)
        monkeypatch.setenv("TARRY_KEY", key("read"))
        with Client() as client:
            assert client.queues.list() == []
        with Client(url) as client, pytest.raises(Refused, match="API key"):
            client.queues.list()
    monkeypatch.delenv("TARRY_URL")
    with Client() as client:
        assert "127.0.0.1:8080" in repr(client.store._client.base_url)  # pyright: ignore[reportPrivateUsage]
