"""The common rules of listings: each user may have some in progress.

A listing holds the records that it is going to send, so those in progress bound the memory that a user can take by
asking for listings and not reading them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.client.channel.turns import OwnPlaces

#: Listings of one user in progress; further ones wait for these.
LISTINGS_MAX = 32


def in_own_place(places: OwnPlaces, handler: Callable[[Any, Call], Any]) -> Callable[[Any, Call], Any]:
    """The handler of a listing, which begins when the caller's user has a place for it."""

    async def pieces(listing: AsyncGenerator[Struct, None], call: Call) -> AsyncIterator[Struct]:
        async with aclosing(listing), places.place(call.channel.account):
            async for piece in listing:
                yield piece

    async def whole(listing: Coroutine[Any, Any, Struct], call: Call) -> Struct:
        try:
            async with places.place(call.channel.account):
                return await listing
        finally:
            listing.close()  # cancelled before its turn, it never began

    def begin(request: Struct, call: Call) -> AsyncIterator[Struct] | Awaitable[Struct]:
        listing = handler(request, call)
        return pieces(listing, call) if isinstance(listing, AsyncGenerator) else whole(listing, call)

    return begin
