"""Processes that use a collection, started fast: forked from one that has imported everything."""

import multiprocessing

import numpy as np

from bitrank import Collection, SignBits
from bitrank.integrations.documents import Documents

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["bitrank.integrations.documents", "bitrank_papers.whrank", "sklearn.utils.validation"])


def start(target, *arguments):
    """A process that runs a function of this module, and the end of a pipe that it writes to."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def last(pipe, default):
    """The last value in a pipe whose writer has ended."""
    try:
        while pipe.poll():
            default = pipe.recv()
    except (EOFError, ConnectionResetError):
        pass
    return default


def save_for_ever(pipe, folder, replace):
    """Add five items and save, again and again; say how many are saved."""
    collection = Collection.load(folder)
    rows = np.random.default_rng(0).normal(size=(5, collection.report().n_dimensions)).astype(np.float32)
    while True:
        n = len(collection)
        collection.add(rows, ids=[f"more {n + row}" for row in range(5)])
        collection.save(folder, replace=replace)
        pipe.send(len(collection))


def remember_for_ever(pipe, path):
    """Remember, forget and save, again and again."""
    collection, rng = Collection.load(path), np.random.default_rng()
    for turn in range(10**6):
        collection.remember(rng.normal(size=24), [turn % 200, 250], query_ids=[f"{turn % 7}"])
        if turn % 5 == 4:
            collection.forget([f"{turn % 7}"])
        collection.save(path)


def put_for_ever(pipe, path, n):
    """Put a record with a vector and one that counts, drop every third, and save, again and again."""
    X = np.random.default_rng(0).normal(size=(2000, 24))
    documents = Documents(path=path)
    pipe.send("ready")
    for row in range(n, 2000):
        documents.put([f"d{row}", "count"], [{"row": row}, {"row": row}], [X[row], None])
        if row % 3 == 0:
            documents.drop([f"d{row - 1}"])
        documents.save(path)


def take_turns(pipe, folder, name):
    """Add ten items, one per save; load again where another process has saved."""
    done = 0
    while done < 10:
        collection = Collection.load(folder)
        collection.add(np.ones((1, collection.report().n_dimensions), np.float32), ids=[f"{name} {done}"])
        try:
            collection.save(folder)
        except ValueError as error:
            if "changed since it was loaded" not in str(error):
                raise
            continue
        done += 1


def search_for_ever(pipe, n):
    """Search many codes with many queries, again and again."""
    rng = np.random.default_rng(0)
    collection = Collection.from_codes(rng.integers(0, 256, (n, 8), np.uint8))
    queries = rng.normal(size=(20_000, 64)).astype(np.float32)
    pipe.send("searching")
    while True:
        collection.search(queries, 100)


def learn_for_ever(pipe, ranker):
    """Learn from labels, and say whether an interrupt left the collection as it was."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 64)).astype(np.float32)
    y = (X[:, :4] > 0) @ [8, 4, 2, 1]
    collection = Collection.from_vectors(X, random_state=0, hasher=SignBits())
    before = collection.search(X[:5], 5)
    try:
        pipe.send("learning")
        while True:
            collection.learn(labels=y, ranker=ranker)
    except KeyboardInterrupt:
        after = collection.search(X[:5], 5)
        pipe.send((before.ids == after.ids).all() and len(collection.versions) == 1)
        raise


def answer(pipe, collection, queries):
    """Search a collection that came from another process."""
    found = collection.search(queries, 5)
    pipe.send((found.ids.tolist(), found.distances.tolist()))
