"""The official client, as its users call it."""
import httpx
import openai
import pytest

MESSAGES = [{"role": "user", "content": "Say something."}]


def test_models(server):
    assert [model.id for model in server.client().models.list()] == ["tiny"]
    assert server.client().models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("other")


def test_completion_streamed_and_whole(server):
    client = server.client()
    options = dict(model="tiny", prompt="Once upon a time", max_tokens=24, temperature=0)
    whole = client.completions.create(**options)
    assert whole.usage.completion_tokens <= 24
    assert whole.choices[0].finish_reason in ("stop", "length")
    chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_seeded_choices_repeat(server):
    options = dict(model="tiny", prompt="a b c", max_tokens=16, temperature=1, n=3, seed=7)
    first = server.client().completions.create(**options)
    again = server.client().completions.create(**options)
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices]
    assert len(set(texts)) > 1
    alone = [server.client().completions.create(**{**options, "n": 1, "seed": 7 + i}).choices[0].text for i in range(3)]
    assert alone == texts


def test_logprobs_and_echo(server):
    reply = server.client().completions.create(model="tiny", prompt="a b c", max_tokens=0, echo=True, logprobs=2)
    assert reply.choices[0].text == "a b c"
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in reply.choices[0].logprobs.token_logprobs[1:])
    whole = server.post("/v1/completions", {"prompt": "a b c", "max_tokens": 1, "prompt_logprobs": 0}).json()["choices"][0]
    chosen = [next(iter(entry.values()))["logprob"] for entry in whole["prompt_logprobs"][1:]]
    assert chosen == pytest.approx(reply.choices[0].logprobs.token_logprobs[1:], abs=1e-6)


def test_errors_are_the_clients_exceptions(server):
    client = server.client()
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="tiny", prompt="a", max_tokens=-1)
    assert refused.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    limit = server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="tiny", prompt=[1] * (limit + 1), max_tokens=1)
    assert long.value.code == "context_length_exceeded"


def test_keys(fresh_server):
    server = fresh_server("--api-key", "secret")
    assert httpx.get(server.url + "/v1/models").status_code == 401
    with pytest.raises(openai.AuthenticationError):
        server.client().models.list()
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="secret")
    assert client.models.list().data[0].id == "tiny"


def test_usage_adds_up_in_the_metrics(server):
    before = server.metrics()
    prompt = completion = 0
    for i in range(8):
        usage = server.client().completions.create(model="tiny", prompt="word " * (i + 1), max_tokens=i, temperature=0).usage
        prompt, completion = prompt + usage.prompt_tokens, completion + usage.completion_tokens
    assert server.quiet()
    after = server.metrics()
    assert after["tidemill:prompt_tokens_total"] - before["tidemill:prompt_tokens_total"] == prompt
    assert after["tidemill:generation_tokens_total"] - before["tidemill:generation_tokens_total"] == completion
