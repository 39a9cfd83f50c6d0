"""What it costs to encode a request, to encode it again, to read an answer, and to decode a stream.

    python benchmarks/wire.py [--rounds 200]

Each encoder makes requests of about 10 kB, 100 kB and 1 MB: once from parts that nobody has encoded yet, down to the
bytes that go to a socket, against `json.dumps` of the same body; and once from parts of which all but the newest turn
were sent before, which is what every turn of a run does, without and with the copy to the socket. Decoding is a
streamed reply through the vendor's decoder, against `json.loads` of each of its events and of the same reply in one
piece. The stream decoder is measured in MB/s beside httpx's own line iterator over the same chunks.

Figures are medians; ratios are taken within one run, so the machine's own speed does not enter. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import httpx
from httpx._decoders import LineDecoder

from shoal.providers import (
    SERVERS,
    Block,
    Message,
    ModelProfile,
    Request,
    Segment,
    Text,
    ToolCall,
    ToolSet,
    ToolSpec,
    chat_encoder,
    shipped_profile,
)
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._messages_reply import MessagesReply
from shoal.providers._refusals import Asked
from shoal.providers._responses import ResponsesEncoder
from shoal.providers._sse import Event, SseDecoder
from shoal.providers._states import Reader
from shoal.providers._wire import Wire

SIZES = (10_000, 100_000, 1_000_000)
QUESTIONS = 30
"""How often a run asks a short question more: few enough for its requests to stay about as long as they were."""
SCHEMA = b'{"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}'
LINE = 'The pier is closed \u2014 boats wait "outside" of the harbour.\n'
Encode = Callable[[Request], Wire]


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 4), "unit": unit, **more}), flush=True)


def encoders() -> dict[str, tuple[str, Callable[[], Encode]]]:
    """Return each encoder's model, and what makes a new one: an encoder remembers what it made."""
    chat = "gpt-5.4"
    count = iter(range(10**9))

    def new_chat() -> Encode:
        # The encoder of equal arguments is one object; another window makes it another one.
        profile = replace(shipped_profile(chat), window_tokens=1_000_000 + next(count))
        return chat_encoder(SERVERS["openai"], profile=profile).encode

    def of(
        make: Callable[[str, ModelProfile], MessagesEncoder | ResponsesEncoder | GeminiEncoder], model: str
    ) -> Encode:
        encoder = make("bench", shipped_profile(model))
        return lambda request: encoder.encode(request).body

    return {
        "messages": ("claude-opus-5", lambda: of(MessagesEncoder, "claude-opus-5")),
        "responses": ("gpt-6.1-sol", lambda: of(ResponsesEncoder, "gpt-6.1-sol")),
        "chat": (chat, new_chat),
        "gemini": ("gemini-4-argon", lambda: of(GeminiEncoder, "gemini-4-argon")),
    }


def words(size: int) -> str:
    return (LINE * (size // len(LINE) + 1))[:size]


def turn(number: int) -> tuple[Message, ...]:
    """A turn as most are: a call with a remark, and its result of 2 kB."""
    call = ToolCall(f"call_{number}", "read", Text.of(json.dumps({"path": f"src/part_{number}.py"})))
    said = Message("assistant", (Text.of(words(120)),), (call,))
    return said, Message("tool", (Text.of(words(2_000)),), call_id=f"call_{number}", tool_name="read")


class Run:
    """A run whose requests have about *size* bytes: a third of them system blocks, the rest turns."""

    def __init__(self, model: str, size: int) -> None:
        self.model = model
        count = max(2, min(12, size // 8_000))
        each = size // 3 // count
        kinds = ("stable", "grows", "rewritten")
        self.system = tuple(
            Block(f"r{n}", (Text.of(f"## r{n}\n"), Text.of(words(each))), each // 4, kinds[n * 3 // count])
            for n in range(count)
        )
        specs = tuple(ToolSpec(f"tool_{n}", words(80), SCHEMA) for n in range(max(1, min(10, size // 10_000))))
        self.tools = ToolSet(specs, 100)
        self.closed: list[Segment] = []
        self.open: list[Message] = [Message("user", (Text.of(words(200)),))]
        self.number = 0
        while self.number < (size * 2 // 3) // 2_300:
            self.add()

    def add(self) -> None:
        """Say one turn more."""
        self.open += turn(self.number)
        self.number += 1
        if len(self.open) >= 16:
            self.closed.append(Segment("conversation", tuple(self.open), 8_000, closed=True))
            self.open = []

    def ask(self) -> None:
        """Say no more than a short question."""
        self.open.append(Message("user", (Text.of(f"And now, {len(self.open)}?"),)))

    def request(self) -> Request:
        tail = (Segment("conversation", tuple(self.open), 500),) if self.open else ()
        return Request(self.model, self.system, (*self.closed, *tail), tools=self.tools, run_id="bench")


def microseconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1e6


def median_us(rounds: int, prepare: Callable[[], Callable[[], object]]) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        what = prepare()
        taken.append(microseconds(what))
    return statistics.median(taken)


def again(run: Run, encode: Encode) -> tuple[list[float], list[float], list[float]]:
    """Return the times of *run*'s requests, each a short question longer than the one before it, in microseconds.

    Returns:
        Of encoding it; of that with the copy to a socket; of encoding one of which nothing is new.
    """
    encode(run.request())
    grown: list[float] = []
    sent: list[float] = []
    unchanged: list[float] = []
    for question in range(QUESTIONS):
        run.ask()
        request = run.request()
        if question % 3 == 1:
            sent.append(microseconds(lambda asked=request: b"".join(encode(asked).pieces())))
            continue
        grown.append(microseconds(lambda asked=request: encode(asked)))
        unchanged.append(microseconds(lambda asked=request: encode(asked)))
    return grown, sent, unchanged


def measure_encoding(rounds: int) -> None:
    for name, (model, make) in encoders().items():
        for size in SIZES:
            times = max(5, min(rounds, rounds * 100_000 // size))
            body = bytes(make()(Run(model, size).request()))
            decoded = json.loads(body)

            def anew(model: str = model, size: int = size, make: Callable[[], Encode] = make) -> Callable[[], object]:
                encode, request = make(), Run(model, size).request()
                return lambda: b"".join(encode(request).pieces())

            gc.collect()
            gc.disable()
            dumps = median_us(times, lambda decoded=decoded: lambda: json.dumps(decoded).encode())
            anew_us = median_us(max(5, times // 4), anew)
            grown = [again(Run(model, size), make()) for _ in range(max(1, times // 20))]
            again_us, sent_us, unchanged_us = [statistics.median(chain(*taken)) for taken in zip(*grown, strict=True)]
            slowest_us = statistics.quantiles(chain(*[taken[0] for taken in grown]), n=10)[-1]
            gc.enable()
            label = f"wire/encode/{name}/{size // 1000}kB"
            figure(f"{label}/anew", anew_us, "us", json_dumps_us=round(dumps, 1), of_dumps=round(anew_us / dumps, 3))
            figure(
                f"{label}/again",
                again_us / anew_us,
                "of encoding it anew",
                target=0.15,
                us=round(again_us, 1),
                ninth_of_ten=round(slowest_us / anew_us, 4),
                with_copy_us=round(sent_us, 1),
                with_copy=round(sent_us / anew_us, 4),
                with_nothing_new=round(unchanged_us / anew_us, 4),
                body_bytes=len(body),
            )


# --- decoding


def stream(size: int) -> list[bytes]:
    """Return the events of a streamed reply of about *size* bytes, as they come over the wire."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    start = {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": usage}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    made = [start, block]
    piece = words(60)
    while sum(len(json.dumps(one)) + 40 for one in made[-1:]) * len(made) < size:
        made.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    made += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 99}},
        {"type": "message_stop"},
    ]
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in made]


def decoded(chunks: list[bytes]) -> object:
    reply = MessagesReply(Asked("bench", "m"), headers={}, names={}, reader=Reader("bench", "m", "messages"))
    decoder = SseDecoder()
    for chunk in chunks:
        for event in decoder.feed(chunk):
            for _ in reply.feed(event):
                pass
    return reply.completed(prompt_bytes=0)


def chunked(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def measure_decoding(rounds: int) -> None:
    for size in SIZES:
        events = stream(size)
        chunks = chunked(b"".join(events), 4096)
        lines = [event.split(b"data: ")[1] for event in events]
        whole = json.dumps({"content": [json.loads(line) for line in lines]}).encode()
        times = max(5, min(rounds, rounds * 100_000 // size))
        gc.collect()
        gc.disable()
        ours = median_us(times, lambda chunks=chunks: lambda: decoded(chunks))
        each = median_us(times, lambda lines=lines: lambda: [json.loads(line) for line in lines])
        one = median_us(times, lambda whole=whole: lambda: json.loads(whole))
        gc.enable()
        figure(
            f"wire/decode/messages/{size // 1000}kB",
            ours,
            "us",
            json_loads_each_us=round(each, 1),
            json_loads_whole_us=round(one, 1),
            of_loads_each=round(ours / each, 3),
            of_loads_whole=round(ours / one, 3),
        )


def measure_sse(rounds: int) -> None:
    body = b"".join(stream(1_000_000))
    for chunk_bytes in (256, 4096, 65_536):
        chunks = chunked(body, chunk_bytes)
        gc.collect()
        gc.disable()
        ours = median_us(max(5, rounds // 10), lambda chunks=chunks: lambda: sse(chunks))
        theirs = median_us(max(5, rounds // 10), lambda chunks=chunks: lambda: httpx_lines(chunks))
        gc.enable()
        figure(
            f"wire/sse/{chunk_bytes}B",
            len(body) / ours,
            "MB/s",
            httpx_lines_mb_s=round(len(body) / theirs, 1),
            of_httpx=round(theirs / ours, 3),
        )


def sse(chunks: list[bytes]) -> list[Event]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def httpx_lines(chunks: list[bytes]) -> list[str]:
    """What `Response.iter_lines` does: decode text, and split it at line ends."""
    text = httpx._decoders.TextDecoder(encoding="utf-8")
    lines = LineDecoder()
    made: list[str] = []
    for chunk in chunks:
        made += lines.decode(text.decode(chunk))
    return made + lines.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    measure_encoding(rounds)
    measure_decoding(rounds)
    measure_sse(rounds)


if __name__ == "__main__":
    main()
