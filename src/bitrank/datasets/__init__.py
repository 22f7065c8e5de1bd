"""Data sets as plain arrays, one function per set.

The package contains the digits; the other sets are read from the folder that BITRANK_DATA names.
"""

from bitrank.datasets.embedded import Digits, digits
from bitrank.datasets.faces import Faces, youtube_faces
from bitrank.datasets.intents import Intents, banking77
from bitrank.datasets.openml import Pictures, cifar10, mnist

__all__ = [
    "Digits",
    "Faces",
    "Intents",
    "Pictures",
    "banking77",
    "cifar10",
    "digits",
    "mnist",
    "youtube_faces",
]
