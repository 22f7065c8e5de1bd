"""The kernels of `bitrank.gpu` in NumPy: a device for its index on machines without a GPU."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from bitrank.gpu import plan
from bitrank.gpu.cuda import DeviceError
from bitrank.gpu.quantise import offsets


def byte_tables(weights):
    """Sums of the weights of every value of every byte of a code, shape (n_bytes, 256), bit after bit in float32."""
    padded = np.append(weights, np.zeros(-len(weights) % 8, np.float32)).reshape(-1, 8)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
    return sum(padded[:, bit, None] * bits[:, bit] for bit in range(8))


class DeviceArray(np.ndarray):
    """An array that counts as one on the device."""


class NumpyDevice:
    """What `bitrank.gpu.cuda.Device` does, in host memory."""

    memory = 1 << 40
    fails_at = None  # launch at which CUDA fails

    def __init__(self, number):
        self.number = number
        self.launches = 0

    @contextmanager
    def work(self):
        yield

    def launched(self):
        self.launches += 1
        if self.launches == self.fails_at:
            raise DeviceError("CUDA failed on device 0: cudaErrorIllegalAddress")

    def room(self):
        return self.memory

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    pinned = empty

    def upload(self, array):
        return np.array(array)

    def download(self, array):
        return np.array(array)

    def held(self, codes):
        return codes if isinstance(codes, DeviceArray) else None

    def mark(self, chunk, ids):
        ids_of_rows = np.arange(len(chunk)) + chunk.first_id if chunk.ids is None else chunk.ids
        marked = np.isin(ids_of_rows, ids) & live_flags(chunk)
        return words_of(marked), int(marked.sum())

    def scratch(self, task):
        return NumpyScratch(self, task)

    def staged(self, chunks):
        resident = tuple(chunk for chunk in chunks if not chunk.streamed)
        if resident:
            yield resident
        for chunk in chunks:
            if chunk.streamed:
                yield (replace(chunk, codes=chunk.codes.copy()),)


def live_flags(chunk):
    if chunk.live is None:
        return np.ones(len(chunk), bool)
    return np.unpackbits(chunk.live.view(np.uint8), bitorder="little", count=len(chunk)).astype(bool)


def words_of(flags):
    padded = np.zeros(-(-len(flags) // 32) * 32, bool)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view(np.uint32)


class NumpyScratch:
    """What `bitrank.gpu.kernels.Scratch` does: state.cu names the arrays."""

    def __init__(self, device, task):
        self.device, self.task = device, task
        self.limits = task.limits.copy()
        self.limit_ids = np.full(len(task.codes), np.iinfo(np.int64).max)
        self.tables = self.tables_of(task.weights)
        self.second_tables = None if task.second_weights is None else self.tables_of(task.second_weights)
        self.forget()

    def tables_of(self, weights):
        values = np.arange(256, dtype=np.uint8)
        with np.errstate(over="ignore"):
            tables = [byte_tables(row) for row in weights]
        return [
            np.stack([byte[values ^ q] for byte, q in zip(table, code, strict=True)])
            for table, code in zip(tables, self.task.codes, strict=True)
        ]

    def restart(self):
        self.forget()

    def forget(self):
        n = len(self.task.codes)
        self.hits, self.counts = [[] for _ in range(n)], np.zeros(n, np.int64)
        self.top, self.lost = [[] for _ in range(n)], False

    def scan(self, chunks, phase):
        self.device.launched()
        size = plan.tile(self.task.codes.shape[1])
        tiles = [(c, start) for c in chunks for start in range(0, len(c), size)]
        if not phase.scored:
            starts = offsets(self.task.quantised, self.limits, self.task.codes.shape[1])
        for i in range(phase.n_tiles):
            chunk, start = tiles[phase.stride * (i + i // (phase.ratio - 1) + 1 if phase.ratio else i)]
            rows = slice(start, min(start + size, len(chunk)))
            codes, live = chunk.codes[rows], live_flags(chunk)[rows]
            ids = np.arange(len(chunk))[rows] + chunk.first_id if chunk.ids is None else chunk.ids[rows]
            bits = np.unpackbits(codes, axis=1).astype(np.int32)
            for query in range(len(self.task.codes)):
                wanted = live
                if not phase.scored:
                    wanted = live & (
                        8 * (bits @ self.task.quantised.signed[query].astype(np.int32)) + starts[query] < 0
                    )
                if wanted.any():
                    self.consider(query, codes[wanted], ids[wanted])

    def consider(self, query, codes, ids):
        distances = self.distances(self.tables[query], codes)
        limit = self.limits[query]
        near = (distances < limit) | ((distances == limit) & (ids <= self.limit_ids[query]))
        seconds = np.zeros(len(codes), np.float32)
        if self.second_tables is not None:
            seconds = self.distances(self.second_tables[query], codes)
        found = list(zip(distances[near].tolist(), ids[near].tolist(), seconds[near].tolist(), strict=True))
        self.counts[query] += len(found)
        self.hits[query] = (self.hits[query] + found)[: self.task.capacity]

    @staticmethod
    def distances(tables, codes):
        out = np.zeros(len(codes), np.float32)
        with np.errstate(over="ignore"):
            for byte, table in enumerate(tables):
                out += table[codes[:, byte]]
        return out

    def keep_best(self):
        self.device.launched()
        k = self.task.k
        for query, hits in enumerate(self.hits):
            entries = sorted(self.top[query] + hits)
            if self.counts[query] > self.task.capacity:
                self.lost = True
            else:
                self.top[query] = entries[:k]
            if len(entries) >= k and entries[k - 1][:2] < (self.limits[query], self.limit_ids[query]):
                self.limits[query], self.limit_ids[query] = entries[k - 1][:2]
            self.hits[query], self.counts[query] = [], 0

    def best(self):
        n_out = self.task.n_out
        ids = np.full((len(self.top), n_out), -1)
        distances = np.full((len(self.top), n_out), np.inf, np.float32)
        for query, entries in enumerate(self.top):
            second = self.second_tables is not None
            order = sorted((e[2] if second else e[0], e[1]) for e in entries)[:n_out]
            ids[query, : len(order)] = [i for _, i in order]
            distances[query, : len(order)] = [d for d, _ in order]
        return ids, distances, self.lost

    def n_hits(self):
        return self.counts

    def hits_of(self, query, n):
        found = self.hits[query][:n]
        return np.array([e[1] for e in found], np.int64), np.array([e[0] for e in found], np.float32)
