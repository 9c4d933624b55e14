"""Images and videos: how many, how large, from where, and how many tokens."""

import asyncio
import base64
import http.server
import io
import threading
from typing import ClassVar

import api_bed
import pytest
from api_bed import CHAT, error
from PIL import Image, ImageFile

from glm53_overlay.api import fetch, media
from glm53_overlay.api.refusal import RefusedError
from glm53_overlay.settings import MIB, MediaSettings

HANGS = 30
"""Seconds after which what is waited for does not come."""


def picture(width=56, height=56, kind="PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (9, 99, 199)).save(out, kind)
    return out.getvalue()


def data_url(content: bytes, kind="image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def asking(*parts):
    text = {"type": "text", "text": "what?"}
    return {"model": "m", "messages": [{"role": "user", "content": [*parts, text]}]}


def image(url=None):
    return {"type": "image_url", "image_url": {"url": url or data_url(picture())}}


def video(size=100):
    return {"type": "video_url", "video_url": {"url": data_url(b"v" * size, "video/mp4")}}


def bed(**limits):
    return api_bed.make(media=MediaSettings(**limits))


def test_small_media_arrive_as_they_were():
    made, body = bed(), asking(image(), video())
    assert made.post(body=body).status_code == 200
    assert made.server.got == body


@pytest.mark.parametrize(
    ("part", "limits"), [(image, {"images": 2}), (video, {"videos": 2})], ids=["image", "video"]
)
def test_the_number_is_that_of_the_whole_conversation(part, limits):
    made = bed(**limits)
    assert made.post(body=asking(part(), part())).status_code == 200
    body = asking(part())
    body["messages"] = [*asking(part())["messages"], *asking(part(), part())["messages"]]
    found = error(made.post(body=body), 400)
    assert found["code"] == "media_too_many"
    assert "3" in found["message"]


@pytest.mark.parametrize(
    ("kind", "limits", "sizes", "status"),
    [
        ("image", {"image_mib": 0.01}, [10_400], 200),
        ("image", {"image_mib": 0.01}, [10_600], 413),
        ("image", {"image_mib": 0.01, "images_mib": 0.02}, [10_000, 10_000], 200),
        ("image", {"image_mib": 0.01, "images_mib": 0.02}, [10_000, 10_000, 2_000], 413),
        ("video", {"video_mib": 0.01}, [10_600], 413),
        ("video", {"video_mib": 0.01, "videos_mib": 0.02}, [10_000, 10_000, 2_000], 413),
        ("video", {"video_mib": 0.01, "images_mib": 0.001}, [10_000], 200),
    ],
)
def test_bytes_count_as_they_are_before_base64(kind, limits, sizes, status):
    made = bed(**limits)
    start = picture()
    parts = [
        image(data_url(start + bytes(size - len(start)))) if kind == "image" else video(size)
        for size in sizes
    ]
    answer = made.post(body=asking(*parts))
    assert answer.status_code == status
    if status == 413:
        assert error(answer, 413)["code"] == "media_too_large"


def frames(*sizes, kind="video/jpeg"):
    parts = ",".join(base64.b64encode(bytes(size)).decode() for size in sizes)
    return {"type": "video_url", "video_url": {"url": f"data:{kind};base64,{parts}"}}


@pytest.mark.parametrize(
    ("part", "status"),
    [
        (frames(4000, 4001), 200),
        (frames(4000, 4001, kind="Video/JPEG;a=b"), 200),
        (frames(5000, 5486), 413),
        (frames(*[1] * 2048), 200),
        (frames(*[1] * 2049), 400),
        (frames(100, 100, kind="video/mp4"), 400),
    ],
)
def test_a_video_may_come_as_its_frames(part, status):
    """Then vLLM takes parts in base64 with commas between them."""
    made = bed(video_mib=0.01)  # 10,485 bytes
    answer = made.post(body=asking(part))
    assert answer.status_code == status, answer.text
    if status == 200:
        assert made.server.got == asking(part)


def test_a_broken_frame_is_refused():
    part = frames(4, 4)
    part["video_url"]["url"] += ",!!!"
    assert error(bed().post(body=asking(part)), 400)["code"] == "media_invalid"


def test_a_large_image_is_scaled_to_its_share():
    made = bed(image_tokens=100)
    assert made.post(body=asking(image(data_url(picture(2800, 700))))).status_code == 200
    url = made.server.got["messages"][0]["content"][0]["image_url"]["url"]
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as scaled:
        columns, rows = scaled.width / media.CELL, scaled.height / media.CELL
    assert columns * rows <= 100
    assert columns * rows > 80
    assert columns / rows == 4


@pytest.mark.parametrize(
    ("images", "status"),
    [([(300, 300)], 200), ([(300, 301)], 413), ([(280, 280)] * 9, 200), ([(300, 300)] * 9, 413)],
)
def test_pixels_are_counted_before_they_are_decoded(monkeypatch, images, status):
    """One PNG of few bytes has as many as it says; all of a request that are decoded have 8 times
    as many as one may."""
    decoded, load = [], ImageFile.ImageFile.load

    def counted(self):
        decoded.append(self.size)
        return load(self)

    body = asking(*[image(data_url(picture(*size))) for size in images])
    monkeypatch.setattr(ImageFile.ImageFile, "load", counted)
    made = bed(images=99, image_pixels=300 * 300, image_tokens=4)
    answer = made.post(body=body)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert set(decoded) == set(images)
    else:
        assert error(answer, 413)["code"] == "media_too_large"
        assert len(decoded) == len(images) - 1


def test_a_small_part_of_a_jpeg_is_what_is_decoded():
    made = bed(images=99, image_pixels=10**6, image_tokens=4)
    photos = [image(data_url(picture(1000, 1000, "JPEG"), "image/jpeg")) for _ in range(20)]
    assert made.post(body=asking(*photos)).status_code == 200


def test_texts_do_not_wait_for_images(monkeypatch):
    begun, go_on, fit = threading.Event(), threading.Event(), media.fit

    def gated(*args):
        begun.set()
        assert go_on.wait(HANGS)
        return fit(*args)

    monkeypatch.setattr(media, "fit", gated)
    made = bed()
    text = api_bed.chat(user="x" * 300_000)

    async def both():
        shown = asyncio.create_task(
            made.asked(made.request("POST", CHAT, json=asking(image()))),
        )
        assert await asyncio.to_thread(begun.wait, HANGS)
        try:
            said = await asyncio.wait_for(made.asked(made.request("POST", CHAT, json=text)), HANGS)
        finally:
            go_on.set()
        return [*said, *await shown]

    assert [answer.status_code for answer in asyncio.run(both())] == [200, 200]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_formats_that_are_served(kind):
    made = bed(image_tokens=4)
    body = asking(image(data_url(picture(300, 300, kind), f"image/{kind.lower()}")))
    assert made.post(body=body).status_code == 200
    assert made.server.got != body


def test_many_images_share_what_a_request_has():
    found = [media.Item("image", None, lambda url: None, picture(1400, 1400)) for _ in range(10)]
    limits = MediaSettings(image_tokens=2048, request_image_tokens=1000)
    tokens = media.fit(found, limits)
    assert 800 < tokens <= 1000
    assert media.fit(found[:1], limits) <= 100  # the first was scaled already


def test_without_a_sum_each_image_has_its_whole_share():
    found = [media.Item("image", None, lambda url: None, picture(290, 290)) for _ in range(10)]
    assert media.fit(found, MediaSettings(image_tokens=121)) == 10 * 121


@pytest.mark.parametrize(
    ("width", "height", "share"), [(1, 10**6, 5), (10**6, 1, 5), (28, 28, 1), (5000, 5001, 2048)]
)
def test_a_fitting_size_is_whole_cells_within_the_share(width, height, share):
    columns, rows = (edge / media.CELL for edge in media.fitting(width, height, share))
    assert columns == int(columns) >= 1
    assert rows == int(rows) >= 1
    assert columns * rows <= share


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (image("data:image/png;base64,!!!"), "media_invalid"),
        (image("data:image/png;base64"), "media_invalid"),
        (image("data:image/png,plain"), "media_invalid"),
        (image(data_url(picture()).replace("base64", "BASE64")), "media_invalid"),
        (image(data_url(b"GIF89a" + bytes(50))), "media_invalid"),
        (image(data_url(picture()[:40])), "media_invalid"),
        (image(data_url(b"")), None),
        ({"type": "image_url", "image_url": {"url": 5}}, "media_invalid"),
        ({"type": "image_url", "image_url": ["x"]}, "media_invalid"),
        (image("https://example.com/a.png"), "media_url_refused"),
        (image("HTTP://example.com/a.png"), "media_url_refused"),
        (image("file:///etc/passwd"), "media_url_refused"),
        (image("//host/a.png"), "media_url_refused"),
        ({"image_url": "https://example.com/a.png"}, "media_url_refused"),
        ({"type": "video_url", "video_url": {"url": "ftp://a/b"}}, "media_url_refused"),
        ({"type": "text", "text": "x", "image_url": "https://a/"}, "media_url_refused"),
    ],
)
def test_what_cannot_be_shown_is_refused(part, code):
    made = bed()
    answer = made.post(body=asking(part))
    if code is None:
        assert answer.status_code == 200  # nothing in it: vLLM says so
    else:
        assert error(answer, 400)["code"] == code
        assert made.server.bodies == []


def test_the_other_routes_forms_are_seen():
    made = bed(images=0)
    part = {"type": "input_image", "image_url": data_url(picture())}
    body = {"model": "m", "input": [{"role": "user", "content": [part]}]}
    error(made.post("/v1/responses", body), 400)
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    inner = {"type": "tool_result", "content": [{"type": "image", "source": source}]}
    body = {"model": "m", "messages": [{"role": "user", "content": [inner]}]}
    error(made.post("/v1/messages", body), 400)
    source = {"type": "url", "url": "https://example.com/x"}
    body["messages"][0]["content"] = [{"type": "image", "source": source}]
    assert error(bed().post("/v1/messages", body), 400)["code"] == "media_url_refused"


@pytest.mark.parametrize("kind", ["x", None, "file"])
def test_an_anthropic_image_is_looked_at_where_vllm_reads_it(kind):
    """It reads `url` of the type "url" alone, and `data` of all others."""
    source = {"type": kind, "url": data_url(picture()), "data": "!!!", "media_type": "image/png"}
    part = {"type": "image", "source": source}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    assert error(bed().post("/v1/messages", body), 400)["code"] == "media_invalid"
    source |= {"type": "url", "url": 5}
    assert error(bed().post("/v1/messages", body), 400)["code"] == "media_invalid"


@pytest.mark.parametrize("source", ["x", None, [], {}])
def test_an_anthropic_image_within_a_result_has_a_source(source):
    inner = {"type": "tool_result", "content": [{"type": "image", "source": source}]}
    body = {"model": "m", "messages": [{"role": "user", "content": [inner]}]}
    assert error(bed().post("/v1/messages", body), 400)["code"] == "media_invalid"


def test_an_anthropic_image_is_scaled_in_place():
    made = bed(image_tokens=1)
    data = base64.b64encode(picture(300, 300)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    part = {"type": "image", "source": source}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    assert made.post("/v1/messages", body).status_code == 200
    got = made.server.got["messages"][0]["content"][0]["source"]
    assert len(got["data"]) < len(data)
    assert (got["type"], got["media_type"]) == ("base64", "image/png")


def test_media_are_not_counted_as_text():
    made = api_bed.make(window=1000, media=MediaSettings())
    made.server.answers["/tokenize"] = (200, {"count": 100})
    body = {**asking(image(data_url(picture(560, 560)))), "max_tokens": 500}
    assert made.post(body=body).status_code == 200  # 100 + 400 + 500
    counted = made.server.bodies[0]
    assert counted[0] == "/tokenize"
    assert counted[1]["messages"][0]["content"] == [{"type": "text", "text": "what?"}]
    body["max_tokens"] = 501
    assert error(made.post(body=body), 400)["code"] == "context_length_exceeded"


# --- fetching -------------------------------------------------------------------------------------


class Site(http.server.BaseHTTPRequestHandler):
    """A web server on loopback, standing in for one on the internet."""

    content = picture()
    hosts: ClassVar[list[str]] = []

    def do_GET(self):
        self.hosts.append(self.headers["Host"])
        moved = self.path == "/moved"
        self.send_response(302 if moved else 200)
        kind = "image/png, text/html" if self.path == "/two" else "image/png; charset=x"
        self.send_header("Content-Type", kind)
        if self.path == "/packed":
            self.send_header("Content-Encoding", "gzip, gzip")
        if moved:
            self.send_header("Location", "/a.png")
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def fetched(url, addresses=("127.0.0.1",), domains=(), limit=MIB, public=lambda address: True):
    async def resolve(host, port):
        return addresses

    return asyncio.run(fetch.fetch(url, limit, domains, resolve, public))


def test_a_public_url_is_fetched_from_the_address_that_was_looked_at(site):
    assert fetched(f"http://pictures.example:{site}/a.png") == ("image/png", Site.content)
    assert Site.hosts[-1] == f"pictures.example:{site}"
    assert fetched(f"http://pictures.example:{site}/two")[0] == "application/octet-stream"


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("/moved", {}, "redirects"),
        ("/a.png", {"limit": 10}, "more than 10 bytes"),
        ("/packed", {}, "compressed"),
        ("/a.png", {"domains": ["other.example"]}, "not among"),
        ("/a.png", {"public": fetch.is_public}, "private network"),
        ("/a.png", {"addresses": ()}, "private network"),
    ],
)
def test_what_is_not_fetched(site, path, options, said):
    with pytest.raises(RefusedError) as refused:
        fetched(f"http://pictures.example:{site}{path}", **options)
    assert said in refused.value.message


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b",
        "http://",
        "http://u:p@a/b",
        "http://a:99999/",
        "http://[::1",
        "https:a",
        "http://b\u00fccher.example/a.png",
        "http://a\x00b/",
    ],
)
def test_what_is_no_url_to_fetch(url):
    with pytest.raises(RefusedError):
        fetched(url)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_public_addresses(address, public):
    assert fetch.is_public(address) is public


def prepared(count, fetch, **limits):
    items = [media.Item("image", f"http://a.example/{n}", lambda url: None) for n in range(count)]
    asyncio.run(media.prepare(items, MediaSettings(urls=True, **limits), fetch))


def test_what_is_fetched_together_has_a_limit_while_it_is_fetched():
    allowed = []

    async def fetched_or_not(url, limit):
        allowed.append(limit)
        if limit < 1000:
            raise RefusedError(413, "media_too_large", "too large")
        return "image/png", bytes(1000)

    with pytest.raises(RefusedError) as refused:
        prepared(9, fetched_or_not, image_mib=2000 / MIB, images_mib=3500 / MIB)
    assert refused.value.code == "media_too_large"
    assert allowed == [2000, 2000, 1500, 500]


def test_all_fetching_of_a_request_has_one_deadline(monkeypatch):
    monkeypatch.setattr(media, "FETCH_SECONDS", 0.01)

    async def never(url, limit):
        await asyncio.Event().wait()

    with pytest.raises(RefusedError) as refused:
        prepared(3, never)
    assert refused.value.code == "media_url_refused"


def test_one_private_address_among_public_ones_is_enough():
    with pytest.raises(RefusedError, match="private"):
        fetched("http://a.example/", addresses=("8.8.8.8", "10.0.0.1"), public=fetch.is_public)


def test_the_engine_gets_the_fetched_content_and_no_url(monkeypatch):
    async def fetch_it(url, most, domains):
        assert (url, most, domains) == ("https://a.example/x.png", 10 * MIB, ("a.example",))
        return "image/png", picture()

    monkeypatch.setattr(fetch, "fetch", fetch_it)
    made = bed(urls=True, domains=("a.example",))
    assert made.post(CHAT, asking(image("https://a.example/x.png"))).status_code == 200
    got = made.server.got["messages"][0]["content"][0]["image_url"]["url"]
    assert got == data_url(picture())
