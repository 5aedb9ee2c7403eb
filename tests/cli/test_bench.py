"""tidemill bench from outside: tables, result files, mistakes in usage, and a server to load."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request
import xml.dom.minidom

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TIDEMILL_BINARY", ROOT / "build/release/tidemill"))
MODEL = ROOT / "tests/golden/tiny-models/llama"


def bench(*arguments, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_")}
    return subprocess.run([BINARY, "bench", *map(str, arguments)], capture_output=True, env=env, timeout=300, **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def url():
    port = free_port()
    command = [BINARY, "serve", MODEL, "--port", str(port), "--served-model-name", "tiny", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(address + "/health", timeout=5)
            break
        except OSError:
            assert process.poll() is None
            time.sleep(0.05)
    yield address
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "w.jsonl"
    rows = [{"prompt": "ab" * (1 + i), "max_tokens": 4 + i, "class": "odd" if i % 2 else "even"} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_overview_names_every_kind():
    done = bench("--help")
    assert done.returncode == 0
    for kind in ("latency", "throughput", "serve", "modes", "compare", "kernels"):
        assert kind.encode() in done.stdout
    assert bench().returncode == 2


@pytest.mark.parametrize("arguments, said", [
    (["servr"], b"did you mean 'serve'?"),
    (["latency"], b"bench latency needs a model"),
    (["latency", "x", "--batch-sizes", "1,0"], b"0 is not between 1 and"),
    (["latency", "x", "--batch-sizes", "1,,2"], b"is not a number"),
    (["serve"], b"needs --url"),
    (["serve", "--url", "http://127.0.0.1:1", "--request-rate", "2", "--concurrency", "3"], b"give one"),
    (["serve", "--url", "http://127.0.0.1:1", "--request-rate", "0"], b"is not a rate"),
    (["compare", "x"], b"needs --peer"),
    (["kernels", "--types", "Q4_1,Q9"], b"no weight type 'Q9'"),
])
def test_mistakes_in_usage(arguments, said):
    done = bench(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments, said", [
    (["serve", "--url", "http://127.0.0.1:1"], b"Connection refused"),
    (["serve", "--url", "http://127.0.0.1:1", "--workload", "no-such-kind"], b"neither mixed"),
    (["throughput", MODEL, "--trace", "/nowhere"], b"nowhere"),
    (["latency", MODEL, "--prompt-tokens", "100000"], b"do not fit"),
    (["compare", MODEL, "--peer", "echo no luck; exit 1", "--peer-url", "http://127.0.0.1:1", "--requests", "1", "--workload", "chat",
      "--extra-body", '{"max_tokens": 1}'], b"peer: the server ended before it answered; it said: no luck"),
])
def test_what_cannot_be_done(arguments, said):
    done = bench(*arguments)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count(b"\n") == 1


def test_latency_writes_what_it_prints(tmp_path):
    path = tmp_path / "latency.json"
    done = bench("latency", MODEL, "--prompt-tokens", 16, "--new-tokens", 4, "--batch-sizes", "1,3", "--repeat", 2, "--json", path)
    assert done.returncode == 0 and done.stdout.count(b"|    3 |    16 |     4 |") == 1
    result = json.loads(path.read_text())
    assert [row["sequences"] for row in result["batches"]] == [1, 3]
    assert result["batches"][1]["itl_ms"]["count"] == 8 and result["batches"][1]["prefill_tokens_per_s"] > 0
    assert result["machine"]["cores"] >= 1 and result["machine"]["cpu"] and result["version"]
    assert len(result["model"]["files"][0]["sha256"]) == 64 and "--prompt-tokens" in result["flags"]


def test_a_bare_model_is_latency():
    done = bench(MODEL, "--npp", 8, "--ntg", 2, "--npl", "1", "--repeat", 1)
    assert done.returncode == 0 and b"|    1 |     8 |     2 |" in done.stdout


def test_throughput_reports_every_class(tmp_path, workload):
    path, records = tmp_path / "throughput.json", tmp_path / "records.jsonl"
    done = bench("throughput", MODEL, "--workload", workload, "--concurrency", 2, "--json", path, "--save-requests", records)
    assert done.returncode == 0 and b"- odd" in done.stdout
    result = json.loads(path.read_text())["result"]
    assert result["all"]["output_tokens"] == sum(4 + i for i in range(6)) and result["by_class"]["odd"]["requests"] == 3
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert [len(row["token_ms"]) for row in sorted(rows, key=lambda row: row["index"])] == [4 + i for i in range(6)]


def test_modes_write_a_table_a_file_and_a_picture(tmp_path, workload):
    path, picture = tmp_path / "modes.json", tmp_path / "modes.svg"
    done = bench("modes", MODEL, "--workload", workload, "--concurrency", 4, "--lengths", "16,32", "--price-per-hour", "0.1",
                 "--json", path, "--svg", picture)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert len(result["modes"]) == 5 and len(result["token_cost_by_length"]) == 2
    assert all(mode["cost_per_million_output_tokens"] > 0 for mode in result["modes"])
    assert result["continuous_over_unbatched"]["source_documents"] == 3.8
    assert xml.dom.minidom.parse(str(picture)).documentElement.tagName == "svg"


def test_serve_closed_loop(url, tmp_path, workload):
    path = tmp_path / "serve.json"
    done = bench("serve", "--url", url, "--workload", workload, "--concurrency", "2,6", "--json", path)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert result["model"] == "tiny" and [p["concurrency"] for p in result["passes"]] == [2, 6]
    for one in result["passes"]:
        assert one["all"]["errors"] == 0 and one["all"]["output_tokens"] == sum(4 + i for i in range(6))


def test_serve_open_loop_sweeps_rates(url, tmp_path):
    path = tmp_path / "serve.json"
    done = bench("serve", "--url", url, "--workload", "chat", "--requests", 6, "--request-rates", "50,100", "--burstiness", "0.5",
                 "--extra-body", '{"max_tokens": 3}', "--json", path)
    assert done.returncode == 0, done.stderr
    passes = json.loads(path.read_text())["passes"]
    assert [p["request_rate_per_s"] for p in passes] == [50, 100] and passes[0]["all"]["output_tokens"] == 18


def test_serve_plays_a_trace(url, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,20,4\n2023-11-16 18:15:47.6805900,30,5\n")
    done = bench("serve", "--url", url, "--trace", trace, "--trace-scale", 10)
    assert done.returncode == 0 and b"as in the trace" in done.stdout, done.stderr
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,20,4\n")
    done = bench("serve", "--url", url, "--trace", trace)
    assert done.returncode == 1 and b"line 2: 'yesterday' is not a time" in done.stderr


def test_serve_says_what_was_refused(url, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("fine\n" + "x" * 20000 + "\n")
    done = bench("serve", "--url", url, "--prompts", prompts, "--max-tokens", 3)
    assert done.returncode == 1 and b"request 2: HTTP 400" in done.stderr


def test_kernels_are_held_against_the_machine(tmp_path):
    path, picture = tmp_path / "kernels.json", tmp_path / "kernels.svg"
    done = bench("kernels", "--quick", "--types", "Q4_1,F32", "--rows", "1,8", "--lengths", 64, "--threads", 1, "--json", path,
                 "--svg", picture)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert len(result["products"]) == 6 and len(result["attention"]) == 3
    assert all(0 < row["tmac_per_s"] < 1000 and row["read_limit_gb_per_s"] > 0 for row in result["products"])
    assert xml.dom.minidom.parse(str(picture)).documentElement.tagName == "svg"


def test_compare_starts_both_in_turns_and_ends_them(tmp_path, workload):
    path, port = tmp_path / "compare.json", free_port()
    peer = f"{BINARY} serve {MODEL} --port {port} --threads 1; true"
    done = bench("compare", MODEL, "--serve-flags=--threads 1", "--peer", peer, "--peer-url", f"http://127.0.0.1:{port}", "--runs", 2,
                 "--workload", workload, "--concurrency", 3, "--json", path)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    for side in ("tidemill", "peer"):
        assert [run["all"]["errors"] for run in result[side]] == [0, 0]
        assert all(run["peak_resident_bytes"] > 1e6 for run in result[side])
    assert result["medians"]["output tok/s"]["ratio"] > 0 and b"ratio" in done.stdout
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_compare_does_not_take_another_server_for_the_peer(url, workload):
    done = bench("compare", MODEL, "--serve-flags=--threads 1", "--peer", "sleep 60", "--peer-url", url, "--workload", workload)
    assert done.returncode == 1 and b"something answers at" in done.stderr
