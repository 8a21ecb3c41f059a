"""A client of the OpenAI package: streams an answer, and cancels a second one."""
import json
import sys

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
ask = dict(model=model, temperature=0, stream=True, messages=[{"role": "user", "content": "Tell a long story of the sea."}])

text = ""
for chunk in client.chat.completions.create(max_tokens=12, **ask):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""

seen = 0
with client.chat.completions.create(max_tokens=1500, **ask) as stream:
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            seen += 1
            if seen == 5:
                break
print(json.dumps({"text": text, "seen": seen}))
