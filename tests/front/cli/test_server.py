"""`shoal run` on a real server: found by the environment, asked over HTTP, and stopped when the key is wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from front_shell import Shell, newest

pytestmark = pytest.mark.sockets

PLAIN = '[agent]\nname = "plain"\n[stages.answer]\nsystem_prompt = "Answer."\n'
KEY = "sk-of-the-loopback"


class Server(ThreadingHTTPServer):
    """Speaks just enough of Chat Completions."""

    asked: list[dict[str, Any]]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that has its answer may leave at any moment, and so does one that is cancelled."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._send(401, "application/json", b'{"error": {"message": "no such key", "code": "invalid_api_key"}}')
            return
        self.server.asked.append(body)
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        chunk = {"choices": [{"index": 0, "delta": {"content": "It is 42."}, "finish_reason": "stop"}], "usage": usage}
        self._send(200, "text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answers) as made:
        made.asked = []
        monkeypatch.setenv("SHOAL_PROVIDER", "compatible")
        monkeypatch.setenv("SHOAL_BASE_URL", made.url)
        monkeypatch.setenv("SHOAL_MODEL", "m")
        monkeypatch.setenv("SHOAL_API_KEY", KEY)
        Path("plain.toml").write_text(PLAIN)
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_server_answers_and_nobody_claims_that_no_model_did(shell: Shell, server: Server):
    said = shell("run", "./plain.toml", "--task", "What is it?")
    assert (said.status, said.err) == (0, "")
    assert "plain enters stage answer on compatible:m" in said.out
    assert "It is 42." in said.out
    assert "No language model was used" not in said.out
    assert {body["model"] for body in server.asked} == {"m"}


def test_another_model_is_asked_where_the_command_line_says_so(shell: Shell, server: Server):
    assert shell("run", "./plain.toml", "--task", "x", "--model", "compatible:other").status == 0
    assert "other" in {body["model"] for body in server.asked}


def test_a_wrong_key_pauses_the_run_until_there_is_a_right_one(
    shell: Shell, server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOAL_API_KEY", "sk-wrong-and-secret")
    said = shell("run", "./plain.toml", "--task", "x", "--json")
    assert (said.status, said.json["status"]) == (3, "paused")
    assert "sk-wrong-and-secret" not in said.out + said.err
    monkeypatch.setenv("SHOAL_API_KEY", KEY)
    again = shell("resume", newest(shell)["run_id"], "--json")
    assert (again.status, again.json["output"]) == (0, "It is 42.")


def test_a_model_that_is_not_named_is_asked_for(shell: Shell, server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SHOAL_MODEL")
    said = shell("run", "./plain.toml", "--task", "x")
    assert (said.status, said.out) == (2, "")
    assert "has no default model; name one" in said.err
