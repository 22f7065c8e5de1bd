"""The command `bitrank create`."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.judgements import read
from bitrank.cli.output import add_run, print_report
from bitrank.core.files import read_array
from bitrank.core.lazy import import_extra

if TYPE_CHECKING:
    from bitrank import Collection


def add_parser(commands: Any) -> None:
    """Add `create` to the commands."""
    command = commands.add_parser(
        "create",
        help="make a collection of vectors, of codes, or of the folder of an index",
        description="Make a collection, and write it to a folder. Vectors become codes and are not kept.",
    )
    command.add_argument("collection", type=Path, help="folder to write, such as shop.bitrank")
    command.add_argument(
        "source",
        type=Path,
        help="vectors (.npy); packed codes (.npy with --codes, .parquet, or a FAISS binary index); or the folder of an "
        "index or of another collection",
    )
    command.add_argument("--ids", type=Path, help="one id per item: .npy, .csv or .json (default: 0 to n - 1)")
    command.add_argument("--codes", action="store_true", help="the .npy holds packed codes, not vectors")
    command.add_argument("--n-bits", type=int, help="bits per code (default: eight per byte, or those of the hasher)")
    command.add_argument("--bits", type=float, help="a wish: bits per dimension of vectors, 0.25 to 8 (default: 4)")
    command.add_argument("--bytes", type=int, help="or bytes per item, at most")
    command.add_argument("--float-recall", type=float, help="or the share of the ten nearest vectors to find, at least")
    command.add_argument("--hasher", help="what makes codes of vectors: the name of a hasher, or a saved one (.npz)")
    command.add_argument("--metric", default="cosine", help="cosine, dot or l2 (default: %(default)s)")
    command.add_argument("--column", default="code", help="Parquet column of the codes (default: %(default)s)")
    command.add_argument("--id-column", help="Parquet column of the ids")
    command.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    command.add_argument(
        "--backup",
        type=Path,
        help="fold in what a service over the collection changed: what `bitrank backup` wrote of its database",
    )
    command.add_argument("--replace", action="store_true", help="take the place of a collection in the folder")
    add_run(command, _create)


def _create(arguments: argparse.Namespace) -> None:
    collection = _make(arguments)
    if arguments.backup is not None:
        import_extra("sqlalchemy", "service")
        from bitrank.service.folding import fold

        fold(arguments.backup, collection)
    collection.save(arguments.collection, replace=arguments.replace)
    print_report(collection.report(), as_json=arguments.json)


def _make(arguments: argparse.Namespace) -> Collection:
    from bitrank import Collection  # slow to import

    source, ids, n_bits, seed = arguments.source, read(arguments.ids), arguments.n_bits, arguments.seed
    of_vectors = source.suffix == ".npy" and not arguments.codes
    wishes = {"bits": arguments.bits, "bytes": arguments.bytes, "float_recall": arguments.float_recall}
    if not of_vectors and (arguments.hasher is not None or any(wish is not None for wish in wishes.values())):
        raise ValueError("--hasher, --bits, --bytes and --float-recall must be left out for codes, got one")
    if of_vectors:
        return Collection.from_vectors(
            read_array(source), ids, **wishes, hasher=_hasher(arguments), metric=arguments.metric, random_state=seed
        )
    if source.suffix == ".npy":
        return Collection.from_codes(read_array(source), ids, n_bits=n_bits, random_state=seed)
    from bitrank.index import interchange

    if ids is not None:
        raise ValueError(f"--ids must be left out for {source}, which has its own, got some")
    if source.is_dir():
        return Collection.load(source, mmap=False)
    index = interchange.from_file(source, n_bits=n_bits, column=arguments.column, id_column=arguments.id_column)
    return Collection.from_codes(index.codes(index.ids), index.ids, n_bits=index.n_bits, random_state=seed)


def _hasher(arguments: argparse.Namespace) -> Any:
    """A saved hasher, or a new one with the parameters that it has; None leaves the choice to the collection."""
    from bitrank.hashing import HASHERS, hasher_class, load_hasher

    if arguments.hasher is None:
        if arguments.n_bits is not None:
            raise ValueError("--n-bits must be left out for vectors without --hasher, got one")
        return None
    if arguments.hasher not in HASHERS:
        return load_hasher(arguments.hasher)
    cls = hasher_class(arguments.hasher)
    given = {"n_bits": arguments.n_bits, "random_state": arguments.seed}
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in given.items() if name in known and value is not None})
