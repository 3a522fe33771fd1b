"""The journal and what reads it, as parts of the controller are given them (`controller.needs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spritz.controller.journal.blobs import BlobStore
    from spritz.controller.journal.contract import Journal
    from spritz.controller.journal.reader import JournalReader


class Journaled(Protocol):
    @property
    def journal(self) -> Journal: ...


class Replaying(Protocol):
    """Reads of the journal while the daemon serves."""

    @property
    def reader(self) -> JournalReader: ...


class Storing(Protocol):
    """Scripts and environments."""

    @property
    def blobs(self) -> BlobStore: ...
