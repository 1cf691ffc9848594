"""Nested values by dotted names, compared with a walk along the keys."""

from __future__ import annotations

from graphbench.data.files.nested import flatten, texts_in


def test_every_value_is_found_under_the_keys_that_lead_to_it():
    content = {"a": {"b": {"c": 1}, "d": []}, "e": None, "f": {}, "g": [{"h": 2}, [3]]}
    named = dict(flatten(content, lists=True))
    assert named == {"a.b.c": 1, "a.d": [], "e": None, "f": {}, "g.0.h": 2, "g.1.0": 3}
    for name, value in named.items():
        place = content
        for key in name.split("."):
            place = place[int(key)] if isinstance(place, list) else place[key]
        assert place == value


def test_lists_are_values_unless_they_are_walked():
    assert dict(flatten({"a": [1, {"b": 2}]}, "x")) == {"x.a": [1, {"b": 2}]}
    assert dict(flatten(3, "x")) == {"x": 3}


def test_texts_are_found_at_any_depth_and_keys_are_none():
    assert list(texts_in([["a"], {"key": {"key": "b"}}, 1, None, ("c",)])) == ["a", "b"]
