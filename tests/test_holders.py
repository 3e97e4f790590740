"""Several holders as people and programs see them: each, and how many of how many."""

from __future__ import annotations

import pytest

from distlock.backends.base import Holding, LockState
from distlock.backends.several import state_of_several
from distlock.holders import describe, each_holder, is_held_by
from distlock.lock_view import lock_view
from fakes import a_client

KEYS = ["state", "token", "holder", "ttl_seconds", "expires_in_seconds"]


def held_by(*indexes: int, of: int = 3) -> LockState:
    holdings = [Holding(index, 40 + index, a_client(f"owner {index}"), 30.0, 10.0 + index) for index in indexes]
    return state_of_several("deploy", of, holdings, (a_client("waiter"),), None)


def test_each_is_shown_as_if_it_were_alone() -> None:
    found = dict(each_holder(held_by(2, 0)))
    assert list(found) == [0, 2]
    for index, one in found.items():
        assert (one.name, one.held, one.token, one.expires_in) == ("deploy", True, 40 + index, 10.0 + index)
        assert one.holder
        assert one.holder.owner == f"owner {index}"


def test_one_of_a_plain_lock_and_none_of_a_free_one() -> None:
    plain = LockState("n", True, 7, a_client("me"), 30.0, 20.0, ())
    assert each_holder(plain) == [(0, plain)]
    assert each_holder(plain._replace(held=False, holder=None)) == []


@pytest.mark.parametrize(("owner", "holds"), [("owner 0", True), ("owner 2", True), ("waiter", False)])
def test_who_is_among_them(owner: str, holds: bool) -> None:
    assert is_held_by(held_by(0, 2), (owner,)) is holds
    assert not is_held_by(LockState("n", True, 7, None, 30.0, 20.0, ()), (owner,))


def test_in_words() -> None:
    one = "web1:4711 (deploy) since 2023-11-14T22:13:20Z, token"
    assert describe(held_by(0, 1, 2)) == f"3 of 3 hold it: {one} 40; {one} 41; {one} 42"
    assert (
        describe(held_by(1))
        == f"1 of 3 hold it (a place is free now, or about to go to a waiter before this one): {one} 41"
    )
    assert describe(held_by(*range(1000), of=1000)).endswith(f"; {one} 42; and 997 more")


def test_in_json() -> None:
    view = lock_view(held_by(1, 2))
    assert (view["max_holders"], view["token"], view["expires_in_seconds"]) == (3, 41, 11.0)
    holders = view["holders"]
    assert isinstance(holders, list)
    assert [list(one) for one in holders if isinstance(one, dict)] == [["holder_index", *KEYS]] * 2
    assert [one["holder_index"] for one in holders if isinstance(one, dict)] == [1, 2]
    assert [one["token"] for one in holders if isinstance(one, dict)] == [41, 42]
    assert holders[0] == {"holder_index": 1} | {
        key: view[key] for key in ("state", "token", "holder", "ttl_seconds", "expires_in_seconds")
    }


def test_in_json_a_foreign_holder_is_one_that_nobody_knows() -> None:
    view = lock_view(LockState("n", True, None, None, None, None, ()))
    assert view["holders"] == [
        {
            "holder_index": 0,
            "state": "held",
            "token": None,
            "holder": None,
            "ttl_seconds": None,
            "expires_in_seconds": None,
        }
    ]
