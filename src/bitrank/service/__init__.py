"""Live search over HTTP that learns from clicks: `bitrank serve`.

It stands on top of the path, over `index`, `hashing` and `feedback`: deleting it breaks nothing but itself.
"""
