"""What a model takes beside text, and what it counts for it.

Source: the vendors' pages on images, documents and recordings, 2026-11: Anthropic counts patches of 28 pixels, OpenAI
patches of 32, Google tiles of 768 at 258 tokens each and 32 tokens a second of sound. What they say of pages is a
range, of which this takes the middle or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from shoal.providers._values import Blob

FLAT: Final = "flat"
_BYTES_PER_SECOND: Final = 16_000
"""Of a recording that does not say how long it lasts: what most have."""


@final
@dataclass(frozen=True, slots=True)
class _Counting:
    """How one family of models counts.

    Args:
        patch_px: Side of the squares that an image is cut into; 0 counts every image as *most*.
        patch: Tokens of one square.
        edge_px: An image with a longer side is scaled down to it; 0 for never.
        most: Most tokens of an image.
        page: Tokens of a page of a document.
        second: Tokens of a second of sound.
        small_px: An image with no side longer than this counts as one square.
    """

    patch_px: int
    patch: int
    edge_px: int
    most: int
    page: int
    second: int = 32
    small_px: int = 0

    def image(self, width_px: int | None, height_px: int | None) -> int:
        if not (self.patch_px and width_px and height_px):
            return self.most
        longer = max(width_px, height_px)
        if longer <= self.small_px:
            return self.patch
        scale = min(1.0, self.edge_px / longer) if self.edge_px else 1.0
        across, down = (-(-max(1, int(side * scale)) // self.patch_px) for side in (width_px, height_px))
        return min(self.most, across * down * self.patch)


_COUNTINGS: Final = {
    "claude": _Counting(28, 1, 2576, 4784, 2_000),
    "claude-small": _Counting(28, 1, 1568, 1568, 2_000),
    "gpt": _Counting(32, 1, 2048, 1536, 1_500, 10),
    "gemini": _Counting(768, 258, 3072, 258 * 16, 258, 32, small_px=384),
    FLAT: _Counting(0, 0, 0, 1_500, 1_500),
}
COUNTINGS: Final = tuple(_COUNTINGS)
"""What a profile may name."""


@final
@dataclass(frozen=True, slots=True)
class Intake:
    """What a model takes beside text, and how it counts that.

    Args:
        types: Mime patterns that it takes, such as `image/*`.
        counting: Whose rule counts parts: one of `COUNTINGS`; an unknown one counts as `flat`.
    """

    types: tuple[str, ...] = ("text/*",)
    counting: str = FLAT

    def takes(self, mime: str) -> bool:
        """Say whether the model takes parts of the type *mime*."""
        return matches(self.types, mime)

    def shows(self, part: Blob) -> bool:
        """Say whether the model is sent *part* itself, as its bytes or its text, and not its stand-in alone."""
        return part.text is not None or self.takes(part.mime)

    def tokens(self, part: Blob) -> int:
        """Return what the model counts for the bytes of *part*, beside its stand-in: 0 where they are not sent.

        Nothing is counted for a part that is text: what it says is counted as text is.
        """
        if part.text is not None or not self.takes(part.mime):
            return 0
        rule = _COUNTINGS.get(self.counting, _COUNTINGS[FLAT])
        match part.mime.partition("/")[0]:
            case "image":
                return rule.image(part.width_px, part.height_px)
            case "audio" | "video":
                # No sound is packed to less than a byte a second: a header that says so would fill any window.
                seconds = part.size / _BYTES_PER_SECOND if part.seconds is None else min(part.seconds, part.size)
                return max(1, round(seconds * rule.second))
            case _:
                return rule.page * (part.pages or 1)


TEXT_ONLY: Final = Intake()


def matches(patterns: tuple[str, ...], mime: str) -> bool:
    """Say whether one of *patterns* (`image/png`, `image/*`, `*/*`) covers *mime*."""
    return bool({mime, f"{mime.partition('/')[0]}/*", "*/*"}.intersection(patterns))
