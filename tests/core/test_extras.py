"""A missing optional dependency names the extra that has it."""

from __future__ import annotations

import importlib

import pytest

from tarry.core.errors import TarryError
from tarry.core.extras import needs_extra


def test_a_missing_dependency_names_its_extra() -> None:
    message = r"the store on Redis needs no_such_driver \(pip install 'tarry\[redis\]'\)"
    with pytest.raises(TarryError, match=message), needs_extra("redis", "the store on Redis"):
        importlib.import_module("no_such_driver")


def test_a_missing_module_of_our_own_is_not_explained_by_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("redis", "the store on Redis"):
        importlib.import_module("tarry.no_such_module")
