"""What hashers and rankers share with scikit-learn's estimators, less what would bury their own methods."""

from __future__ import annotations

from typing import Any


class PlainMethods:
    """Leaves out scikit-learn's `set_fit_request`, … : nothing here takes part in the routing of metadata.

    Examples
    --------
    >>> from bitrank import ITQ
    >>> [name for name in dir(ITQ) if name.startswith("set_") and name.endswith("_request")]
    []
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in [name for name in vars(cls) if name.startswith("set_") and name.endswith("_request")]:
            delattr(cls, name)
