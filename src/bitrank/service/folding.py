"""`fold`: what a service changed, from a backup of its database into the collection that it serves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitrank.service.sources import FOLDED, numbers_of_names
from bitrank.service.store import Store
from bitrank.service.store.backup import restore
from bitrank.service.store.items import Item
from bitrank.service.store.profiles import DEFAULT

if TYPE_CHECKING:
    from bitrank.collection import Collection


def fold(backup: Path, collection: Collection) -> None:
    """Apply to a collection the items that its service added, replaced or removed, and the ranking of its users.

    That ranking is the active version of the default profile. Descriptions of items become an attachment, which the
    service reads. Other versions and the answered pages stay in the backup.

    Parameters
    ----------
    backup : Path
        What `bitrank backup` wrote; one of another collection is a ValueError.
    collection : Collection
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/copy.db"
        restore(backup, url)
        store = Store(url, collection.n_bits, collection.index)
        try:
            items = store.items.changed(after=0)[1]
            version = store.profiles.active(changed_after=-1)[1][DEFAULT]
        finally:
            store.close()
    names = {number: name for name, number in numbers_of_names(collection).items()}

    def id_of(item: Item) -> Any:
        return names.get(item.id, str(item.id)) if names else item.id

    removed = [id_of(item) for item in items if item.removed and id_of(item) in collection]
    added = [item for item in items if not item.removed]
    if removed:
        collection.remove(removed)
    if added:
        codes = np.frombuffer(b"".join(item.code for item in added), np.uint8).reshape(len(added), -1)
        collection.add(codes, [id_of(item) for item in added], replace=True)
    changed = {id_of(item) for item in items}
    rows = [row for row in json.loads(collection.attachments.get(FOLDED, b"[]")) if row[0] not in changed]
    rows += [[id_of(item), item.title, item.image, item.payload] for item in added]
    if rows or FOLDED in collection.attachments:
        collection.attachments[FOLDED] = json.dumps(rows).encode()
    if version.origin != "uniform":
        collection.use(version.ranking.as_ranker())
