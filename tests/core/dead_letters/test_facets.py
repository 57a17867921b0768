"""What the payloads of a group have in common."""

from __future__ import annotations

from tarry.core.dead_letters.facets import LONGEST, Facet, facets


def test_the_most_common_value_of_each_field_comes_first() -> None:
    payloads = [{"tenant": "acme" if n else "globex", "order": n, "to": {"country": "DE"}} for n in range(10)]
    assert facets(payloads) == [Facet("to.country", "DE", 10, 1.0), Facet("tenant", "acme", 9, 0.9)]


def test_one_payload_has_no_facets() -> None:
    assert facets([{"tenant": "acme"}]) == []


def test_values_that_json_knows_are_words() -> None:
    values = {facet.field: facet.value for facet in facets([{"a": None, "b": True, "c": 1, "d": "1.50"}] * 2)}
    assert values == {"a": "null", "b": "true", "c": "1", "d": "1.50"}


def test_lists_long_texts_and_what_is_no_object_are_left_out() -> None:
    assert facets([{"list": [1], "long": "x" * (LONGEST + 1)}, {"list": [1], "long": "x" * (LONGEST + 1)}]) == []
    assert facets([None, 1, "text", [1]]) == []


def test_a_rare_value_is_no_facet() -> None:
    assert facets([{"n": n // 2} for n in range(20)]) == []
