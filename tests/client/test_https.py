"""Calls over HTTPS: the upgrade, who is believed, and what is said when it fails. The C client hands over to Python."""
from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parent.parent / "data" / "https"
AWAY = b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: slurmbridge\r\nConnection: Upgrade\r\n\r\n"


class HttpsServer:
    """Answers one connection: ``answer`` to the request, then frames."""

    def __init__(self, answer: bytes, together: bool = False) -> None:
        self.answer, self.together = answer, together
        self.head = b""
        self.request: dict = {}
        self._listener = socket.create_server(("", 0))
        self._listener.settimeout(10)
        self.address = f"https://localhost:{self._listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(DATA / "cert.pem", DATA / "key.pem")
        try:
            plain, _ = self._listener.accept()
            plain.settimeout(10)
            with context.wrap_socket(plain, server_side=True) as secure:
                while b"\r\n\r\n" not in self.head:
                    self.head += secure.recv(4096)
                if b" 101 " not in self.answer:
                    secure.sendall(self.answer)
                    return
                first = b"O\0\0\0\6first\n"
                secure.sendall(self.answer + (first if self.together else b""))
                data = b""
                while len(data) < 5 or len(data) < 5 + int.from_bytes(data[1:5], "big"):
                    data += secure.recv(1 << 16)
                self.request = json.loads(data[5:])
                body = b"x" * 300_000
                secure.sendall(b"" if self.together else first)
                secure.sendall(b"O" + len(body).to_bytes(4, "big") + body + b"X\0\0\0\4\0\0\0\7")
        except OSError:
            pass                        # a client that found the certificate wrong, or never came
        finally:
            self._listener.close()


@pytest.fixture
def https() -> Callable[..., HttpsServer]:
    return HttpsServer


@pytest.mark.parametrize("together", [False, True], ids=["frames after", "frames with the greeting"])
def test_call(client, https, together, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    server = https(UPGRADED, together)
    env = {"SLURMBRIDGE_CA": str(DATA / "cert.pem"), "SLURMBRIDGE_TOKEN": str(token)}
    out, err, code = client.run(server.address, "squeue", "-j", "5", env=env)
    assert (out, err, code) == (b"first\n" + b"x" * 300_000, b"", 7)
    assert server.head.startswith(b"GET /command HTTP/1.1\r\nHost: localhost:")
    assert b"\r\nUpgrade: slurmbridge\r\n" in server.head and b"\r\nAuthorization: Bearer s3cret\r\n" in server.head
    assert (server.request["command"], server.request["argv"]) == ("squeue", ["-j", "5"])


def test_address_with_a_path_and_token_by_value(client, https):
    server = https(UPGRADED)
    env = {"SLURMBRIDGE_CA": str(DATA / "cert.pem"), "SLURMBRIDGE_TOKEN": "abc.def"}
    assert client.run(server.address + "/site/a", "squeue", env=env)[2] == 7
    assert server.head.startswith(b"GET /site/a HTTP/1.1\r\n") and b"Bearer abc.def\r\n" in server.head


FAILURES = [
    (b"HTTP/1.1 401 Unauthorized\r\n\r\n", {}, b"slurm_load_jobs error: Protocol authentication error\n"),
    (b"HTTP/1.1 403 Forbidden\r\n\r\n", {}, b"slurm_load_jobs error: Protocol authentication error\n"),
    (b"HTTP/1.1 404 Not Found\r\n\r\n", {}, AWAY + b": localhost:PORT answered 404 Not Found\n"),
    (b"", {}, AWAY + b"\n"),
    (UPGRADED, {"SLURMBRIDGE_CA": ""}, AWAY + b": self-signed certificate\n"),
    (UPGRADED, {"SLURMBRIDGE_CA": "/no/such/file"},
     b"slurm_load_jobs error: SLURMBRIDGE_CA: [Errno 2] No such file or directory\n"),
    (UPGRADED, {"SLURMBRIDGE_TOKEN": "/no/token"},
     b"slurm_load_jobs error: SLURMBRIDGE_TOKEN: [Errno 2] No such file or directory: '/no/token'\n"),
    (UPGRADED, {"SLURMBRIDGE_TOKEN": "a\r\nX: y"}, b"slurm_load_jobs error: Protocol authentication error\n")]


@pytest.mark.parametrize("answer, env, said", FAILURES, ids=[str(i) for i in range(len(FAILURES))])
def test_failures(client, https, answer, env, said):
    server = https(answer)
    env = {"SLURMBRIDGE_CA": str(DATA / "cert.pem"), **env}
    out, err, code = client.run(server.address, "squeue", env=env)
    assert (out, err, code) == (b"", said.replace(b"PORT", server.address.rpartition(":")[2].encode()), 1)


def test_name_that_the_certificate_does_not_have(client, https):
    server = https(UPGRADED)
    address = server.address.replace("localhost", "127.0.0.2")
    _, err, code = client.run(address, "squeue", env={"SLURMBRIDGE_CA": str(DATA / "cert.pem")})
    assert code == 1 and err.startswith(AWAY + b": IP address mismatch")
