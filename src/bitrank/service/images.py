"""Pictures: decode uploads within limits, turn them into vectors for a hasher, and find the files of items."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

Vector = npt.NDArray[np.float32]
Vectorizer = Callable[[Image.Image], Vector]

MAX_PIXELS = 16_000_000
MAX_SIDE = 16_384
KEPT_SIDE = 2048
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
}


def decode(data: bytes) -> Image.Image:
    """Decode an uploaded picture and turn it upright; raises a ValueError if it is none or too large.

    The size is read from the header and checked before anything is decompressed. Larger pictures than any features need
    are made smaller at once.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS or max(image.size) > MAX_SIDE:
                limits = f"at most {MAX_PIXELS} pixels and {MAX_SIDE} on a side"
                raise ValueError(f"{limits}, got {image.width} by {image.height}")
            image.load()
            image.thumbnail((KEPT_SIDE, KEPT_SIDE))
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError:  # whose text holds an address in memory
        raise ValueError(f"the upload must be a picture ({', '.join(FORMATS)}), got {len(data)} other bytes") from None
    except Exception as error:  # Pillow raises a dozen kinds over damaged bytes, SyntaxError and struct.error too
        raise ValueError(f"the upload must be a picture ({', '.join(FORMATS)}) that can be read: {error}") from None


def vectorizer(spec: str) -> Vectorizer:
    """Return what turns a picture into a vector: gray values from 0 to 1, or a function of the operator's.

    Parameters
    ----------
    spec : str
        "pixels:28" are gray values at 28 by 28; "module:function" is a function that takes a `PIL.Image.Image` and
        returns a vector.

    Examples
    --------
    >>> vectorizer("pixels:28")(Image.new("RGB", (100, 50), "white")).shape
    (784,)
    """
    module, _, name = spec.partition(":")
    if module == "pixels" and name.isdigit() and 4 <= int(name) <= 1024:
        size = (int(name), int(name))
        return lambda image: _gray(image.convert("L").resize(size, Image.Resampling.BILINEAR)).ravel()
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            "image features must be pixels:SIDE, with SIDE from 4 to 1024, or module:function, which can be imported, "
            f"got {spec!r}: {error}"
        ) from None
    return lambda image: np.asarray(function(image), np.float32)


def digit_vector(image: Image.Image) -> Vector:
    """Turn a drawn or photographed digit into a vector: ink on paper, scaled and centred as in MNIST.

    Pictures of 28 by 28 keep their size and place; light paper is inverted.
    """
    flat = Image.new("L", image.size, 255)
    flat.paste(image.convert("L"), mask=image.convert("RGBA").getchannel("A"))
    ink = np.asarray(flat)
    border = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
    if np.median(border) > 127:
        ink = 255 - ink
    if ink.shape == (28, 28):
        return _gray(ink).ravel()
    drawn = Image.fromarray(ink > 64).getbbox()
    if drawn is None:
        return np.zeros(784, np.float32)
    box = Image.fromarray(ink).crop(drawn)
    scale = 20 / max(box.size)
    box = box.resize((max(1, round(box.width * scale)), max(1, round(box.height * scale))), Image.Resampling.BOX)
    values = np.asarray(box, np.float64)
    centre = [float((values.sum(axis=1 - axis) @ np.arange(values.shape[axis])) / values.sum()) for axis in (0, 1)]
    page = Image.new("L", (28, 28))
    page.paste(box, (round(13.5 - centre[1]), round(13.5 - centre[0])))
    return _gray(page).ravel()


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode a gray picture as a PNG file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def confined(folder: Path, name: str) -> Path:
    """Resolve the path of a picture in its folder; raises a ValueError if it leads out of it, even through a link."""
    if "\x00" in name or Path(name).suffix.lower() not in SUFFIXES:
        raise ValueError(f"an image must be a file of {', '.join(SUFFIXES)}, got {name!r:.80}")
    root = folder.resolve()
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError):  # a loop of links
        raise ValueError(f"an image must be a file that can be found, got {name!r:.80}") from None
    if not path.is_relative_to(root):
        raise ValueError(f"an image must lie in the folder of the items, got {name!r:.80}")
    return path


def _gray(image: Image.Image | npt.NDArray[np.uint8]) -> Vector:
    values: Vector = np.divide(np.asarray(image), np.float32(255), dtype=np.float32)
    return values
