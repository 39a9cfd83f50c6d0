"""What Gemini answers: candidates, endings, usage, streams and lists, counting, models, caches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_gemini_rules import (
    NEW,
    OLD,
    SUBSET,
    answers,
    ask,
    blob,
    calling,
    calls,
    document,
    function,
    says,
    told,
    tools,
)
from wirekit import GEMINI, Desk, Got, png

from shoal.testing import wire
from shoal.testing.wire._gemini._front import Front

FULL = wire.turn(wire.think("hm " * 10), "wörds of mine", wire.call("f", x=1), wire.call("g"))
THOUGHTS: dict[str, Any] = {"thinkingConfig": {"includeThoughts": True}}
SSE = {"alt": "sse"}


def reply(turn: wire.Playable, body: dict[str, Any] | None = None, model: str = NEW, **settings: Any) -> Got:
    desk = Desk(wire.Script(turn), wire.Settings(**settings))
    return desk.send(f"/v1beta/models/{model}:generateContent", body or ask(), GEMINI)


def stream(turn: wire.Playable, body: dict[str, Any] | None = None, model: str = NEW, **settings: Any) -> Got:
    desk = Desk(wire.Script(turn), wire.Settings(**settings))
    return desk.send(f"/v1beta/models/{model}:streamGenerateContent", body or ask(), GEMINI, query=SSE)


def candidate(turn: wire.Playable, body: dict[str, Any] | None = None, model: str = NEW, **settings: Any) -> Any:
    return reply(turn, body, model, **settings).json["candidates"][0]


def parts_in(events: list[Any]) -> list[Any]:
    return [part for event in events for part in event["candidates"][0]["content"].get("parts", [])]


def test_a_stream_holds_what_the_whole_reply_holds():
    whole = candidate(FULL, ask(**THOUGHTS), ids="same")["content"]["parts"]
    pieces = parts_in(stream(FULL, ask(**THOUGHTS), ids="same").events)
    texts = ["".join(part["text"] for part in found if "text" in part) for found in (whole, pieces)]
    assert texts == ["hm " * 10 + "wörds of mine"] * 2
    assert [part for part in pieces if "functionCall" in part] == whole[2:]


def test_a_call_arrives_whole():
    pieces = parts_in(stream(wire.call("f", x="long " * 20)).events)
    assert [part["functionCall"]["args"] for part in pieces] == [{"x": "long " * 20}]


def test_texts_come_in_pieces_and_their_signature_behind_them():
    pieces = parts_in(stream("x" * 40).events)
    assert [part["text"] for part in pieces] == ["x" * 16, "x" * 16, "x" * 8, ""]
    assert ["thoughtSignature" in part for part in pieces] == [False, False, False, True]


def test_an_older_model_streams_no_signature():
    assert [part["text"] for part in parts_in(stream("x" * 20, model=OLD).events)] == ["x" * 16, "x" * 4]


def test_a_signature_behind_a_text_comes_back_behind_it():
    desk = Desk(wire.Script("x" * 20, last="ok"))
    path = f"/v1beta/models/{NEW}:streamGenerateContent"
    pieces = parts_in(desk.send(path, ask(), GEMINI, query=SSE).events)
    body = ask(says("hi"), told("x" * 20, pieces[-1]), says("more"))
    assert desk.send(path, body, GEMINI, query=SSE).exchange.violations == ()


def test_a_stream_is_framed_by_crlf_and_has_no_terminator():
    got = stream("a")
    assert got.bytes.count(b"\r\n\r\n") == len(got.events)
    assert b"\n" not in got.bytes.replace(b"\r\n", b"")
    assert b"[DONE]" not in got.bytes


def test_only_the_last_event_says_why_it_stopped_and_what_it_cost():
    events = stream((wire.think("hm"), "x" * 40)).events
    assert ["finishReason" in event["candidates"][0] for event in events] == [False, False, False, True]
    assert events[0]["usageMetadata"] == {"promptTokenCount": 1, "totalTokenCount": 1}
    assert events[-1]["usageMetadata"] == {
        "promptTokenCount": 1, "candidatesTokenCount": 10, "thoughtsTokenCount": 1, "totalTokenCount": 12,
    }  # fmt: skip


def test_every_event_names_the_model_and_the_reply():
    events = stream(FULL).events
    assert len({(event["modelVersion"], event["responseId"]) for event in events}) == 1
    assert {event["candidates"][0]["index"] for event in events} == {0}


def test_a_stream_that_is_no_stream_of_events_is_a_list():
    desk = Desk(wire.Script("x" * 20))
    got = desk.send(f"/v1beta/models/{OLD}:streamGenerateContent", ask(), GEMINI)
    assert [part["text"] for part in parts_in(got.json)] == ["x" * 16, "x" * 4]
    assert dict(got.head.headers)["content-type"].startswith("application/json")


def test_an_error_of_such_a_list_is_its_only_one():
    desk = Desk()
    listed = desk.send(f"/v1beta/models/{OLD}:streamGenerateContent", {}, GEMINI)
    plain = desk.send(f"/v1beta/models/{OLD}:streamGenerateContent", {}, GEMINI, query=SSE)
    assert [one["error"]["code"] for one in listed.json] == [plain.json["error"]["code"]] == [400]


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("a", "STOP"), (wire.call("f"), "STOP"), (wire.turn("a", stop="length"), "MAX_TOKENS"),
        (wire.turn("a", stop="window"), "MAX_TOKENS"), (wire.turn("a", stop="filter"), "SAFETY"),
        (wire.turn("a", stop="refusal"), "SAFETY"), (wire.turn("a", stop="stop_sequence"), "STOP"),
        (wire.turn("a", stop="RECITATION"), "RECITATION"), (wire.turn(), "STOP"),
    ],
)  # fmt: skip
def test_every_way_to_stop_has_its_word(turn: wire.Playable, reason: str):
    assert candidate(turn)["finishReason"] == reason
    assert stream(turn).events[-1]["candidates"][0]["finishReason"] == reason


def test_a_reason_may_be_explained():
    assert candidate(wire.turn("a", stop="OTHER", detail="because"))["finishMessage"] == "because"
    assert "finishMessage" not in candidate("one two", ask(stopSequences=["two"]))


@pytest.mark.parametrize(("detail", "reason"), [(None, "SAFETY"), ("PROHIBITED_CONTENT", "PROHIBITED_CONTENT")])
def test_a_prompt_that_is_refused_has_no_candidates(detail: str | None, reason: str):
    turn = wire.turn(stop="refusal", detail=detail)
    for made in (reply(turn).json, *stream(turn).events):
        assert made["promptFeedback"] == {"blockReason": reason}
        assert "candidates" not in made
        assert made["usageMetadata"] == {"promptTokenCount": 1, "totalTokenCount": 1}


def test_a_candidate_is_the_first_and_holds_no_more_than_it_has_to():
    assert candidate("a", model=OLD) == {
        "content": {"parts": [{"text": "a"}], "role": "model"}, "finishReason": "STOP", "index": 0,
    }  # fmt: skip


def test_a_text_behind_a_call_is_not_signed():
    turn = wire.turn(wire.call("f"), "after")
    for parts in (candidate(turn)["content"]["parts"], parts_in(stream(turn).events)):
        assert ["thoughtSignature" in part for part in parts] == [True, False]


def test_an_empty_turn_has_no_parts():
    assert candidate(wire.turn())["content"] == {"role": "model"}
    assert candidate(("", wire.think("")), ask(**THOUGHTS))["content"] == {"role": "model"}


def test_thoughts_are_shown_if_asked():
    shown = candidate((wire.think("hm"), wire.think("no", redacted=True), "a"), ask(**THOUGHTS))["content"]["parts"]
    assert shown[0] == {"text": "hm", "thought": True}
    assert [part["text"] for part in shown] == ["hm", "a"]
    assert len(candidate((wire.think("hm"), "a"))["content"]["parts"]) == 1


def test_thoughts_are_counted_beside_what_is_said():
    usage = reply((wire.think("x" * 40), "y")).json["usageMetadata"]
    assert usage == {"promptTokenCount": 1, "candidatesTokenCount": 1, "thoughtsTokenCount": 10, "totalTokenCount": 12}


@pytest.mark.parametrize("arguments", ["{", "[1]"])
def test_a_call_that_is_none_is_left_out(arguments: str):
    found = candidate(("a", wire.Call("f", arguments), wire.Call("g", '{"x":1}')))
    assert found["finishReason"] == "MALFORMED_FUNCTION_CALL"
    assert found["finishMessage"] == f"Malformed function call: f({arguments})"
    assert [part["functionCall"]["args"] for part in found["content"]["parts"][1:]] == [{"x": 1}]


def test_a_call_that_was_cut_is_left_out_without_blame():
    found = candidate(wire.call("f", x="long " * 20), ask(maxOutputTokens=5))
    assert (found["finishReason"], found["content"]) == ("MAX_TOKENS", {"role": "model"})


def test_newer_models_number_their_calls():
    new, old = (candidate(FULL, model=model)["content"]["parts"][1:] for model in (NEW, OLD))
    assert len({part["functionCall"]["id"] for part in new}) == 2
    assert not any("id" in part["functionCall"] for part in old)


def test_an_older_model_may_be_told_an_id():
    part = candidate(wire.call("f", call_id="a"), model=OLD)["content"]["parts"][0]
    assert part["functionCall"]["id"] == "a"


@pytest.mark.parametrize(("kind", "ids"), [("same", 1), ("missing", 0)])
def test_ids_of_calls_can_go_wrong(kind: Any, ids: int):
    parts = candidate(FULL, faults=[wire.CallIds(kind)])["content"]["parts"][1:]
    assert len({part["functionCall"]["id"] for part in parts if "id" in part["functionCall"]}) == ids


def test_what_a_vendor_has_of_its_own_goes_out_as_it_is():
    odd = {"executableCode": {"language": "PYTHON", "code": "1"}}
    assert candidate(wire.Raw(odd))["content"]["parts"] == [odd]
    assert parts_in(stream(wire.Raw(odd)).events) == [odd]


def test_a_budget_and_stop_sequences_cut():
    assert candidate("x" * 80, ask(maxOutputTokens=5))["content"]["parts"][0]["text"] == "x" * 20
    assert candidate("one two", ask(stopSequences=["two"]))["content"]["parts"][0]["text"] == "one "


def test_the_brain_sees_the_conversation():
    contents = [
        says("u", {"text": ""}, blob("text/plain")),
        told({"text": "hm", "thought": True}, "so", calls(args={"x": 1}), calls("g")),
        says(answers(response={"output": "42"}), answers("g", {"error": "no"})),
        told(calls("h", id="c")), says(answers("h", {"a": 1, "b": 2}, id="c")),
    ]  # fmt: skip
    system = says("be", "brief", role="system")
    body = ask(*contents, systemInstruction=system, maxOutputTokens=7, **tools(function(parameters=SUBSET)))
    got = reply("a", body, OLD).exchange.ask
    assert got is not None
    assert (got.system, got.task, got.max_tokens, got.choice) == ("be\nbrief", "u", 7, "auto")
    assert got.said[2] == wire.Said("assistant", "so", (wire.Call("f", {"x": 1}, "1.0"), wire.Call("g", {}, "1.1")))
    assert got.said[3].results == (wire.Result("1.0", "f", "42"), wire.Result("1.1", "g", "no", is_error=True))
    assert got.results == (wire.Result("c", "h", '{"a":1,"b":2}'),)
    assert got.tools == (wire.Offered("f", "d", SUBSET),)


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, "f"), ({"mode": "ANY"}, "any"), ({"mode": "NONE"}, "none"),
        ({"mode": "VALIDATED"}, "auto"), ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, "any"),
    ],
)  # fmt: skip
def test_the_brain_sees_how_functions_may_be_called(config: dict[str, Any], choice: str):
    got = reply("a", ask(**tools(function(), function("g")), **calling(**config))).exchange.ask
    assert got is not None
    assert got.choice == choice


def test_an_error_in_a_stream_takes_the_place_of_its_end():
    got = stream("a", faults=[wire.ErrorEvent(kind="RESOURCE_EXHAUSTED", message="slow down")])
    last = json.loads(got.bytes.rstrip().splitlines()[-1].removeprefix(b"data: "))
    assert last == {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}


@pytest.mark.parametrize(
    ("status", "word"),
    [(403, "PERMISSION_DENIED"), (429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE"), (504, "DEADLINE_EXCEEDED")],
)
def test_an_error_has_its_word(status: int, word: str):
    assert reply(wire.Failure(status)).json["error"] == {"code": status, "message": word, "status": word}


def test_how_long_to_wait_stands_in_the_details():
    got = reply(wire.Failure(429, retry_after="34"))
    assert got.json["error"]["details"][0]["retryDelay"] == "34s"
    assert "retry-after" not in dict(got.reply.headers)


def test_anything_else_stands_in_the_header():
    got = reply(wire.Failure(503, retry_after="Mon, 30 Nov 2026 12:00:00 GMT"))
    assert "details" not in got.json["error"]
    assert dict(got.reply.headers)["retry-after"].startswith("Mon")


def test_limits_are_kept_and_not_told():
    desk = Desk(settings=wire.Settings(limits=wire.Limits(requests_per_minute=1)))
    first, second = (desk.send(f"/v1/models/{NEW}:generateContent", ask(), GEMINI) for _ in range(2))
    assert not any("limit" in name for name, _ in first.reply.headers)
    assert (second.reply.status, second.json["error"]["details"][0]["retryDelay"]) == (429, "60s")


# --- beside it


@pytest.mark.parametrize("wrapped", [True, False])
def test_tokens_are_counted_as_they_will_be(wrapped: bool):
    body = ask(says("x" * 40), systemInstruction=says("y" * 8), **tools())
    asked = {"generateContentRequest": {"model": f"models/{NEW}", **body}} if wrapped else body
    desk = Desk()
    counted = desk.send(f"/v1beta/models/{NEW}:countTokens", asked, GEMINI).json["totalTokens"]
    used = desk.send(f"/v1beta/models/{NEW}:generateContent", body, GEMINI).json["usageMetadata"]
    assert counted == used["promptTokenCount"]


def test_counting_holds_to_the_rules():
    assert Desk().send(f"/v1beta/models/{NEW}:countTokens", ask(told("x"), says(answers())), GEMINI).rules == ["G2"]
    assert Desk().send(f"/v1beta/models/{NEW}:countTokens", [], GEMINI).reply.status == 400


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (blob("image/png", png(768, 768)), 258), (blob("image/png", png(769, 768)), 516), (document(3), 774),
        (document(0), 258), (blob("audio/wav"), 1000), ({"fileData": {"fileUri": "https://there/x"}}, 1000),
        ({"executableCode": {"language": "PYTHON", "code": "1"}}, 8), ("x" * 9, 3),
    ],
)  # fmt: skip
def test_each_part_counts_by_itself(part: Any, tokens: int):
    assert reply("a", ask(says(part)), OLD).json["usageMetadata"]["promptTokenCount"] == tokens


def test_calls_and_responses_count_with_what_they_carry():
    shown = [blob("image/png", png()), blob("image/png", png()), {"fileData": {"fileUri": "https://there/x"}}]
    said = told(calls(args={"x": 1}, name="look") | {"thoughtSignature": "skip_thought_signature_validator"})
    body = ask(says("hi"), said, says(answers("look", parts=shown)))
    row = reply("a", body).exchange.row
    assert row is not None
    assert [block.tokens for block in row.blocks] == [1, 3, 5 + 2 * 258 + 1000]


def test_schemas_count():
    plain = ask(responseMimeType="application/json")
    formed = ask(responseMimeType="application/json", responseSchema=SUBSET)
    counts = [reply("a", body).json["usageMetadata"]["promptTokenCount"] for body in (plain, formed)]
    assert counts[1] - counts[0] == wire.count(json.dumps(SUBSET, separators=(",", ":")))


def test_the_front_shows_its_world():
    assert repr(Front(Desk().world)).startswith("<Front of <World")


def test_models_are_listed_and_shown():
    desk = Desk()
    listed = desk.send("/v1beta/models", headers=GEMINI, method="GET").json["models"]
    assert f"models/{OLD}" in [model["name"] for model in listed]
    assert desk.send(f"/v1beta/models/{OLD}", headers=GEMINI, method="GET").json in listed
    assert desk.send("/v1beta/models/gone", headers=GEMINI, method="GET").reply.status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1beta/models"), ("PUT", f"/v1beta/models/{OLD}:generateContent"), ("GET", "/v1beta/tunedModels"),
        ("PUT", "/v1beta/cachedContents"), ("POST", "/v1beta/cachedContents/x"),
    ],
)  # fmt: skip
def test_other_paths_are_no_ones(method: str, path: str):
    headers = {} if path.endswith("/models") else GEMINI
    assert Desk().send(path, headers=headers, method=method).reply.status in (401, 404)


# --- the cache that works by itself


BIG = "x" * 20_000


def row(desk: Desk, body: dict[str, Any], model: str = NEW, **more: Any) -> wire.Row:
    got = desk.send(f"/v1beta/models/{model}:generateContent", body, GEMINI, **more)
    assert got.exchange.row is not None, got.reply.body
    return got.exchange.row


def test_the_longest_common_prefix_is_read():
    desk = Desk()
    row(desk, ask(says(BIG)))
    again = row(desk, ask(says(BIG + "y" * 400)))
    assert (again.read, again.writes, again.uncached) == (5000, {}, 100)
    assert desk.send(f"/v1/models/{NEW}:generateContent", ask(says(BIG)), GEMINI).json["usageMetadata"][
        "cachedContentTokenCount"
    ] == 5000  # fmt: skip


@pytest.mark.parametrize(("model", "tokens", "read"), [(NEW, 4096, 4096), (NEW, 4095, 0), (OLD, 2048, 2048)])
def test_a_short_prefix_is_not_read(model: str, tokens: int, read: int):
    desk = Desk()
    row(desk, ask(says("x" * 4 * tokens)), model)
    assert row(desk, ask(says("x" * 4 * tokens), told("a"), says("b")), model).read == read


@pytest.mark.parametrize("change", [{"systemInstruction": says("s")}, tools()])
def test_what_stands_in_front_is_part_of_the_prefix(change: dict[str, Any]):
    desk = Desk()
    row(desk, ask(says(BIG)))
    assert row(desk, ask(says(BIG), **change)).read == 0


@pytest.mark.parametrize(("after_s", "read"), [(3599.0, 5000), (3600.0, 0)])
def test_a_prefix_is_kept_for_an_hour(after_s: float, read: int):
    desk = Desk()
    row(desk, ask(says(BIG)))
    desk.clock.advance(after_s)
    assert row(desk, ask(says(BIG))).read == read


def test_siblings_sent_at_once_all_miss():
    desk = Desk()
    reads = [row(desk, ask(says(BIG)), ready_s=1.0).read for _ in range(3)]
    desk.clock.advance(1.0)
    assert (reads, row(desk, ask(says(BIG))).read) == ([0, 0, 0], 5000)


def test_thoughts_that_come_back_are_not_read():
    desk = Desk()
    row(desk, ask(says(BIG), told("a"), says("b")))
    again = row(desk, ask(says(BIG), told({"text": "hm", "thought": True}, "a"), says("b")))
    assert again.read == again.input == 5002


@pytest.mark.parametrize(("rate", "hits"), [(0.0, 0), (1.0, 40)])
def test_a_hit_may_be_a_matter_of_luck(rate: float, hits: int):
    assert lucky(rate) == hits


def test_the_same_prompt_has_the_same_luck():
    assert lucky(0.5) == lucky(0.5)
    assert 0 < lucky(0.5) < 40


def lucky(rate: float) -> int:
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(gemini_hit_rate=rate)))
    row(desk, ask(says(BIG)))
    return sum(row(desk, ask(says(BIG), told("a"), says(str(number)))).read > 0 for number in range(40))


# --- contents that are put into a cache by name


class Caches:
    """Cached contents on a desk of their own."""

    def __init__(self, **more: Any) -> None:
        self.desk = Desk()
        self.made = self.create({"contents": [says(BIG)], **more})
        self.name = self.made.json.get("name")

    def create(self, body: dict[str, Any]) -> Got:
        return self.desk.send("/v1beta/cachedContents", {"model": f"models/{NEW}", **body}, GEMINI)

    def send(self, method: str, path: str = "", body: Any = None, key: str = "k") -> Got:
        return self.desk.send(f"/v1beta/{path or self.name}", body, {"x-goog-api-key": key}, method=method)

    def use(self, model: str = NEW, **more: Any) -> Got:
        body = ask(says("and now?"), cachedContent=self.name, **more)
        return self.desk.send(f"/v1beta/models/{model}:generateContent", body, GEMINI)


def test_what_is_cached_by_name_is_read_whole():
    caches = Caches(systemInstruction=says("be brief"), displayName="big", **tools())
    got = caches.use()
    counted = caches.made.json["usageMetadata"]["totalTokenCount"]
    assert got.json["usageMetadata"]["cachedContentTokenCount"] == counted > 5000
    assert got.json["usageMetadata"]["promptTokenCount"] == counted + 2
    assert got.exchange.ask is not None
    assert (got.exchange.ask.system, got.exchange.ask.tools[0].name) == ("be brief", "f")


def test_it_is_shown_listed_and_deleted():
    caches = Caches(displayName="big")
    shown = caches.send("GET").json
    assert (shown["displayName"], shown["model"], shown["expireTime"]) == (
        "big", f"models/{NEW}", "2026-11-30T01:00:00Z",
    )  # fmt: skip
    assert caches.send("GET", "cachedContents").json == {"cachedContents": [shown]}
    assert caches.send("DELETE").json == {}
    assert caches.send("GET", "cachedContents").json == {}
    assert (caches.send("GET").reply.status, caches.use().reply.status) == (403, 403)


@pytest.mark.parametrize("more", [{"ttl": "60s"}, {"expireTime": "2026-11-30T00:01:00Z"}])
def test_it_lives_as_long_as_asked(more: dict[str, Any]):
    caches = Caches(**more)
    caches.desk.clock.advance(59.5)
    assert caches.use().reply.status == 200
    caches.desk.clock.advance(0.5)
    assert caches.use().reply.status == 403


def test_its_life_may_be_changed():
    caches = Caches(ttl="60s")
    assert caches.send("PATCH", body={"ttl": "120s"}).json["expireTime"] == "2026-11-30T00:02:00Z"
    assert caches.send("PATCH", body={"ttl": "soon"}).reply.status == 400
    caches.desk.clock.advance(100.0)
    assert caches.use().reply.status == 200


def test_it_belongs_to_one_key():
    caches = Caches()
    assert caches.send("GET", key="other").reply.status == 403
    assert caches.send("GET", "cachedContents", key="other").json == {}


@pytest.mark.parametrize(
    ("more", "fragment"),
    [
        ({"ttl": "soon"}, "expiration"), ({"expireTime": "soon"}, "expiration"),
        ({"contents": [says(BIG), told("a")]}, "must not be of the model"),
        ({"contents": [says("small")]}, "total_token_count=2, min_total_token_count=4096"),
    ],
)  # fmt: skip
def test_not_everything_can_be_cached(more: dict[str, Any], fragment: str):
    got = Caches(**more).made
    assert (got.rules, got.reply.status) == (["cachedContent"], 400)
    assert fragment in got.json["error"]["message"]


@pytest.mark.parametrize(
    ("model", "more", "fragment"),
    [
        ("gemini-4-argon", {}, "has to be the same"), (NEW, tools(), "move those values to CachedContent"),
        (NEW, {"systemInstruction": says("s")}, "move those values to CachedContent"),
    ],
)  # fmt: skip
def test_a_request_does_not_contradict_what_it_names(model: str, more: dict[str, Any], fragment: str):
    got = Caches().use(model, **more)
    assert (got.rules, got.reply.status) == (["cachedContent"], 400)
    assert fragment in got.json["error"]["message"]


def test_a_body_that_is_no_cached_content_is_refused():
    assert Caches(foo=1).made.rules == ["unknown"]


def test_the_rules_look_through_to_what_is_cached():
    caches = Caches(contents=[says(BIG), says("x")])
    body = ask(told(calls()), cachedContent=caches.name)
    assert caches.desk.send(f"/v1beta/models/{NEW}:generateContent", body, GEMINI).rules == ["G2"]
