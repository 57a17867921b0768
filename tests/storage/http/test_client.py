"""What the Python client has beyond the contract: keys, the address in the environment, and verbs like an app's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tarry.api._sync.api_keys import ApiKeys
from tarry.api.api_keys import AsyncApiKeys
from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidState
from tarry.core.security.api_keys import Action
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http.keys import HttpKeys
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START

OF_THE_DATABASE = {"dsn", "pipeline", "blocking", "sweeper"}
OF_THE_BROKER = {"events"}


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


@pytest.mark.parametrize("verb", ["create", "list", "revoke"])
def test_a_verb_about_keys_has_the_arguments_of_the_library(verb: str) -> None:
    client_parameters = inspect.signature(getattr(HttpKeys, verb)).parameters
    for handle in (ApiKeys, AsyncApiKeys):
        library_parameters = inspect.signature(getattr(handle, verb)).parameters
        assert list(client_parameters) == list(library_parameters)
        assert [client_parameters[name].default for name in client_parameters] == [
            library_parameters[name].default for name in client_parameters
        ]


def test_keys_are_made_listed_and_revoked(behind: AsyncApp, http_loop: Loop, key: Callable[..., str]) -> None:
    with broker_on(behind, http_loop, BrokerSettings()) as url, Client(url, key(*Action)) as admin:
        issued = admin.keys.create("shop", ["produce"], ["orders"], expires_for=timedelta(hours=1))
        assert (issued.key.actions, issued.key.queues) == ({Action.PRODUCE}, ("orders",))
        assert issued.key.expires_at == START + timedelta(hours=1)
        with Client(url, issued.text) as shop:
            assert shop.queue("orders").offer("a", 1).value == "created"
            with pytest.raises(InvalidState, match="may not read"):
                shop.queue("orders").read("a")
            revoked = admin.keys.revoke(issued.key.id)
            assert revoked in admin.keys.list()
            with pytest.raises(InvalidState, match="not valid"):
                shop.queue("orders").offer("b", 1)
        assert admin.keys.revoke("000000000000") is None
        assert admin.keys.revoke("../queues") is None
        assert [shown.active for shown in admin.keys.list() if shown.name == "shop"] == [False]


def test_the_address_is_that_of_the_environment_and_its_key_goes_nowhere_else(
    behind: AsyncApp, http_loop: Loop, key: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker_on(behind, http_loop, BrokerSettings()) as url:
        monkeypatch.setenv("TARRY_URL", url)
        monkeypatch.setenv("TARRY_KEY", key("read"))
        with Client() as client:
            assert client.queues.list() == []
        with Client(url) as client, pytest.raises(InvalidState, match="API key"):
            client.queues.list()
    monkeypatch.delenv("TARRY_URL")
    with Client() as client:
        address = client.store._address  # pyright: ignore[reportPrivateUsage]
        assert (address.host, address.port) == ("127.0.0.1", 8080)
