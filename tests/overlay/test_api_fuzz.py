"""Whatever a client sends, the middleware answers 4xx or hands on what vLLM can parse."""

import asyncio
import json

import api_bed
from fuzz_bodies import bodies

from glm53_overlay.api.requests import GENERATING

COUNT = 5000
ROUTES = (*GENERATING, "/tokenize", "/v1/tokenize")


def test_no_body_breaks_the_middleware():
    bed = api_bed.make(
        window=1000, deterministic=True, reasoning_field="both", default_max_tokens=5
    )
    bed.server.answers["/tokenize"] = (200, {"count": 10})
    seen: dict[int, int] = {}

    async def ask_all():
        async with api_bed.httpx.AsyncClient(
            transport=api_bed.httpx.ASGITransport(bed.app), base_url="http://bed"
        ) as client:
            for number, raw in enumerate(bodies(COUNT, "m")):
                path = ROUTES[number % len(ROUTES)]
                answer = await asyncio.wait_for(client.post(path, content=raw), 120)
                seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
                if answer.status_code != 200:
                    assert json.loads(answer.content)["error"]["code"], raw

    asyncio.run(ask_all())
    assert set(seen) <= {200, 400, 413}, seen
    assert seen[200] > COUNT / 4, seen
    assert seen[400] > COUNT / 20, seen
    assert bed.server.state.glm53_load.active == 0
