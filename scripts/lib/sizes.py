"""Sizes as people read them."""


def show_bytes(size: float) -> str:
    """Return a number of bytes in the unit that suits it, steps of 1,000: 12 B, 55.6 GB."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"
