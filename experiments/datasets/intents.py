"""banking77: sentences of bank customers as vectors of a sentence encoder, with 77 intents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.datasets.files import Forms, check_class_numbers, data_folder, read_arrays

FILE = "banking77_minilm.npz"

_FORMS: Forms = {
    "x_train": (np.floating, (10_003, "d")),
    "y_train": (np.integer, (10_003,)),
    "x_test": (np.floating, (3_080, "d")),
    "y_test": (np.integer, (3_080,)),
    "class_names": (np.str_, (77,)),
}


class Intents(NamedTuple):
    """Vectors of sentences and their labels, one row per sentence; and the names of the classes.

    Examples
    --------
    >>> intents = Intents(np.zeros((2, 384), np.float32), np.int16([1, 0]), np.array(["card_arrival", "refund"]))
    >>> intents.class_names[intents.labels]
    array(['refund', 'card_arrival'], dtype='<U12')
    """

    vectors: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int16]
    class_names: npt.NDArray[np.str_]


def banking77() -> Intents:
    """Load the 13 083 sentences of banking77 as vectors: 10 003 of the training set, then 3 080 of the test set.

    They are read from banking77_minilm.npz in the folder of data sets; docs/data.md says how to make it.

    Returns
    -------
    vectors : float32 array of shape (13083, 384)
    labels : int16 array of shape (13083,)
    class_names : str array of shape (77,)

    Raises
    ------
    FileNotFoundError
        If the file is missing.
    ValueError
        If the file is damaged or has another format.

    References
    ----------
    I. Casanueva and others: Efficient intent detection with dual sentence encoders, 2020.

    Examples
    --------
    >>> vectors, labels, class_names = banking77()  # doctest: +SKIP
    >>> vectors.shape, class_names[labels[0]]  # doctest: +SKIP
    ((13083, 384), np.str_('card_arrival'))
    """
    path = data_folder() / FILE
    if not path.exists():
        raise FileNotFoundError(
            f"banking77 is not at {path}. Embed the sentences of https://github.com/PolyAI-LDN/task-specific-datasets "
            f"(banking_data/train.csv and test.csv, in their order) with a sentence encoder, and write the vectors "
            f"there as x_train and x_test, the labels as y_train and y_test, and class_names; the environment "
            f"variable BITRANK_DATA names the folder"
        )
    arrays = read_arrays(path, _FORMS)
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    check_class_numbers(path, labels, len(arrays["class_names"]))
    vectors = np.concatenate([arrays["x_train"], arrays["x_test"]], dtype=np.float32)
    if not np.isfinite(vectors).all():
        raise ValueError(f"{path} must hold finite vectors, got others")
    return Intents(vectors, labels.astype(np.int16), arrays["class_names"])
