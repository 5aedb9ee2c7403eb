"""The KV cache from outside: what a later request finds, in memory and, after a restart, on disk."""
import json
import os
import random
import shutil
import stat
import struct

import httpx
import pytest
from conftest import model

BLOCK = 32
PROMPT = "The tide turns the wheel. " * 12
HEADER_BYTES = 4096


def ask(server, **more):
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True,
                                            "return_timings": True, **more})
    assert reply.status_code == 200, reply.text
    reply = reply.json()
    return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"], reply


def full_blocks(reply):
    """The block with the last prompt token is always computed again."""
    return (reply["usage"]["prompt_tokens"] - 1) // BLOCK * BLOCK


@pytest.fixture
def disk(fresh_server, tmp_path):
    """Starts a server on one and the same file, after ending the one before."""
    running = []

    def start(*flags):
        for one in running:
            assert one.stop() == 0
        running[:] = [fresh_server("--kv-disk-path", str(tmp_path / "kv"), "--kv-disk-bytes", "64MiB", *flags)]
        return running[0]

    start.path = tmp_path / "kv"
    start.stop = lambda: running.pop().stop()
    return start


def test_a_restart_finds_the_prompt_on_disk(disk):
    server = disk()
    text, cached, reply = ask(server)
    assert cached == 0
    assert stat.S_IMODE(os.stat(disk.path).st_mode) == 0o600
    for _ in range(2):
        server = disk()
        again, cached, reply = ask(server)
        assert (again, cached) == (text, full_blocks(reply))
        assert reply["timings"]["loaded_blocks"] == cached // BLOCK > 0
        assert 0 < reply["timings"]["disk_wait_ms"] <= reply["timings"]["queue_ms"]
    assert server.metrics()["tidemill:kv_disk_failures_total"] == 0
    assert server.metrics()["tidemill:kv_disk_wait_seconds_count"] == 1


def test_a_restart_still_tells_the_tenants_apart(disk, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tenant=red\ntwo tenant=blue\n")
    keys.chmod(0o600)
    flags = ("--api-key-file", str(keys), "--admin-api-key", "root")
    server = disk(*flags)
    for key in ("one", "two"):
        reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1}, headers={"x-api-key": key})
        assert reply.status_code == 200
    server = disk(*flags)
    cache = httpx.get(server.url + "/v1/cache", headers={"x-api-key": "root"}).json()
    rows = [dict(zip(cache["columns"], row)) for row in cache["blocks"]]
    tenants = {row["tenant"] for row in rows if row["tier"] == "disk" and row["state"] == "cached"}
    assert len(tenants) == 2 and None not in tenants


@pytest.mark.parametrize("harmed", [[0, 1, 2, 3, 4, 5], [2]])
def test_a_flipped_byte_costs_a_recompute_only(disk, harmed):
    text, _, reply = ask(disk())
    assert disk.stop() == 0
    num_records = full_blocks(reply) // BLOCK + 1  # the answer filled one block more
    with open(disk.path, "r+b") as file:
        record = (file.seek(0, os.SEEK_END) - HEADER_BYTES) // num_records
        for block in harmed:
            at = HEADER_BYTES + block * record + record // 2
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
    server = disk()
    again, cached, _ = ask(server)
    assert (again, cached) == (text, harmed[0] * BLOCK)
    assert server.metrics()["tidemill:kv_disk_failures_total"] > 0
    # What was computed anew is stored anew.
    server = disk()
    again, cached, reply = ask(server)
    assert (again, cached) == (text, full_blocks(reply))


@pytest.mark.parametrize("flags", [("--kv-cache-dtype", "int8"), ("--block-size", "16"), ("--max-model-len", "256")])
def test_another_format_finds_nothing(disk, flags):
    text, _, reply = ask(disk())
    server = disk(*flags)
    assert server.metrics()["tidemill:kv_disk_restored_blocks_total"] == 0
    other, cached, _ = ask(server)
    assert cached == 0
    # The file is that server's now.
    server = disk()
    again, cached, _ = ask(server)
    assert (again, cached) == (text, 0)


def test_another_model_finds_nothing(disk, tmp_path, monkeypatch):
    """The same configuration and tokenizer, other weights."""
    ask(disk())
    assert disk.stop() == 0
    other = tmp_path / "other"
    shutil.copytree(model(), other)
    content = bytearray((other / "model.safetensors").read_bytes())
    content[-2] ^= 0x10
    (other / "model.safetensors").write_bytes(content)
    monkeypatch.setenv("TIDEMILL_TEST_MODEL", str(other))
    server = disk()
    assert server.metrics()["tidemill:kv_disk_restored_blocks_total"] == 0
    assert ask(server)[1] == 0


def test_a_file_that_is_not_ours_is_left_alone(disk):
    letters = b"somebody's letters, which must not be lost\n" * 200
    disk.path.write_bytes(letters)
    server = disk()
    text, cached, _ = ask(server)
    assert cached == 0
    assert ask(server)[:2] == (text, full_blocks(ask(server)[2]))
    assert server.stop() == 0
    assert disk.path.read_bytes() == letters


TEMPLATE = ("{% for message in messages %}{{ message.role }}:\n{{ message.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:\n{% endif %}")


def test_the_next_turn_of_a_chat_finds_the_answers_blocks(fresh_server, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    server = fresh_server("--chat-template", str(template), "--block-size", "16")
    tokens = lambda text: server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]
    # A random model's answer need not be text that gives its tokens again; one of a single repeated token is.
    word = next(c for c in "@#$%&*+=~^" if len(tokens("a\n" + c * 50 + "\n")) == len(tokens("a\n\n")) + 50)
    messages = [{"role": "user", "content": "How does a tide mill work?"}]
    body = {"messages": messages, "max_tokens": 80, "temperature": 0, "ignore_eos": True, "allowed_token_ids": tokens(word)}
    first = server.post("/v1/chat/completions", body).json()
    answer = first["choices"][0]["message"]["content"]
    assert answer == word * 80
    seen = first["usage"]["total_tokens"]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And at neap tide?"}]
    second = server.post("/v1/chat/completions", body).json()
    # Every block that question and answer filled; the last token was drawn and never computed.
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == (seen - 1) // 16 * 16
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > first["usage"]["prompt_tokens"]


def test_memory_is_planned_for_the_format_in_use(fresh_server):
    """A budget that holds the longest context in int8, but not in fp16: 288 and 512 bytes a token of the tiny model."""
    block, tail = 288 * BLOCK, 512 * BLOCK
    budget = 512 // BLOCK * block + tail
    flags = ("--kv-cache-memory-bytes", str(budget))
    body = {"prompt": [5] * 500, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    refused = fresh_server(*flags).post("/v1/completions", body)
    assert refused.status_code == 400
    assert "the prompt has 500 tokens and the KV cache holds at most 320" in refused.text
    server = fresh_server(*flags, "--kv-cache-dtype", "int8")
    assert server.post("/v1/completions", body).status_code == 200
    for first in range(10, 20):  # fill it
        assert server.post("/v1/completions", {**body, "prompt": [first] * 200}).status_code == 200
    now = server.metrics()
    assert now["tidemill:kv_cache_budget_bytes"] == budget
    assert budget - block < now["tidemill:kv_cache_occupied_bytes"] <= budget
    assert now["tidemill:kv_cache_bytes_per_token"] == 288


@pytest.mark.parametrize("name", ["float16", "f16", "fp16"])
def test_a_request_names_formats_as_the_flag_does(fresh_server, name):
    server = fresh_server("--kv-cache-dtype", "q8_0", "--kv-request-formats", name)
    for asked, given in [(name, "fp16"), ("q4_0", "q8_0"), ("fp8", "q8_0"), ("q8_0", "q8_0"), ("auto", "q8_0")]:
        reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "kv_cache_dtype": asked})
        assert reply.status_code == 200, reply.text
        assert reply.json()["kv_cache"]["formats"] == given
    reply = server.post("/v1/completions", {"prompt": PROMPT, "kv_cache_dtype": "q5_1"})
    assert reply.status_code == 400 and "q5_1" in reply.text


def first_layer_of(folder, to, positions):
    """A model of one layer and a long context, so that a long prompt takes seconds."""
    to.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, to)
    config = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1, "max_position_embeddings": positions}))
    data = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    kept, body = {}, b""
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or (".layers." in name and ".layers.0." not in name):
            continue
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        kept[name] = {**tensor, "data_offsets": [len(body), len(body) + end - begin]}
        body += data[begin:end]
    header = json.dumps(kept).encode()
    header += b" " * (-len(header) % 8)
    (to / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)


def test_very_long_prompts(fresh_server, tmp_path, monkeypatch):
    """The same answer cold and cached, whatever the chunk, and where one token differs; never an empty one."""
    first_layer_of(model(), tmp_path / "long", 131072)
    monkeypatch.setenv("TIDEMILL_TEST_MODEL", str(tmp_path / "long"))
    draw = random.Random(3)
    prompt = [draw.randrange(2, 384) for _ in range(55000)]
    changed = {at: [*prompt[:at], prompt[at] % 380 + 2, *prompt[at + 1:]] for at in (7, 27500, 54995)}

    def go(server, tokens):
        reply = server.post("/v1/completions", {"prompt": tokens, "max_tokens": 6, "temperature": 0, "ignore_eos": True,
                                                "logprobs": 2, "return_token_ids": True}).json()
        choice = reply["choices"][0]
        assert len(choice["token_ids"]) == 6 and choice["finish_reason"] == "length"
        return (choice["token_ids"], choice["logprobs"]), reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    plain = fresh_server("--no-enable-prefix-caching", "--max-num-batched-tokens", "2048")
    caching = fresh_server("--max-num-batched-tokens", "64")
    answer, cached = go(plain, prompt)
    assert cached == 0
    assert go(caching, prompt) == (answer, 0)
    assert go(caching, prompt) == (answer, 54976)
    for at, tokens in changed.items():
        other, cached = go(caching, tokens)
        assert cached == at // BLOCK * BLOCK
        if at == 27500:
            assert go(plain, tokens) == (other, 0)
