"""Arrays in plain files: .npy, .csv and .json, chosen by the ending; nothing is ever unpickled.

The command line reads labels, triplets and weights with it, and writes weights; weights also come from the folder of an
index or from a running service.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.codes import Weights, check_weights
from bitrank.index import Index

KINDS = (".npy", ".csv", ".json")
_TIMEOUT_S = 30


def read_array(path: str | Path) -> npt.NDArray[Any]:
    """Read an array: a .npy, a .csv of numbers without a header, or a .json list.

    Examples
    --------
    >>> write_array("labels.csv", np.array([3, 1, 2]))
    >>> read_array("labels.csv")
    array([3, 1, 2])
    """
    path = check_kind(path)
    try:
        if path.suffix == ".npy":
            array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        elif path.suffix == ".csv":
            array = _plain(np.loadtxt(path, delimiter=",", dtype=np.str_, ndmin=1))
        else:
            array = np.asarray(json.loads(path.read_text(encoding="utf-8")))
        if array.dtype.kind not in "biufU":
            raise ValueError(f"expected numbers or texts in rows of one length, got {array.dtype}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return array


def _plain(texts: npt.NDArray[np.str_]) -> npt.NDArray[Any]:
    """Whole numbers where all are, else numbers where all are, else texts."""
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except ValueError:
            continue
    return texts


def write_array(path: str | Path, array: npt.NDArray[Any]) -> None:
    """Write an array of one or two dimensions, in the form that the ending names. Floats keep every digit.

    Examples
    --------
    >>> write_array("weights.json", np.float32([0.5, 2]))
    >>> read_array("weights.json")
    array([0.5, 2. ])
    """
    path = check_kind(path)
    if path.suffix == ".npy":
        with open(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
    elif path.suffix == ".csv":
        lines = (",".join(map(str, np.atleast_1d(row).tolist())) for row in array)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        path.write_text(json.dumps(array.tolist()) + "\n", encoding="utf-8")


def check_kind(path: str | Path) -> Path:
    """A path that ends as one of these files does, or a ValueError."""
    if Path(path).suffix not in KINDS:
        raise ValueError(f"{path}: the file must end in {', '.join(KINDS)}")
    return Path(path)


def read_weights(source: str, token: str | None = None) -> Weights:
    """Read one vector of weights: from a file, the folder of an index, or the URL of a version on a running service.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> Index(pack([[1, 0], [0, 1]]), n_bits=2, weights=[3, 1]).save("codes.index")
    >>> read_weights("codes.index")
    array([3., 1.], dtype=float32)
    """
    if source.startswith(("http://", "https://")):
        answer = get_json(source, token)
        found = answer.get("weights") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise ValueError(f"{source}: expected a version with its weights, as at /profiles/default/versions/1")
        weights = np.asarray(found)
    elif Path(source).is_dir():
        index = Index.load(source)
        weights = np.ones(index.n_bits) if index.weights is None else index.weights
    else:
        weights = read_array(source)
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise ValueError(f"{source}: expected one vector of weights, got {weights.dtype} of shape {weights.shape}")
    return check_weights(weights)


def get_json(url: str, token: str | None = None, body: Any = None) -> Any:
    """Ask a running service, or send it something, and read its answer; a refusal is a ValueError with its reason."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read(2000).decode(errors="replace")
        raise ValueError(f"{url}: {error.code} {error.reason}: {reason}") from None
