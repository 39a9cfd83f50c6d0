"""Each rule of Gemini is broken by itself and noticed by itself; what is legal breaks none."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from wirekit import GEMINI, Desk, Got, pdf, png

from shoal.testing import wire

NEW = "gemini-3.8-flash"
OLD = "gemini-2.5-flash"
PLACEHOLDER = "skip_thought_signature_validator"
SUBSET = {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}, "required": ["x"]}


def says(*parts: Any, role: str = "user") -> dict[str, Any]:
    """A content; strings are texts."""
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def told(*parts: Any) -> dict[str, Any]:
    return says(*parts, role="model")


def calls(name: str = "f", signature: str | None = None, **more: Any) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": {}, **more}, **signed}


def answers(name: str = "f", response: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "42"} if response is None else response, **more}}


def function(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", **more}


def tools(*functions: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(functions) or [function()]}]}


def calling(**config: Any) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": config}}


def ask(*contents: Any, **more: Any) -> dict[str, Any]:
    """A request; what is no field of its own goes into its generation config."""
    own = {"tools", "toolConfig", "systemInstruction", "cachedContent", "continuationToken", "foo", "contents"}
    generation = {key: value for key, value in more.items() if key not in own}
    config = {"generationConfig": generation} if generation else {}
    rest = {key: value for key, value in more.items() if key in own}
    return {"contents": list(contents) or [says("hi")], **config, **rest}


def send(body: Any, model: str = OLD, method: str = "generateContent", **settings: Any) -> Got:
    return Desk(settings=wire.Settings(**settings)).send(f"/v1beta/models/{model}:{method}", body, GEMINI)


def blob(mime: str, raw: bytes = b"x") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": base64.b64encode(raw).decode()}}


def document(pages: int, extra: bytes = b"") -> dict[str, Any]:
    return {"inlineData": {"mimeType": "application/pdf", "data": pdf(pages, extra)["source"]["data"]}}


def turn(*parts: Any) -> list[dict[str, Any]]:
    """A conversation in which the model called."""
    return [says("hi"), told(*parts)]


BAD: list[tuple[str, str, str, dict[str, Any]]] = [
    ("G1", "contents is not specified", OLD, {"contents": []}),
    ("G1", "contents is not specified", OLD, {}),
    ("G1", "valid role: user, model", OLD, ask(says("x", role="function"))),
    ("G1", "parts must not be empty", OLD, ask({"role": "user"})),
    ("G1", "must have a text parameter", OLD, ask(says("hi"), told(""), says("hi"))),
    ("G1", "must have one initialized field", OLD, ask(says({"thought": True}))),
    ("G1", "Cannot set 'inline_data'", OLD, ask(says({"text": "x", **blob("text/plain")}))),
    ("G1", "only supports text", OLD, ask(systemInstruction=says(blob("text/plain")))),
    ("G1", "must have one initialized field", OLD, ask(systemInstruction=says({}))),
    ("G2", "comes immediately after a user turn", OLD, ask(told(calls()), says(answers()))),
    ("G2", "comes immediately after a user turn", OLD, ask(*turn("x"), told(calls()), says(answers()))),
    ("G2", "comes immediately after a user turn", OLD, ask(says("hi"), says(calls()), says(answers()))),
    ("G2", "equal to the number of function call parts", OLD, ask(*turn(calls()))),
    ("G2", "equal to the number of function call parts", OLD, ask(*turn(calls()), says("hi"))),
    ("G2", "equal to the number of function call parts", OLD, ask(*turn(calls(), calls("g")), says(answers()))),
    ("G2", "equal to the number", OLD, ask(*turn(calls(), calls()), says(answers()), says(answers()))),
    ("G2", "immediately after a function call turn", OLD, ask(says("hi"), told("x"), says(answers()))),
    ("G2", "immediately after a function call turn", OLD, ask(says(answers()))),
    ("G2", "immediately after a function call turn", OLD, ask(*turn(calls()), told(answers()))),
    ("G3", "function_call.name: Name cannot be empty", OLD, ask(*turn(calls(name="")), says(answers(name="")))),
    ("G3", "answers function call 'f'", OLD, ask(*turn(calls()), says(answers("g")))),
    ("G3", "answers function call 'f'", OLD, ask(*turn(calls(), calls("g")), says(answers("g"), answers()))),
    ("G3", "no function response has the id 'a'", OLD, ask(*turn(calls(id="a")), says(answers()))),
    ("G3", "no function response has the id 'a'", OLD, ask(*turn(calls(id="a")), says(answers(id="b")))),
    ("G3", "response is required", OLD, ask(*turn(calls()), says({"functionResponse": {"name": "f"}}))),
    ("G3", "Invalid value at 'contents[2].parts[0].function_response.response'", OLD,
     ask(*turn(calls()), says(answers(response="42")))),
    ("G4", "missing a thought_signature", NEW, ask(*turn(calls()), says(answers()))),
    ("G4", "function call `g`, position 4", NEW,
     ask(*turn(calls(signature=PLACEHOLDER)), says(answers()), told(calls("g")), says(answers("g")))),
    ("G4", "signature is not valid", NEW, ask(*turn(calls(signature="AAAA")), says(answers()))),
    ("G5", "at the first function call only", NEW,
     ask(*turn(calls(signature=PLACEHOLDER), calls("g", signature=PLACEHOLDER)), says(answers(), answers("g")))),
    ("G5", "at the first function call only", NEW,
     ask(*turn({"text": "x", "thoughtSignature": PLACEHOLDER}), says("hi"))),
    ("G6", "Must start with a letter", OLD, ask(**tools(function("1f")))),
    ("G6", "Must start with a letter", OLD, ask(**tools(function("a b")))),
    ("G6", "Must start with a letter", OLD, ask(**tools({"description": "nameless"}))),
    ("G6", "maximum length of 64", OLD, ask(**tools(function("f" * 65)))),
    ("G6", "maximum length of 128", NEW, ask(**tools(function("f" * 129)))),
    ("G6", "Duplicate function declaration", OLD, ask(**tools(function(), function()))),
    ("G6", "function_call.name", OLD, ask(*turn(calls("a b")), says(answers("a b")))),
    ("G7", 'Unknown name "$ref"', OLD, ask(**tools(function(parameters={"$ref": "#"})))),
    ("G7", 'Unknown name "oneOf"', OLD, ask(**tools(function(parameters=SUBSET | {"oneOf": []})))),
    ("G7", 'Unknown name "additionalProperties"', OLD,
     ask(**tools(function(parameters=SUBSET | {"additionalProperties": False})))),
    ("G7", "(TYPE_ENUM)", OLD, ask(**tools(function(parameters={"type": "FROG"})))),
    ("G7", "should be non-empty for OBJECT", OLD, ask(**tools(function(parameters={"type": "OBJECT"})))),
    ("G7", "required[1]: property is not defined", OLD,
     ask(**tools(function(parameters=SUBSET | {"required": ["x", "y"]})))),
    ("G7", "properties[x].items: missing field", OLD,
     ask(**tools(function(parameters=SUBSET | {"properties": {"x": {"type": "ARRAY"}}})))),
    ("G7", "any_of[0].enum: only allowed for STRING", OLD,
     ask(**tools(function(parameters={"anyOf": [{"type": "INTEGER", "enum": ["1"]}]})))),
    ("G7", "items.items: missing field", OLD,
     ask(**tools(function(parameters={"type": "ARRAY", "items": {"type": "array"}})))),
    ("G7", "only one of parameters and parametersJsonSchema", OLD,
     ask(**tools(function(parameters=SUBSET, parametersJsonSchema={"type": "object"})))),
    ("G7", "must be a JSON Schema object", OLD, ask(**tools(function(parametersJsonSchema=True)))),
    ("G7", "response_schema.required[0]", OLD,
     ask(responseMimeType="application/json", responseSchema={"type": "OBJECT", "required": ["x"]})),
    ("G8", "only one of thinking budget and thinking level", NEW,
     ask(thinkingConfig={"thinkingBudget": 100, "thinkingLevel": "LOW"})),
    ("G8", "Thinking level is not supported", OLD, ask(thinkingConfig={"thinkingLevel": "LOW"})),
    ("G8", "without function_declarations", OLD, ask(**calling(mode="ANY"))),
    ("G8", "mode is ANY or VALIDATED", OLD, ask(**tools(), **calling(mode="AUTO", allowedFunctionNames=["f"]))),
    ("G8", "'g', which is not declared", OLD, ask(**tools(), **calling(mode="ANY", allowedFunctionNames=["g"]))),
    ("G8", "temperature value of 3", OLD, ask(temperature=3)),
    ("G8", "temperature value of -0.1", OLD, ask(temperature=-0.1)),
    ("G8", "topP value of -0.1", OLD, ask(topP=-0.1)),
    ("G8", "topP value of 1.1", OLD, ask(topP=1.1)),
    ("G8", "candidateCount value of 0", OLD, ask(candidateCount=0)),
    ("G8", "maxOutputTokens value of 65537", OLD, ask(maxOutputTokens=65_537)),
    ("G8", "maxOutputTokens value of 0", OLD, ask(maxOutputTokens=0)),
    ("G8", "at most 5", OLD, ask(stopSequences=list("abcdef"))),
    ("G9", "'application/json' is unsupported", OLD, ask(responseMimeType="application/json", **tools())),
    ("G9", "only supported with response_mime_type", NEW, ask(responseSchema=SUBSET)),
    ("G9", "only one of responseSchema and responseJsonSchema", NEW,
     ask(responseMimeType="application/json", responseSchema=SUBSET, responseJsonSchema={})),
    ("G9", "allowed mimetypes", NEW, ask(responseMimeType="text/html")),
    ("G10", "Request payload size exceeds", OLD, ask(says("x" * 20_971_520))),
    ("G10", "Unsupported MIME type: application/zip", OLD, ask(says(blob("application/zip")))),
    ("G10", "Base64 decoding failed", OLD, ask(says({"inlineData": {"mimeType": "image/png", "data": "?"}}))),
    ("G10", "Base64 decoding failed", OLD, ask(says({"inlineData": {"mimeType": "image/png"}}))),
    ("G10", "image is not valid", OLD, ask(says(blob("image/png")))),
    ("G10", "image is not valid", OLD, ask(says(blob("image/jpeg", png())))),
    ("G10", "document has no pages", OLD, ask(says(blob("application/pdf")))),
    ("G10", "document has no pages", OLD, ask(says(document(1, b"/Encrypt")))),
    ("G10", "contains 1001 pages", OLD, ask(says(document(1001)))),
    ("G10", "Unsupported MIME type", NEW, ask(*turn(calls(signature=PLACEHOLDER)),
                                             says(answers(parts=[blob("image/gif")])))),
    ("G10", "Multimodal function responses", OLD, ask(*turn(calls()), says(answers(parts=[blob("image/png", png())])))),
    ("continuation", "token is not valid", NEW, ask(continuationToken="AAAA")),
    ("cachedContent", "not found", NEW, ask(cachedContent="cachedContents/gone")),
    ("window", "(1050001) exceeds the maximum number of tokens allowed (1050000)", NEW, ask(says("x" * 4_200_001))),
    ("unknown", 'Unknown name "foo": Cannot find field.', OLD, ask(foo=1)),
    ("unknown", "Unknown name \"foo\" at 'contents[0].parts[0]'", OLD, ask(says({"text": "x", "foo": 1}))),
    ("schema", "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 1", OLD, ask(says({"text": 1}))),
    ("schema", "Invalid value at 'contents' (TYPE_MESSAGE)", OLD, {"contents": "hi"}),
    ("schema", 'mode\' (TYPE_ENUM), "SOME"', OLD, ask(**tools(), **calling(mode="SOME"))),
    *(("unsimulated", what, NEW, body) for what, body in (
        ("'googleSearch'", ask(tools=[{"googleSearch": {}}])), ("'responseLogprobs'", ask(responseLogprobs=True)),
        ("one candidate", ask(candidateCount=2)), ("in text", ask(responseModalities=["IMAGE"])),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fragment", "model", "body"), BAD, ids=[f"{rule} {what}" for rule, what, _, _ in BAD])
def test_a_bad_body_breaks_its_rule_and_no_other(rule: str, fragment: str, model: str, body: dict[str, Any]):
    got = send(body, model)
    assert got.rules == [rule]
    assert fragment in got.json["error"]["message"]
    assert got.reply.status == (501 if rule == "unsimulated" else 403 if fragment == "not found" else 400)


def test_every_rule_of_the_endpoint_is_broken_at_least_once():
    assert {rule for rule, _, _, _ in BAD} >= {f"G{number}" for number in range(1, 11)}


LEGAL: list[tuple[str, dict[str, Any]]] = [
    (OLD, ask()),
    (OLD, ask({"parts": [{"text": "of nobody"}]})),
    (OLD, ask(says("hi"), told("x", {"text": "hm", "thought": True}), says("hi"), systemInstruction=says("s"))),
    (OLD, ask(*turn(calls(), calls("g")), says(answers(), answers("g", {"error": "no"})))),
    (OLD, ask(*turn(calls(id="a"), calls(id="b")), says(answers(id="b"), answers(id="a")))),
    (OLD, ask(*turn("so", calls()), says(answers(), "and look:", blob("image/png", png())))),
    (OLD, ask(*turn(calls()), says(answers()), told(calls()), says(answers()), told("done"), says("ok"))),
    (OLD, ask(says(blob("image/png", png()), blob("text/markdown"), document(2), blob("audio/wav"),
                   {"fileData": {"mimeType": "video/mp4", "fileUri": "https://there/x"}}))),
    (OLD, ask(says("hi"), told({"executableCode": {"language": "PYTHON", "code": "1"}},
                               {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}), says("so"))),
    (OLD, ask(**tools(function(parameters=SUBSET), function("g")), **calling(mode="ANY", allowedFunctionNames=["g"]))),
    (OLD, ask(**tools(function("a.b:c-d_E", parametersJsonSchema={"$ref": "#/$defs/x", "$defs": {"x": {}}})))),
    (OLD, ask(**tools(function(parameters={"type": "object", "properties": {"x": {"type": "string"}}})))),
    (OLD, ask(**tools(function(response=SUBSET)), **calling(mode="NONE"))),
    (OLD, ask(**tools(function(parameters=SUBSET | {"properties": {"x": {"enum": ["a"]},
                                                                   "y": {"type": "string", "enum": ["b"]}}})))),
    (OLD, ask(says(document(1000)))),
    (OLD, ask(temperature=0, topP=1, candidateCount=1, maxOutputTokens=1)),
    (OLD, ask(temperature=2, topP=0, topK=3, maxOutputTokens=65_536, stopSequences=list("abcde"), seed=1)),
    (OLD, ask(responseMimeType="application/json", responseSchema=SUBSET)),
    (OLD, ask(thinkingConfig={"thinkingBudget": 0, "includeThoughts": True})),
    (NEW, ask(thinkingConfig={"thinkingLevel": "HIGH"})),
    (NEW, ask(responseMimeType="application/json", responseJsonSchema={"type": "object"}, **tools())),
    (NEW, ask(**tools(function("f" * 128, parameters={"type": "OBJECT"})))),
    (NEW, ask(*turn(calls(signature=PLACEHOLDER), calls("g")), says(answers(), answers("g")))),
    (NEW, ask(*turn(calls(signature="context_engineering_is_the_way_to_go")), says(answers()))),
    (NEW, ask(*turn(calls()), says(answers()), told("done"), says("an earlier turn is not checked"))),
    (NEW, ask(*turn(calls(signature=PLACEHOLDER)), says(answers(parts=[blob("image/png", png())])))),
    (NEW, ask(says("hi"), told({"text": "", "thoughtSignature": "x"}), says("hi"))),
    (OLD, ask(says("hi"), told({"text": "x", "thoughtSignature": PLACEHOLDER}), says("hi"))),
]  # fmt: skip


@pytest.mark.parametrize(("model", "body"), LEGAL, ids=[json.dumps(body)[:60] for _, body in LEGAL])
def test_a_legal_body_breaks_no_rule(model: str, body: dict[str, Any]):
    got = send(body, model)
    assert ([found for found in got.exchange.violations if found.enforced], got.reply.status) == ([], 200)


def test_fields_may_be_written_with_underscores():
    given = {"contents": [says("hi")], "system_instruction": says("be brief"),
             "tools": [{"function_declarations": [function("f_g", parameters=SUBSET | {"properties": {"x_y": {}},
                                                                                      "required": ["x_y"]})]}],
             "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f_g"]}},
             "generation_config": {"max_output_tokens": 5}}  # fmt: skip
    got = send(given)
    assert got.exchange.violations == ()
    assert got.exchange.ask is not None
    assert (got.exchange.ask.choice, got.exchange.ask.max_tokens, got.exchange.ask.body) == ("f_g", 5, given)
    assert list(got.exchange.ask.tools[0].schema["properties"]) == ["x_y"]


@pytest.mark.parametrize("text", ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"])
def test_a_placeholder_may_come_as_bytes(text: str):
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    assert send(ask(*turn(calls(signature=encoded)), says(answers())), NEW).exchange.violations == ()


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", ["=", ""])
def test_bytes_may_be_written_for_urls_and_without_padding(encode: Any, padding: str):
    talk = Talk()
    text, first, second = talk.parts
    raw = base64.b64decode(first["thoughtSignature"])
    first["thoughtSignature"] = encode(raw).decode().rstrip("=" if not padding else "")
    data = encode(png() + b"\xfb\xff").decode().rstrip("=" if not padding else "")
    shown = {"inlineData": {"mimeType": "image/png", "data": data}}
    assert talk.replay(text, first, second, then=[shown]).exchange.violations == ()


@pytest.mark.parametrize(("more", "rules"), [(0, ["window"]), (1, ["G10"])])
def test_a_request_may_have_20_megabytes(more: int, rules: list[str]):
    frame = len(json.dumps(ask(says(""))))
    assert send(ask(says("x" * (20 * 1024 * 1024 - frame + more)))).rules == rules


def test_what_is_no_base64_counts_all_the_same():
    broken = {"inlineData": {"mimeType": "image/png", "data": "?"}}
    got = send(ask(says(broken)), skip=frozenset({"G10"}))
    assert (got.warnings, got.json["usageMetadata"]["promptTokenCount"]) == (["G10"], 1000)


def test_an_error_has_the_vendors_shape():
    error = send(ask(foo=1)).json["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][0]["fieldViolations"] == [{"field": "foo", "description": error["message"]}]


def test_an_error_about_the_whole_request_names_no_field():
    assert "details" not in send(ask(says("x" * 20_971_520))).json["error"]


@pytest.mark.parametrize(
    ("headers", "status", "word"),
    [({}, 403, "PERMISSION_DENIED"), ({"x-goog-api-key": "wrong"}, 400, "INVALID_ARGUMENT")],
)
def test_a_key_must_come_and_be_known(headers: dict[str, str], status: int, word: str):
    desk = Desk(settings=wire.Settings(keys=frozenset({"right"})))
    got = desk.send(f"/v1/models/{OLD}:generateContent", ask(), headers)
    assert (got.reply.status, got.json["error"]["status"]) == (status, word)


def test_a_key_may_stand_in_the_query():
    got = Desk().send(f"/v1/models/{OLD}:generateContent", ask(), query={"key": "k"})
    assert got.reply.status == 200


def test_a_key_that_is_not_valid_says_so_in_its_details():
    desk = Desk(settings=wire.Settings(keys=frozenset({"right"})))
    error = desk.send(f"/v1/models/{OLD}:generateContent", ask(), GEMINI).json["error"]
    assert error["details"][0]["reason"] == "API_KEY_INVALID"


@pytest.mark.parametrize("model", ["gone", "gpt-5.4"])
def test_a_model_that_is_not_theirs_is_not_found(model: str):
    got = send(ask(), model)
    assert (got.reply.status, got.json["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [b"{", [], None])
def test_what_is_no_request_is_refused(body: Any):
    assert send(body).reply.status == 400


@pytest.mark.parametrize("skip", ["schema", "G3", "G7"])
def test_what_has_no_shape_is_refused_whatever_is_skipped(skip: str):
    bodies = {
        "schema": ask(says({"text": 1})),
        "G3": ask(*turn(calls()), says(answers(response="42"))),
        "G7": ask(**tools(function(parameters={"type": "FROG"}))),
    }
    assert send(bodies[skip], skip=frozenset({skip})).reply.status == 400


@pytest.mark.parametrize(
    ("rule", "model", "body"),
    [
        ("G1", OLD, {"contents": []}),
        ("G2", OLD, ask(*turn(calls(), calls()), says(answers()), says(answers()))),
        ("G3", OLD, ask(*turn(calls(name="")), says(answers(name="")))),
        ("G4", NEW, ask(*turn(calls()), says(answers()))),
        ("cachedContent", NEW, ask(cachedContent="cachedContents/gone")),
        ("unknown", OLD, ask(foo=1)),
    ],
)
def test_a_rule_may_be_let_pass(rule: str, model: str, body: dict[str, Any]):
    got = send(body, model, skip=frozenset({rule}))
    assert (got.warnings, got.reply.status) == ([rule], 200)


# --- signatures, by what the server itself said


class Talk:
    """A conversation whose newest reply called twice."""

    def __init__(self, *parts: Any, model: str = NEW) -> None:
        said = parts or (wire.think("hm"), "so", wire.call("f", x=1, y=[1.5, 2]), wire.call("g"))
        self.desk = Desk(wire.Script(wire.turn(*said), last="ok"))
        self.model = model
        content = self.send(ask()).json["candidates"][0]["content"]
        self.parts: list[dict[str, Any]] = content["parts"]

    def send(self, body: Any, model: str | None = None) -> Got:
        return self.desk.send(f"/v1beta/models/{model or self.model}:generateContent", body, GEMINI)

    def replay(self, *parts: Any, model: str | None = None, then: Any = ()) -> Got:
        made = [part["functionCall"] for part in parts if "functionCall" in part]
        back = [answers(call["name"], **({"id": call["id"]} if "id" in call else {})) for call in made]
        return self.send(ask(says("hi"), told(*parts), says(*back, *then)), model)


def bare(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "thoughtSignature"}


def test_the_first_of_parallel_calls_is_signed():
    parts = Talk().parts
    assert ["thoughtSignature" in part for part in parts] == [False, True, False]


def test_a_reply_without_calls_is_signed_at_its_end():
    parts = Talk("one", wire.think("hm"), "two").parts
    assert ["thoughtSignature" in part for part in parts] == [False, True]


def test_older_models_sign_nothing():
    assert not any("thoughtSignature" in part for part in Talk(model=OLD).parts)


def test_what_was_said_may_come_back_as_it_was():
    talk = Talk()
    assert talk.replay(*talk.parts).exchange.violations == ()


def test_arguments_may_be_written_in_another_way():
    talk = Talk()
    text, first, second = talk.parts
    first["functionCall"]["args"] = {"y": [1.5, 2.0], "x": 1.0}
    del first["functionCall"]["id"], second["functionCall"]["id"]
    assert talk.replay(text, first, second).exchange.violations == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text, first, second: (text, bare(first), second), "missing a thought_signature"),
        (lambda text, first, second: (text, second, first), "missing a thought_signature"),
        (lambda text, first, second: (text, {**first, **bare(second)}, bare(first)), "Corrupted"),
        (lambda text, first, second: (text, first, {**second, "thoughtSignature": first["thoughtSignature"]}),
         "Corrupted"),
        (lambda text, first, second: (text, {**first, "functionCall": {**first["functionCall"], "args": {}}}, second),
         "Corrupted"),
        (lambda text, first, second: (text, {**first, "functionCall": {**first["functionCall"],
                                                                       "args": {"x": 1, "y": [1.25, 2]}}}, second),
         "Corrupted"),
    ],
)  # fmt: skip
def test_a_signature_stays_at_its_part(change: Any, message: str):
    talk = Talk()
    got = talk.replay(*change(*talk.parts))
    assert got.rules == ["G4"]
    assert message in got.json["error"]["message"]


def test_a_call_without_arguments_may_leave_them_out():
    talk = Talk(wire.call("f"))
    del talk.parts[0]["functionCall"]["args"]
    assert talk.replay(*talk.parts).exchange.violations == ()


def test_a_wrong_signature_of_a_text_is_a_mistake_that_passes():
    talk = Talk()
    text, *both = talk.parts
    got = talk.replay(text | {"thoughtSignature": "AAAA"}, *both)
    assert (got.rules, got.warnings) == ([], ["G4"])


def test_a_signature_of_another_model_is_not_valid():
    talk = Talk()
    got = talk.replay(*talk.parts, model="gemini-4-argon")
    assert got.rules == ["G4"]
    assert NEW in got.json["error"]["message"]


def test_an_older_model_does_not_look_at_signatures():
    talk = Talk()
    assert talk.replay(*talk.parts, model=OLD).exchange.violations == ()


def test_what_is_wrong_in_an_earlier_turn_is_a_mistake_that_passes():
    talk = Talk()
    text, first, second = talk.parts
    got = talk.replay(text, first | {"thoughtSignature": "AAAA"}, second, then=["more"])
    assert (got.rules, got.warnings) == ([], ["G4"])


def test_a_text_merged_with_another_is_a_mistake_that_passes():
    talk = Talk("one", "two")
    merged = {"text": "onetwo", "thoughtSignature": talk.parts[1]["thoughtSignature"]}
    got = talk.send(ask(says("hi"), told(merged), says("more")))
    assert (got.rules, got.warnings) == ([], ["G4"])


def test_a_reply_is_continued_by_its_token():
    desk = Desk(wire.Script(wire.turn("half", stop="pause"), last="ok"))
    path = f"/v1beta/models/{NEW}:generateContent"
    first = desk.send(path, ask(), GEMINI).json["candidates"][0]
    assert first["finishReason"] == "CONTINUATION"
    token = ask(continuationToken=first["continuationToken"])
    assert desk.send(path, token, GEMINI).exchange.violations == ()
    assert desk.send("/v1beta/models/gemini-4-argon:generateContent", token, GEMINI).rules == ["continuation"]
