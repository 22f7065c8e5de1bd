"""The data sets of the experiments as plain arrays, one function per set, from the folder that BITRANK_DATA names."""

from experiments.datasets.faces import Faces, youtube_faces
from experiments.datasets.files import data_folder
from experiments.datasets.intents import Intents, banking77
from experiments.datasets.openml import Pictures, cifar10, mnist

__all__ = [
    "Faces",
    "Intents",
    "Pictures",
    "banking77",
    "cifar10",
    "data_folder",
    "mnist",
    "youtube_faces",
]
