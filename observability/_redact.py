"""What looks like a secret, struck out of what a run said and heard before that goes into a span.

A secret is known in two ways: it is the value of a variable of this process that looks like a credential, or it has
the shape that one of the usual vendors gives its keys.

Source: GitHub, "Supported secret scanning patterns", for the shapes; RFC 7468 for private keys, RFC 7519 for tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import final

from shoal.runtime import LEAST_SECRET_CHARS, STRUCK, Secrets
from shoal.runtime.tools import is_credential

_SHAPES = re.compile(
    r"""
      -----BEGIN\ [A-Z0-9 ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z0-9 ]*PRIVATE\ KEY-----|\Z)
    | \bsk-[A-Za-z0-9_-]{16,}                          # OpenAI, Anthropic, OpenRouter and who took after them
    | \bAIza[A-Za-z0-9_-]{35}                          # Google
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                    # AWS
    | \bgh[opsur]_[A-Za-z0-9]{36,} | \bgithub_pat_[A-Za-z0-9_]{22,}
    | \bglpat-[A-Za-z0-9_-]{20,}                       # GitLab
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}                 # Slack
    | \bhf_[A-Za-z0-9]{30,}                            # Hugging Face
    | \bpypi-[A-Za-z0-9_-]{50,} | \bnpm_[A-Za-z0-9]{36}
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/=-]{16,}
    | (?<=://)[^/@\s:]*:[^/@\s]+(?=@)                  # name and password in an address
    """,
    re.VERBOSE | re.DOTALL,
)


@final
class Redactor:
    """Strikes secrets out of texts.

    Args:
        secrets: Those that are known; values shorter than `LEAST_SECRET_CHARS` are left alone.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = Secrets({secret: secret for secret in secrets if len(secret) >= LEAST_SECRET_CHARS})

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Redactor:
        """Return one that knows the values of *environ* that look like credentials."""
        return cls(value for name, value in environ.items() if is_credential(name, value))

    def __call__(self, text: str) -> str:
        """Return *text* with `[redacted]` in place of each secret."""
        return _SHAPES.sub(STRUCK, self._known.strike_plain(text))
