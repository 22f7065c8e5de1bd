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
