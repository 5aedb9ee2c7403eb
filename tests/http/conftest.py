"""Black-box tests of a running server: a real binary, a real model, real sockets.

TIDEMILL_BINARY names the binary (default build/release/tidemill), TIDEMILL_TEST_MODEL the model (default: the committed
tiny model). Each module gets a server of its own on a free port.
"""
import os
import pathlib
import signal
import socket
import subprocess
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary():
    return pathlib.Path(os.environ.get("TIDEMILL_BINARY", ROOT / "build/release/tidemill"))


def model():
    if "TIDEMILL_TEST_MODEL" in os.environ:
        return pathlib.Path(os.environ["TIDEMILL_TEST_MODEL"])
    return ROOT / "tests/golden/tiny-models/llama"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, *flags, scheme="http", uds=None):
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        transport = httpx.HTTPTransport(uds=str(uds), verify=False) if uds else httpx.HTTPTransport(verify=False)
        probe = httpx.Client(transport=transport, base_url=self.url)
        command = [binary(), "serve", model(), "--port", str(self.port), "--served-model-name", "tiny", *flags]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.time() + 60
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stdout.read().decode())
            try:
                if probe.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise RuntimeError("the server did not get ready within 60 s")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def post(self, path, body, **more):
        return httpx.post(self.url + path, json=body, timeout=60, **more)

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def metrics(self):
        from prometheus_client.parser import text_string_to_metric_families

        text = httpx.get(self.url + "/metrics").text
        totals = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
        return totals

    def quiet(self, limit_s=3):
        """No request runs or waits, and none holds KV."""
        deadline = time.time() + limit_s
        while time.time() < deadline:
            now = self.metrics()
            if not any(now["tidemill:" + name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")):
                return True
            time.sleep(0.05)
        return False

    def stop(self, signal_number=signal.SIGTERM, limit_s=20):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(limit_s)


def check_present():
    """Without them nothing is tested, which must not look like success."""
    assert binary().exists(), f"{binary()} is not built (TIDEMILL_BINARY names another)"
    assert model().exists(), f"{model()} is absent (TIDEMILL_TEST_MODEL names another)"


@pytest.fixture(scope="module")
def server():
    check_present()
    running = Server()
    yield running
    assert running.stop() == 0


@pytest.fixture
def fresh_server():
    """Makes servers with flags of their own; ends them."""
    made = []

    def make(*flags, **more):
        check_present()
        made.append(Server(*flags, **more))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.wait()
