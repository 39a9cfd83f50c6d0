"""What images and files count. OpenAI's own rules differ by model; these are simpler, and the same for all."""

from __future__ import annotations

from shoal.testing.wire import _media

LOW_DETAIL = 85
UNSEEN = 765
"""An image that is behind a URL or an id."""
PATCH_PIXELS = 32
MOST_PATCHES = 1536
FILE = 1000
"""A file or a recording."""


def image_tokens(url: str | None, detail: str | None) -> int:
    """Return what an image counts: 85 in low detail, else its patches of 32 pixels, at most 1,536.

    Args:
        url: A data URL shows its size; any other, and `None` for a file's id, does not.
        detail: As in the request.
    """
    if detail == "low":
        return LOW_DETAIL
    if url is None or not url.startswith("data:"):
        return UNSEEN
    image = _media.image(_media.decoded(url.partition(",")[2]) or b"")
    if image is None:
        return UNSEEN
    return min(MOST_PATCHES, -(-image.width // PATCH_PIXELS) * -(-image.height // PATCH_PIXELS))
