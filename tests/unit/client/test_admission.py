"""What a daemon grants to each peer: half of what is free, some of it only to administrators, some only to nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.client.channel.admission import Admission, Limits, Pool, Rank
from spritz.client.channel.quota import OverQuota, Quota, Quotas


def opened(admission: Admission, peer: int | str, rank: Rank, most: int = 100_000) -> int:
    """How many connections the peer gets before one is refused."""
    count = 0
    while count < most and not admission.refusal(peer, rank):
        admission.enter(peer, rank)
        count += 1
    return count


def test_one_user_gets_half_and_the_next_half_of_what_is_left() -> None:
    admission = Admission(Limits(connections=1000))
    assert opened(admission, 1001, Rank.USER) == 450
    assert opened(admission, 1002, Rank.USER) == 225
    assert "uid 1001 has 450 connections" in admission.refusal(1001, Rank.USER)
    assert "no more than are free (225)" in admission.refusal(1001, Rank.USER)


def test_however_many_users_there_are_root_gets_the_places_that_are_kept() -> None:
    admission = Admission(Limits(connections=1000))
    users = sum(opened(admission, uid, Rank.USER) for uid in range(1000, 3000))
    assert users == 900
    assert "900 of 1000 connections are open" in admission.refusal(5000, Rank.USER)
    assert opened(admission, 0, Rank.TRUSTED) == 50
    assert "kept for administrators and nodes" in admission.refusal(0, Rank.TRUSTED)
    assert opened(admission, 0, Rank.DAEMON) == 50
    assert admission.refusal(0, Rank.DAEMON)


def test_a_place_that_is_left_is_taken_again() -> None:
    admission = Admission(Limits(connections=100))
    count = opened(admission, 1001, Rank.USER)
    for _ in range(count):
        admission.leave(1001, Rank.USER)
    assert opened(admission, 1001, Rank.USER) == count
    assert admission.pool.used == count


def test_other_machines_share_a_tenth_and_each_address_gets_few() -> None:
    admission = Admission(Limits(connections=1000))
    assert opened(admission, "192.0.2.1", Rank.REMOTE) == 32
    assert "address 192.0.2.1 has 32 connections" in admission.refusal("192.0.2.1", Rank.REMOTE)
    assert sum(opened(admission, f"2001:db8::{n}", Rank.REMOTE) for n in range(100)) == 68
    assert "other machines have 100 connections" in admission.refusal("192.0.2.9", Rank.REMOTE)
    assert not admission.refusal(1001, Rank.USER)


def test_a_small_server_serves_all_the_same() -> None:
    admission = Admission(Limits(connections=1))
    assert opened(admission, 1001, Rank.USER) == 1
    assert admission.refusal(0, Rank.DAEMON)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(list(Rank)), st.integers(1, 60)), max_size=60))
def test_a_pool_is_never_overdrawn_and_a_user_never_has_more_than_is_free(asked: list[tuple[int, Rank, int]]) -> None:
    pool = Pool(200, 40, 20)
    for peer, rank, amount in asked:
        if pool.fits(peer, rank, amount):
            pool.take(peer, amount)
            if rank < Rank.TRUSTED:
                assert pool.held(peer) <= 160 - pool.used
        elif pool.held(peer) > amount:
            pool.take(peer, -amount)
        assert 0 <= pool.used <= pool.total
        assert pool.used == sum(pool.held(peer) for peer in range(5))


def quotas() -> Quotas:
    """A user alone has 400 bytes of messages, 40 that wait, and 400 unread."""
    return Quotas(Limits(receiving_bytes=1000, waiting_bytes=100, unread_bytes=1000, uncounted_bytes=10))


def user(books: Quotas, uid: int = 1001) -> tuple[Quota, list[str]]:
    """A connection, and what it was told."""
    told: list[str] = []
    quota = books.open(uid, Rank.USER)
    quota.resume = lambda: told.append("resume")
    quota.cut = told.append
    return quota, told


def test_a_message_waits_for_room_and_is_told_when_there_is_some() -> None:
    books = quotas()
    first, _ = user(books)
    second, told = user(books)
    assert first.receive(5, 300)
    assert not second.receive(30, 300)
    assert (books.receiving.used, books.waiting.used) == (300, 30)
    assert told == []
    assert first.receive(0, 0)  # complete, and taken
    assert told == ["resume"]
    assert second.receive(30, 300)
    assert (books.receiving.used, books.waiting.used) == (300, 0)
    second.close()
    first.close()
    assert (books.receiving.used, books.admission.pool.used) == (0, 0)


def test_small_messages_are_not_counted_and_what_waits_has_a_limit_too() -> None:
    books = quotas()
    first, _ = user(books)
    assert first.receive(9, 10)
    assert first.is_free
    assert first.receive(0, 400)
    second, _ = user(books)
    assert not second.receive(40, 50)
    third, _ = user(books)
    with pytest.raises(OverQuota, match="uid 1001 has 400 bytes of messages in memory and 40 more that wait"):
        third.receive(20, 50)


def test_what_one_user_holds_does_not_stop_another_or_root() -> None:
    books = quotas()
    greedy, _ = user(books)
    assert greedy.receive(0, 400)
    other, _ = user(books, 1002)
    assert other.receive(0, 200)
    root = books.open(0, Rank.TRUSTED)
    assert root.receive(0, 400)
    assert not root.receive(0, 401)


def test_the_worst_reader_of_the_user_is_cut_off_and_others_wait_for_readers_before() -> None:
    books = quotas()
    slow, told_slow = user(books)
    busy, told_busy = user(books)
    slow.send(90)
    assert not busy.must_wait_for_readers()
    slow.send(250)
    assert busy.must_wait_for_readers()
    busy.send(100)
    assert told_slow == []
    busy.send(180)
    assert told_slow == ["uid 1001 has 430 bytes of answers unread; its share is full"]
    assert books.unread.used == 180
    busy.send(20)
    assert "resume" in told_busy
    assert not busy.must_wait_for_readers()
    other, _ = user(books, 1002)
    assert not other.must_wait_for_readers()


def test_giving_back_wakes_one_connection_of_each_user_however_many_wait() -> None:
    books = quotas()
    holder, _ = user(books)
    assert holder.receive(0, 400)
    waiting = [user(books) for _ in range(100)]
    other, told_other = user(books, 1002)
    for quota, _ in waiting:
        assert not quota.receive(0, 300)
    assert not other.receive(0, 300)
    assert holder.receive(0, 0)
    assert [len(told) for _, told in waiting] == [1] + [0] * 99
    assert told_other == ["resume"]
    assert waiting[0][0].receive(0, 300)
    waiting[1][0].close()
    assert not any(told for _, told in waiting[1:])
    waiting[0][0].close()
    assert [len(told) for _, told in waiting[1:4]] == [0, 1, 0]


def test_daemons_are_not_held_back() -> None:
    books = quotas()
    node = books.open(0, Rank.DAEMON)
    cut: list[str] = []
    node.cut = cut.append
    node.introduce(daemon=True)
    node.send(100_000)
    assert not node.must_wait_for_readers()
    assert cut == []
    node.close()
    assert books.unread.used == 0
