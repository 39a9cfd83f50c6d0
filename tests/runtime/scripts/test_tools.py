"""Tools that a blueprint ships as scripts: found, described, behind the gates, run in the sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runkit import blueprint, bodies, events_of, messages, payloads, run_once, stage, swarm_of, system_text, write_files

from shoal.blueprints import Blueprint, Nudge, Region, ToolSeedCall, ToolsSeed
from shoal.errors import SpawnRefused, ToolInvalid
from shoal.runtime import Limits, Permissions, SqliteJournal, tool
from shoal.runtime._script_tools import ToolFile, script_tool, signature, tool_files
from shoal.runtime.scripts import ScriptLimits
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

AMPLE = Limits(scripts=ScriptLimits(seconds=10))
COUNT = """# Counts words.
# @tool count_words
# @description Count the words
# @description of a text.
# @param text string required "The text."
# @param least integer optional "Shorter words do not count."

def run(args):
    return len([word for word in args["text"].split() if len(word) >= args.get("least", 0)])
"""


def shipping(folder: Path, files: dict[str, str], *tools: str, **more: Any) -> Blueprint:
    write_files(folder, {f"tools/{name}": text for name, text in files.items()})
    made = stage(available_tools=tools or ("count_words",), nudge=Nudge(enabled=False))
    return blueprint(made, folder=folder, **more)


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


ALLOWED = Permissions(launch={"count_words": "allow"})


async def once(made: Blueprint, provider: ScriptedProvider, **more: Any) -> Any:
    return await run_once(made, provider, limits=AMPLE, permissions=more.pop("permissions", ALLOWED), **more)


async def answer(folder: Path, body: str, **args: Any) -> str:
    """Return what the model reads of a call of a tool of that body."""
    source = f"# @param x string optional\ndef run(args):\n    {body}\n"
    provider = says(call("count_words", **args), "done")
    await once(shipping(folder, {"count_words.py": source}), provider)
    return messages(bodies(provider)[1])[-1][1]


# --- running


async def test_a_tool_is_offered_with_its_schema_and_answers(tmp_path: Path):
    provider = says(call("count_words", text="a few short words", least=4), "done")
    await once(shipping(tmp_path, {"count.py": COUNT}), provider)
    [offered] = bodies(provider)[0]["tools"]
    assert offered["function"] == {
        "name": "count_words",
        "description": "Count the words of a text.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The text."},
                "least": {"type": "integer", "description": "Shorter words do not count."},
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    }
    assert messages(bodies(provider)[1])[-1] == ("tool", "2")


@pytest.mark.parametrize(
    ("body", "said"),
    [("return 'as it is'", "as it is"), ("return None", ""), ("pass", ""), ("return {'a': [1]}", '{"a":[1]}')],
)
async def test_a_result_is_read_as_text_nothing_or_json(tmp_path: Path, body: str, said: str):
    assert await answer(tmp_path, body) == said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no luck')", "ValueError: no luck"),
        ("return run(args)", "RecursionError"),
        ("return {1}", "gives 'set', which is no plain value"),
        ("return open('/etc/passwd').read()", "PermissionError"),
    ],
)
async def test_a_tool_that_fails_is_an_error_that_the_model_reads(tmp_path: Path, body: str, said: str):
    read = await answer(tmp_path, body)
    assert read.startswith("[error] ")
    assert said in read


async def test_a_tool_that_loops_costs_its_limit_and_no_more(tmp_path: Path):
    made = shipping(tmp_path, {"count_words.py": "def run(args):\n    while True:\n        pass\n"})
    provider = says(call("count_words"), "done")
    limits = Limits(scripts=ScriptLimits(seconds=0.5))
    outcome, _ = await run_once(made, provider, limits=limits, permissions=ALLOWED)
    assert (outcome.status, "TimeoutError" in messages(bodies(provider)[1])[-1][1]) == ("complete", True)


async def test_no_call_leaves_anything_to_the_next(tmp_path: Path):
    source = "seen = []\ndef run(args):\n    seen.append(1)\n    return len(seen)\n"
    provider = says(call("count_words"), call("count_words"), "done")
    await once(shipping(tmp_path, {"count_words.py": source}), provider)
    assert [text for role, text in messages(bodies(provider)[2]) if role == "tool"] == ["1", "1"]


# --- gates


async def test_a_tool_asks_unless_somebody_allows_it(tmp_path: Path):
    provider = says(call("count_words", text="a"), "done")
    await once(shipping(tmp_path, {"count.py": COUNT}), provider, permissions=Permissions())
    assert messages(bodies(provider)[1])[-1][1] == (
        "[denied] `count_words` needs somebody's approval and nobody is there; allow it with `--allow count_words`"
    )


async def test_arguments_that_break_its_schema_never_reach_a_tool(tmp_path: Path):
    provider = says(call("count_words", text=7, more=1), "done")
    _, events = await once(shipping(tmp_path, {"count.py": COUNT}), provider)
    said = messages(bodies(provider)[1])[-1][1]
    assert said.startswith("[error] the arguments of `count_words` break its schema:")
    assert payloads(events, "ToolCallStarted") == []


async def test_a_stage_that_does_not_list_a_tool_does_not_have_it(tmp_path: Path):
    provider = says(call("count_words", text="a"), "done")
    await once(shipping(tmp_path, {"count.py": COUNT}, "context_append"), provider)
    assert messages(bodies(provider)[1])[-1][1].startswith("[unavailable] this stage has no tool 'count_words'")


async def test_a_seed_may_call_a_tool(tmp_path: Path):
    seed = ToolsSeed((ToolSeedCall("count_words", {"text": "one two"}),))
    made = shipping(tmp_path, {"count.py": COUNT}, regions=(Region("counts", kind="pinned", seed=seed),))
    provider = says("done")
    await once(made, provider, task=None)
    assert "--- count_words ---\n2" in system_text(bodies(provider)[0])


async def test_a_function_given_in_code_takes_the_place_of_a_script(tmp_path: Path):
    @tool
    async def count_words(text: str) -> int:
        """Count characters."""
        return len(text)

    provider = says(call("count_words", text="one two"), "done")
    await once(shipping(tmp_path, {"count.py": COUNT}), provider, tools=(count_words,))
    assert messages(bodies(provider)[1])[-1] == ("tool", "7")


async def test_a_tool_of_a_resumed_run_is_what_it_was_at_the_spawn(tmp_path: Path):
    made = shipping(tmp_path / "made", {"count.py": COUNT})
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path, host="first")
    async with swarm_of(says(Say("never", delay_s=3600)), journal=journal, limits=AMPLE) as swarm:
        run = await swarm.spawn(made, task="t")
    journal.close()
    write_files(tmp_path / "made", {"tools/count.py": COUNT.replace("len([", "-len([")})
    journal = SqliteJournal(path, host="second")
    provider = says(call("count_words", text="one two"), "done")
    async with swarm_of(provider, journal=journal, limits=AMPLE, permissions=ALLOWED) as swarm:
        await (await swarm.resume_tree(run.run_id)).result()
        results = payloads(events_of(swarm, run), "ToolCallCompleted")
    journal.close()
    assert [str(p.text) for p in results] == ["2"]


async def test_an_edit_counts_from_the_next_run_on(tmp_path: Path):
    made = shipping(tmp_path, {"count.py": COUNT})
    provider = says(call("count_words", text="one two"), "done", call("count_words", text="one two"), "done")
    async with swarm_of(provider, limits=AMPLE, permissions=ALLOWED) as swarm:
        await (await swarm.spawn(made, task="t")).result()
        write_files(tmp_path, {"tools/count.py": COUNT.replace("return len([", "return 100 + len([")})
        await (await swarm.spawn(made, task="t")).result()
    assert [messages(bodies(provider)[at])[-1][1] for at in (1, 3)] == ["2", "102"]


# --- what a file says of itself


def declared(source: str, beside: str | None = None) -> dict[str, Any]:
    made = script_tool(ToolFile("tools/my_tool.py", source, beside))
    return {"name": made.name, "description": made.description, "schema": json.loads(made.spec.schema)}


def test_a_tool_without_a_header_has_the_name_of_its_file_and_takes_nothing():
    assert declared("def run(args): pass") == {
        "name": "my_tool",
        "description": "",
        "schema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def test_directives_end_where_the_code_begins():
    assert declared("import re\n# @tool other\n")["name"] == "my_tool"


def test_a_file_beside_it_says_what_a_header_cannot():
    beside = 'name = "other"\ndescription = "Better."\n[parameters.properties.n]\nenum = [1, 2]\n'
    assert declared("# @tool x\n# @description Said.\n", beside) == {
        "name": "other",
        "description": "Better.",
        "schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}},
    }


def test_a_file_beside_it_may_say_only_a_part():
    assert declared("# @tool x\n# @param a string optional\n", 'description = "Better."')["schema"]["properties"] == {
        "a": {"type": "string"}
    }


@pytest.mark.parametrize(
    ("source", "beside", "why"),
    [
        ("# @other x", None, "tools/my_tool.py:1: `@other` is no directive"),
        ("#\n# @requires network", None, "tools/my_tool.py:2: a script has no network"),
        ("# @requires", None, "a script has no such thing"),
        ("# @param x", None, "'x' is no parameter; write `@param NAME TYPE required"),
        ("# @param x text required", None, "with one of `string`, `integer`"),
        ("# @param x string maybe", None, "is no parameter"),
        ("# @tool two words", None, "'two words' is no name for a tool"),
        ("", "name = ", "'tools/my_tool.toml' is no TOML"),
        ("", "other = 1", "'tools/my_tool.toml' has the unknown key 'other'"),
        ("", "name = 1", "`name` and `description` are texts"),
        ("", "parameters = 1", "`parameters` is a table"),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(source: str, beside: str | None, why: str):
    with pytest.raises(ToolInvalid) as invalid:
        declared(source, beside)
    assert why in str(invalid.value)


# --- files


def test_the_files_of_the_folder_are_read_in_order_and_nothing_else(tmp_path: Path):
    write_files(tmp_path, {"tools/b.py": "2", "tools/a.py": "1", "tools/a.toml": "x", "tools/c.txt": "", "d.py": ""})
    assert [(file.path, file.source, file.beside) for file in tool_files(tmp_path)] == [
        ("tools/a.py", "1", "x"),
        ("tools/b.py", "2", None),
    ]


def test_no_folder_has_no_tools(tmp_path: Path):
    assert (tool_files(None), tool_files(tmp_path), signature(None), signature(tmp_path)) == ((), (), (), ())


@pytest.mark.parametrize(
    ("data", "why"), [(b"\xff", "is not UTF-8 text"), (b"#" * 1_048_577, "larger than 1,048,576 bytes")]
)
def test_a_file_that_cannot_be_read_is_no_tool(tmp_path: Path, data: bytes, why: str):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.py").write_bytes(data)
    with pytest.raises(ToolInvalid, match=why):
        script_tool(tool_files(tmp_path)[0])


def test_a_link_out_of_the_folder_is_no_tool(tmp_path: Path):
    write_files(tmp_path, {"secret.py": "x", "made/tools/b.py": ""})
    (tmp_path / "made/tools/a.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(ToolInvalid, match="leads outside the folder 'made'"):
        script_tool(tool_files(tmp_path / "made")[0])


# --- refused at the spawn


async def refusal(made: Blueprint) -> str:
    async with swarm_of(says("done"), limits=AMPLE) as swarm:
        with pytest.raises(SpawnRefused) as refused:
            await swarm.spawn(made, task="t")
        return str(refused.value)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"count_words.py": "# @requires network"}, "whose script cannot be used: tools/count_words.py:1"),
        ({"count_words.py": "# @tool shell"}, "calls its tool `shell`, as a built-in one is called; rename it"),
        ({"a.py": "# @tool x", "count_words.py": "# @tool x"}, "calls its tool `x`, as 'tools/a.py' is called"),
        ({"count_words.py": "x = 1"}, "defines no function `run`; write `def run(args):`"),
        ({"count_words.py": "def run(:"}, "cannot be used: `tools/count_words.py`, line 1 cannot be read"),
        ({"other.py": "def run(args): pass"}, "lists `count_words`, which nobody has"),
    ],
)
async def test_a_tool_that_cannot_be_used_refuses_the_spawn(tmp_path: Path, files: dict[str, str], why: str):
    assert why in await refusal(shipping(tmp_path, files))


async def test_a_broken_tool_that_no_stage_lists_hurts_nobody(tmp_path: Path):
    made = shipping(tmp_path, {"count.py": COUNT, "broken.py": "def run(:", "worse.py": "# @requires network"})
    outcome, _ = await once(made, says("done"))
    assert outcome.status == "complete"
