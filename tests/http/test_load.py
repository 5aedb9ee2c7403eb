"""Many streams at once, clients that vanish, the end of the process under load."""
import json
import os
import random
import selectors
import signal
import socket
import struct
import time

import httpx


def start_stream(server, max_tokens, body=None):
    body = json.dumps(body or {"prompt": "a b", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}).encode()
    connection = server.connect()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def read_all(connections, limit_s=120):
    """What each connection said until its stream's end, or the server's."""
    selector = selectors.DefaultSelector()
    received = {}
    for connection in connections:
        received[connection] = b""
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    deadline = time.time() + limit_s
    left = len(connections)
    while left and time.time() < deadline:
        for key, _ in selector.select(1):
            piece = key.fileobj.recv(1 << 16)
            received[key.fileobj] += piece
            if not piece or received[key.fileobj].endswith(b"0\r\n\r\n"):
                selector.unregister(key.fileobj)
                left -= 1
    return received


def open_descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def threads(process):
    return len(os.listdir(f"/proc/{process.pid}/task"))


def test_a_thousand_streams_a_third_cut(fresh_server):
    server = fresh_server("--max-num-queued-reqs", "2000")
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
    assert server.quiet()
    time.sleep(0.5)
    before = open_descriptors(server.process), threads(server.process)
    rng = random.Random(5)
    connections = [start_stream(server, 12) for _ in range(1000)]
    cut = set(rng.sample(range(1000), 333))
    for i in cut:
        (reset if rng.random() < 0.5 else socket.socket.close)(connections[i])
    received = read_all([c for i, c in enumerate(connections) if i not in cut])
    assert all(b"data: [DONE]" in text and b"HTTP/1.1 200" in text for text in received.values())
    for connection in received:
        connection.close()
    assert server.quiet(10)
    time.sleep(0.5)
    assert open_descriptors(server.process) <= before[0] + 1
    assert threads(server.process) == before[1]


def test_hang_ups_at_every_stage(fresh_server):
    server = fresh_server()
    canary = {"prompt": "one two", "max_tokens": 12, "temperature": 0}
    expected = server.post("/v1/completions", canary).json()["choices"][0]["text"]
    rng = random.Random(11)
    for _ in range(25):
        batch = []
        for _ in range(8):
            body = {"prompt": "a " * rng.randint(1, 60), "max_tokens": 100, "stream": rng.random() < 0.5,
                    "n": rng.choice([1, 1, 3]), "ignore_eos": True}
            batch.append(start_stream(server, 0, body))
        time.sleep(rng.random() * 0.03)
        for connection in batch:
            rng.choice([socket.socket.close, reset, lambda c: (c.shutdown(socket.SHUT_WR), c.close())])(connection)
    assert server.quiet()
    assert server.post("/v1/completions", canary).json()["choices"][0]["text"] == expected


def test_term_under_load(fresh_server):
    server = fresh_server("--shutdown-timeout", "2", "--max-num-seqs", "8")
    limit = server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]
    streams = [start_stream(server, limit) for _ in range(40)]
    idle = server.connect()
    half = server.connect()
    half.sendall(b"POST /v1/comp")
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    begin = time.time()
    received = read_all(streams, 20)
    assert server.process.wait(20) == 0
    assert time.time() - begin < 5
    for text in received.values():
        head = text.split(b"\r\n", 1)[0]
        # Waiting ones are told by their status, running ones by their last event.
        assert head.startswith(b"HTTP/1.1 503") or b"data: [DONE]" in text, text[-300:]
    assert idle.recv(1) == b""
    assert half.recv(1) == b""


def test_a_second_signal_ends_at_once(fresh_server):
    server = fresh_server("--shutdown-timeout", "60", "--max-num-seqs", "8")
    streams = [start_stream(server, 4000) for _ in range(200)]
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(3)
    assert streams


def test_term_while_idle(fresh_server):
    server = fresh_server()
    begin = time.time()
    assert server.stop() == 0
    assert time.time() - begin < 1.5


def test_health_beside_half_requests(server):
    held = []
    for _ in range(200):
        held.append(server.connect())
        held[-1].sendall(b"GET /hea")
    for _ in range(20):
        begin = time.time()
        assert httpx.get(server.url + "/health").status_code == 200
        assert httpx.get(server.url + "/metrics").status_code == 200
        assert time.time() - begin < 1
    for connection in held:
        connection.close()
