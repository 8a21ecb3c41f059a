"""Drives a front with the openai package: python3 client.py URL TOKEN.

Each function that begins with check_ is one check. Their names are printed as
they pass, so that the caller can see that none was left out.
"""

import asyncio
import sys

import openai

url, token = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0, timeout=60)


def ask(text, **more):
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], **more)


def check_models():
    assert [m.id for m in client.models.list()] == ["m", "org/large"]
    m = client.models.retrieve("org/large")
    assert (m.id, m.object, m.owned_by) == ("org/large", "model", "us")


def check_whole():
    r = ask("hello")
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == "m"
    c = r.choices[0]
    assert c.message.role == "assistant" and c.message.content == "Hi €!" and c.finish_reason == "stop"
    assert c.message.tool_calls is None and c.logprobs is None
    u = r.usage
    assert (u.prompt_tokens, u.completion_tokens, u.total_tokens) == (5, 4, 9)
    assert u.prompt_tokens_details.cached_tokens == 3
    assert r._request_id == r.id


def check_stream():
    parts, finish = [], []
    for chunk in ask("hello", stream=True):
        assert chunk.object == "chat.completion.chunk" and chunk.usage is None
        parts.append(chunk.choices[0].delta.content or "")
        finish.append(chunk.choices[0].finish_reason)
    assert "".join(parts) == "Hi €!" and len(parts) == 6, parts  # role, four texts, finish
    assert finish == [None] * 5 + ["stop"], finish


def check_stream_usage():
    chunks = list(ask("hello", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 9
    assert all(c.usage is None for c in chunks[:-1])


def check_stream_helper():
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hello"}]) as s:
        kinds = [e.type for e in s]
        final = s.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds
    assert final.choices[0].message.content == "Hi €!"


def check_reasoning():
    m = ask("think").choices[0].message
    assert m.content == "yes" and m.reasoning_content == "hm, so"
    reasoning = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in ask("think", stream=True))
    assert reasoning == "hm, so"
    assert ask("think").usage.completion_tokens_details.reasoning_tokens == 2


def check_stop():
    assert ask("hello", stop=["!", "never"]).choices[0].message.content == "Hi €"
    text = "".join(c.choices[0].delta.content or "" for c in ask("hello", stop=" €!", stream=True))
    assert text == "Hi", text


def check_chat_logprobs():
    content = ask("hello", logprobs=True, top_logprobs=1).choices[0].logprobs.content
    assert [bytes(t.bytes) for t in content] == [b"Hi", b" \xe2\x82", b"\xac", b"!"]
    assert [t.logprob for t in content] == [-0.5, -0.5, -0.5, -0.5]
    assert content[0].token == "Hi" and content[0].top_logprobs[0].token == "Yo" and content[0].top_logprobs[0].logprob == -0.75
    seen = []
    for c in ask("hello", logprobs=True, stream=True):
        if c.choices[0].logprobs:
            seen += [bytes(t.bytes) for t in c.choices[0].logprobs.content]
    assert b"".join(seen).decode() == "Hi €!"


def check_completions():
    r = client.completions.create(model="m", prompt="hello", logprobs=1, max_tokens=9)
    c = r.choices[0]
    assert r.object == "text_completion" and c.text == "Hi €!" and c.finish_reason == "stop"
    assert c.logprobs.token_logprobs == [-0.5] * 4 and c.logprobs.text_offset == [0, 2, 3, 4], c.logprobs
    assert c.logprobs.top_logprobs[0] == {"Hi": -0.5, "Yo": -0.75}
    text = "".join(c.choices[0].text for c in client.completions.create(model="m", prompt=["hello"], stream=True))
    assert text == "Hi €!"
    assert client.completions.create(model="m", prompt=[1, 2]).choices[0].text == "ids [1 2]"


def check_extensions():
    r = ask("hello", extra_body={"thinking_token_budget": 7, "chat_template_kwargs": {"enable_thinking": False}})
    assert r.meridian == {"max_think": 7, "think": False}, r.meridian


def expect(kind, call, **want):
    try:
        call()
    except openai.APIError as e:
        assert type(e) is kind, (type(e), e)
        for name, value in want.items():
            assert getattr(e, name) == value, (name, getattr(e, name), value)
        return
    raise AssertionError(f"no {kind.__name__}")


def check_errors():
    expect(openai.BadRequestError, lambda: ask("hello", temperature=3), status_code=400, param="temperature", code="invalid_value", type="invalid_request_error")
    expect(openai.BadRequestError, lambda: ask("hello", n=2), param="n", code="unsupported_parameter")
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    expect(openai.BadRequestError, lambda: ask("hello", tools=[tool]), param="tools")
    expect(openai.BadRequestError, lambda: ask("hello", response_format={"type": "json_object"}), param="response_format")
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    expect(openai.BadRequestError, lambda: ask(image), param="messages[0].content[0].type")
    wrong = client.with_options(api_key="wrong")
    expect(openai.AuthenticationError, wrong.models.list, status_code=401, code="invalid_api_key")
    page = client.with_options(default_headers={"Origin": "http://evil.example"})
    expect(openai.PermissionDeniedError, page.models.list, status_code=403, code="origin_not_allowed")
    expect(openai.NotFoundError, lambda: client.models.retrieve("x"), code="model_not_found")
    expect(openai.NotFoundError, lambda: client.completions.create(model="x", prompt="y"), code="model_not_found", param="model")
    expect(openai.NotFoundError, lambda: client.embeddings.create(model="m", input="x"), code="unknown_url")
    expect(openai.ConflictError, lambda: ask("fail 409"), status_code=409)
    expect(openai.RateLimitError, lambda: ask("fail 429"), status_code=429)
    expect(openai.InternalServerError, lambda: ask("fail 500"), status_code=500)
    expect(openai.InternalServerError, lambda: list(ask("fail 503", stream=True)), status_code=503)
    big = "x" * (4 << 20)
    expect(openai.APIStatusError, lambda: ask(big), status_code=413, code="request_too_large")


def check_error_in_a_stream():
    seen = []

    def run():
        for chunk in ask("break", stream=True):
            seen.append(chunk.choices[0].delta.content or "")

    expect(openai.APIError, run, code="engine_failed", message="it fell over")
    assert "".join(seen) == "one two ", seen


def check_signs_of_life():
    with client.chat.completions.with_streaming_response.create(model="m", messages=[{"role": "user", "content": "wait hello"}], stream=True) as r:
        assert ": waiting" in list(r.iter_lines())
    text = "".join(c.choices[0].delta.content or "" for c in ask("wait hello", stream=True))
    assert text == "Hi €!", text
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "wait hello"}]) as s:
        assert s.get_final_completion().choices[0].message.content == "Hi €!"
    expect(openai.APIError, lambda: list(ask("wait fail 503", stream=True)), message="as you wish")


def check_cancel():
    with ask("endless", stream=True) as s:
        for i, _ in enumerate(s):
            if i == 5:
                break


def check_async_cancel():
    async def run():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=token, max_retries=0) as c:
            async def read():
                s = await c.chat.completions.create(model="m", messages=[{"role": "user", "content": "endless"}], stream=True)
                async for _ in s:
                    begun.set()

            begun = asyncio.Event()
            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return
            raise AssertionError("the task came to an end")

    asyncio.run(run())


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(name, flush=True)
