"""A schema registry for tests: answers by path, asked for over HTTP, every question counted."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

UNKNOWN = {"error_code": 40403, "message": "Schema not found"}


class FakeRegistry:
    """`answers` and `failures` may change while it serves."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.failures: list[tuple[int, bytes]] = []
        """Status and body of the next answers, whatever is asked."""
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        """The header Authorization of each question."""
        self.url = ""

    def answer(self, path: str, question: Any = None) -> tuple[int, bytes]:
        """Answers to questions stand under the path and the schema that is asked for."""
        self.asked.append(path)
        if self.failures:
            return self.failures.pop(0)
        found = self.answers.get(path if question is None else f"{path} {question['schema']}")
        return (404 if found is None else 200), json.dumps(UNKNOWN if found is None else found).encode()


@contextmanager
def serving(answers: dict[str, Any], port: int = 0) -> Iterator[FakeRegistry]:
    registry = FakeRegistry(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(*registry.answer(self.path))

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*registry.answer(self.path, question))

        def reply(self, status: int, body: bytes) -> None:
            registry.logins.append(self.headers.get("Authorization"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
