"""Data to try things on and to compare methods with: one function a set, each giving plain arrays.

They stand before everything else in the path of data: images go to `bitrank.features` or as pixels to a hasher,
vectors to a hasher. The digits are in the package; the others are read from the folder named by BITRANK_DATA.
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
