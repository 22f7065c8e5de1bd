import numpy as np
import numpy.typing as npt

def weighted_hamming(
    queries: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def hamming(
    queries: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint16],
    threads: int = 1,
) -> None: ...
def margins(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None: ...
def combine(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    values: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None: ...
def gram(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    active: npt.NDArray[np.bool_],
    out: npt.NDArray[np.float64],
    total: npt.NDArray[np.float64],
) -> None: ...
def passive_aggressive(
    order: npt.NDArray[np.float64],
    tie: npt.NDArray[np.float64],
    c_order: float,
    c_tie: float,
    tolerance: float,
    max_sweeps: int,
    weights: npt.NDArray[np.float64],
) -> int: ...
