"""Images, documents and recordings in a request: what is taken (G10), and what it counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.testing.wire import _media
from shoal.testing.wire._gemini._request import RESPONSE, Piece, Request, standard
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._rules import Violation

REQUEST_BYTES = 20 * 1024 * 1024
PAGES = 1000
TILE_PIXELS = 768
TILE_TOKENS = 258
FILE_TOKENS = 1000
"""A recording, or a file that is behind a URI."""

READ = frozenset({"image/png", "image/jpeg", "image/webp"})
"""Images of which this server reads the size."""
TAKEN = READ | {
    "image/heic",
    "image/heif",
    "application/pdf",
    "audio/wav",
    "audio/mp3",
    "audio/mpeg",
    "audio/aiff",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "video/mp4",
    "video/mpeg",
    "video/mov",
    "video/quicktime",
    "video/avi",
    "video/x-flv",
    "video/webm",
    "video/wmv",
    "video/3gpp",
}


def g10(request: Request) -> Iterator[Violation]:
    """A request is not too large, and what it carries is of a kind that is taken."""
    if request.size > REQUEST_BYTES:
        yield Violation("G10", "", f"Request payload size exceeds the limit: {REQUEST_BYTES} bytes.")
    for turn in request.contents:
        for piece in turn.pieces:
            blobs = _blobs(piece)
            if piece.kind == RESPONSE and blobs and not request.model.signatures:
                what = "Multimodal function responses are not supported for this model."
                yield Violation("G10", piece.path, what)
            for path, blob in blobs:
                yield from _blob(path, blob)


def _blobs(piece: Piece) -> list[tuple[str, Json]]:
    """Return what *piece* carries inline: itself, or the parts of a response."""
    if piece.kind == "inlineData":
        return [(f"{piece.path}.inline_data", obj(piece.held))]
    return [
        (f"{piece.path}.function_response.parts[{number}].inline_data", part["inlineData"])
        for number, part in enumerate(_response_parts(piece))
        if "inlineData" in part
    ]


def _response_parts(piece: Piece) -> Sequence[Json]:
    return arr(piece.held.get("parts")) if piece.kind == RESPONSE else ()


def _blob(path: str, blob: Json) -> Iterator[Violation]:
    mime = str(blob.get("mimeType", ""))
    raw = _decoded(blob)
    if mime not in TAKEN and not mime.startswith("text/"):
        yield Violation("G10", f"{path}.mime_type", f"Unsupported MIME type: {mime}")
    elif not raw:
        yield Violation("G10", f"{path}.data", f"Invalid value at '{path}.data' (TYPE_BYTES), Base64 decoding failed")
    elif mime in READ:
        image = _media.image(raw)
        if image is None or image.media_type != mime:
            yield Violation("G10", path, "Provided image is not valid.")
    elif mime == "application/pdf":
        document = _media.pdf(raw)
        if document is None or document.encrypted:
            yield Violation("G10", path, "The document has no pages.")
        elif document.pages > PAGES:
            what = f"The document contains {document.pages} pages which exceeds the supported page limit of {PAGES}."
            yield Violation("G10", path, what)


def _decoded(blob: Json) -> bytes:
    """Return the bytes of *blob*; empty if they are none."""
    return _media.decoded(standard(blob.get("data", ""))) or b""


def media_tokens(piece: Piece) -> int:
    """Return what *piece* carries counts: images by tiles of 768 pixels, documents by pages, all else 1,000."""
    files = sum(1 for part in _response_parts(piece) if "fileData" in part) + (piece.kind == "fileData")
    return files * FILE_TOKENS + sum(_blob_tokens(blob) for _, blob in _blobs(piece))


def _blob_tokens(blob: Json) -> int:
    raw = _decoded(blob)
    if image := _media.image(raw):
        return TILE_TOKENS * -(-image.width // TILE_PIXELS) * -(-image.height // TILE_PIXELS)
    if document := _media.pdf(raw):
        return TILE_TOKENS * max(1, document.pages)
    return FILE_TOKENS
