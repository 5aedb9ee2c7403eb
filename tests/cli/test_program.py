"""The program as its user sees it: exit codes, messages, files, signals."""
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TIDEMILL_BINARY", ROOT / "build/release/tidemill"))
DATA = pathlib.Path(os.environ.get("TIDEMILL_DATA", ROOT.parent / "shared/data"))
CACHE = pathlib.Path(os.environ.get("TIDEMILL_CACHE") or pathlib.Path.home() / ".cache/tidemill")
SMOLLM2 = CACHE / "smollm2-135m-instruct-q4_1.gguf"
GEMMA3 = CACHE / "gemma-3-270m-q4_k_m.gguf"

needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent")
needs_smollm2 = pytest.mark.skipif(not SMOLLM2.exists(), reason=f"{SMOLLM2} is absent")
needs_gemma3 = pytest.mark.skipif(not GEMMA3.exists(), reason=f"{GEMMA3} is absent")


def run(*arguments, stdin="", **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_")} | environment
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin.encode(), capture_output=True, env=env, timeout=300)


def test_no_command_is_a_mistake():
    done = run()
    assert done.returncode == 2 and done.stdout == b"" and b"Commands:" in done.stderr


def test_help_goes_to_standard_output():
    done = run("--help")
    assert done.returncode == 0 and b"perplexity" in done.stdout


@pytest.mark.parametrize("command", ["serve", "chat", "complete", "tokenize", "inspect", "perplexity", "bench latency",
                                     "bench throughput", "bench serve", "bench modes", "bench compare", "bench kernels"])
def test_every_command_has_help(command):
    done = run(*command.split(), "--help")
    assert done.returncode == 0 and f"Usage: tidemill {command}".encode() in done.stdout
    assert b"[default: " in done.stdout or command == "inspect"  # which has none to show


def test_version():
    assert run("version").stdout.startswith(b"tidemill 0.")
    assert run("--version").returncode == 0


@pytest.mark.parametrize("arguments, said", [
    (["srve"], b"did you mean 'serve'?"),
    (["serve"], b"tidemill serve PATH"),
    (["serve", "x", "--prot", "1"], b"did you mean --port?"),
    (["serve", "x", "--kv-cache-dtype", "int3"], b"is not one of auto, fp16"),
    (["serve", "x", "--ssl-certfile", "c.pem"], b"--ssl-keyfile"),
    (["serve", "x", "--max-model-len", "nine"], b"--max-model-len: 'nine' is not a number"),
    (["perplexity", "x.txt"], b"--model PATH"),
    (["chat", "x", "--url", "http://127.0.0.1:1"], b"not both"),
    (["complete", "--model", "x", "--url", "http://127.0.0.1:1"], b"not both"),
    (["complete", "--model", "x", "one", "two\n\033[31m"], b"one argument too many"),
])
def test_mistakes_in_usage(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count(b"\n") == 1


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    done = run("inspect", path)
    assert done.returncode == 1 and done.stderr.startswith(b"tidemill: ") and done.stderr.count(b"\n") == 1


def test_an_absent_file():
    done = run("inspect", "/nowhere/model.gguf")
    assert done.returncode == 1 and b"model.gguf" in done.stderr


def test_a_folder_without_a_name():
    done = run("inspect", "/")
    assert done.returncode == 1 and done.stderr.startswith(b"tidemill: /: holds neither")


def test_keys_without_a_meaning_do_not_reach_the_model():
    # On a terminal of 200 columns; the tiny model has no chat template, so a line that is no command would be refused.
    ours, theirs = pty.openpty()
    with subprocess.Popen([BINARY, "chat", ROOT / "tests/golden/tiny-models/llama"], stdin=theirs, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as chat:
        os.close(theirs)
        os.write(ours, b"\033[A/history\n\033[A\n\004")
        said = chat.communicate(timeout=60)[1]
    os.close(ours)
    assert chat.returncode == 0 and b"no such command" not in said and b"tidemill: " not in said


def test_configuration_file_with_a_wrong_name(tmp_path):
    config = tmp_path / "tidemill.yaml"
    config.write_text("max-num-seq: 4\n")
    done = run("serve", "x", "--config", config)
    assert done.returncode == 2 and b"did you mean max-num-seqs?" in done.stderr


@needs_data
def test_tokenize_with_a_vocabulary_only():
    model = DATA / "ggml-vocab/ggml-vocab-phi-3.gguf"
    with_bos = json.loads(run("tokenize", "--model", model, "--ids", stdin="Hello world").stdout)
    without = json.loads(run("tokenize", "--model", model, "--ids", "--no-special-tokens", stdin="Hello world").stdout)
    assert with_bos == [1] + without and len(without) >= 2
    assert json.loads(run("tokenize", "--model", model, "--ids", "--no-special-tokens").stdout) == []


@needs_data
@needs_smollm2
def test_tokenize_reproduces_the_reference():
    rows = [json.loads(line) for line in (DATA / "reference/tokens-smollm2.jsonl").read_text().splitlines()]
    for row in rows[:: len(rows) // 12]:
        ids = next(v for k, v in row.items() if isinstance(v, list))
        done = run("tokenize", "--model", SMOLLM2, "--ids", "--no-special-tokens", stdin=row["text"])
        assert json.loads(done.stdout) == ids, row["text"]


@needs_smollm2
def test_inspect():
    done = run("inspect", SMOLLM2)
    assert done.returncode == 0
    for part in (b"llama", b"Q4_1", b"23040 bytes per token", b"<|im_end|>"):
        assert part in done.stdout


@needs_smollm2
def test_complete_is_the_same_every_time():
    arguments = ["complete", SMOLLM2, "The tide comes in", "--max-tokens", "12", "--temperature", "0.8", "--seed", "7"]
    first = run(*arguments)
    assert first.returncode == 0 and len(first.stdout) > 10
    assert run(*arguments, "--threads", "1").stdout == first.stdout


@needs_smollm2
def test_chat_remembers():
    lines = "My name is Ada. Say hello.\n/history\n/clear\n/nonsense\n"
    done = run("chat", SMOLLM2, "--temperature", "0", "--max-tokens", "16", stdin=lines)
    assert done.returncode == 0 and len(done.stdout) > 5
    assert b"user: My name is Ada." in done.stderr and b"no such command" in done.stderr
    assert b"\033[" not in done.stdout + done.stderr


@needs_data
@needs_smollm2
def test_perplexity_of_smollm2():
    text = DATA / "corpus-wikitext2-raw/wiki.test.raw"
    done = run("perplexity", "--model", SMOLLM2, "--ctx-size", "512", "--chunks", "10", text)
    last = done.stdout.decode().splitlines()[-1]
    assert last.startswith("perplexity = ")
    assert abs(float(last.split("=")[1]) / 26.6155 - 1) < 0.006


@needs_data
@needs_gemma3
def test_perplexity_of_gemma3():
    text = DATA / "corpus-wikitext2-raw/wiki.test.raw"
    done = run("perplexity", "--model", GEMMA3, "--ctx-size", "512", "--chunks", "10", text)
    last = done.stdout.decode().splitlines()[-1]
    assert abs(float(last.split("=")[1]) / 20.1676 - 1) < 0.006


class Server:
    def __init__(self, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([BINARY, "serve", SMOLLM2, "--port", str(self.port), "--kv-cache-memory-bytes",
                                         "256MiB", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        self.banner = []
        while not self.banner or not self.banner[-1].startswith("Try:"):
            line = self.process.stdout.readline().decode()
            assert line, self.process.stderr.read().decode()
            self.banner.append(line)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@needs_smollm2
def test_the_printed_curl_line_works():
    with Server() as server:
        command = server.banner[-1].removeprefix("Try:").strip()
        answer = json.loads(subprocess.run(["bash", "-c", command + " --silent"], capture_output=True, timeout=120).stdout)
        assert answer["choices"][0]["message"]["content"]


@needs_smollm2
def test_chat_and_complete_through_a_server():
    with Server() as server:
        chat = run("chat", "--url", server.url, "--temperature", "0", "--max-tokens", "8", stdin="Hello\n")
        assert chat.returncode == 0 and len(chat.stdout.strip()) > 0
        there = run("complete", "--url", server.url + "/v1", "The sea", "--temperature", "0", "--max-tokens", "8")
        here = run("complete", SMOLLM2, "The sea", "--temperature", "0", "--max-tokens", "8")
        assert there.stdout == here.stdout


@needs_smollm2
def test_sigterm_ends_streams_and_the_exit_code_is_0():
    with Server("--shutdown-timeout", "1") as server:
        body = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as stream:
            stream.readline()
            server.process.send_signal(signal.SIGTERM)
            rest = stream.read().decode()
        assert '"error"' in rest or '"finish_reason"' in rest
        assert server.process.wait(timeout=20) == 0


@needs_smollm2
def test_a_second_signal_ends_at_once():
    with Server("--shutdown-timeout", "60") as server:
        body = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as stream:
            stream.readline()
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=5) == 128 + signal.SIGTERM


@needs_smollm2
def test_an_address_that_is_taken():
    with Server() as server:
        done = run("serve", SMOLLM2, "--port", server.port)
        assert done.returncode == 1 and str(server.port).encode() in done.stderr
