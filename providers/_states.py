"""What a vendor wants back, sealed with the API that can read it."""

from __future__ import annotations

from typing import final

import msgspec

from shoal.providers._values import Message, ProviderState


@final
class _Sealed(msgspec.Struct, frozen=True):
    api: str
    state: msgspec.Raw


_decode = msgspec.json.Decoder(_Sealed).decode


@final
class Reader(msgspec.Struct, frozen=True):
    """Who reads a state: one API of one provider, for one model.

    Args:
        provider: Name of the provider.
        model: The model.
        api: Name of the API.
    """

    provider: str
    model: str
    api: str

    def seal(self, value: bytes) -> ProviderState:
        """Return *value*, JSON, as a state that only this reader reads."""
        return ProviderState(self.provider, self.model, b'{"api":"%b","state":%b}' % (self.api.encode(), value))

    def read(self, message: Message) -> bytes | None:
        """Return what is to be sent back with *message*; `None` where that is nothing, or another's."""
        state = message.state
        if state is None or (state.provider, state.model) != (self.provider, self.model):
            return None
        try:
            sealed = _decode(state.data)
        except msgspec.MsgspecError:
            return None
        return bytes(sealed.state) if sealed.api == self.api else None
