"""What was planted in logs and records is in no bundle, however it was printed."""

import json
import re
from ipaddress import IPv6Address
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glm53ctl.bundle.allowed import CONFIG_TEXTS, FACTS, LOSS, picked
from glm53ctl.bundle.allowed import settings as shown_settings
from glm53ctl.bundle.collect import Bundle, redactor_of
from glm53ctl.bundle.logs import shown
from glm53ctl.config.masks import NOT_SHOWN
from glm53ctl.config.schema import Config
from glm53ctl.diagnose.table import SIGNATURES
from glm53ctl.redact import Redactor, without_secrets

ALPHABET = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
drawn = settings(max_examples=150, deadline=None)

CONFIG = Config.model_validate(
    {
        "nodes": [
            {"name": "spark-head", "address": "10.11.0.1"},
            {"name": "spark-worker", "address": "10.11.0.2"},
        ],
        "canary": {"prompt": "the owner's own words", "expect": "his answer"},
        "engine": {"extra_env": {"SOME": "owner-value"}, "extra_args": ["--owner-flag", "x"]},
    }
)


def words(low: int, high: int, alphabet: str = ALPHABET) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=low, max_size=high)


tokens = st.one_of(
    st.builds("hf_{}".format, words(20, 40)),
    st.builds("sk-{}".format, words(12, 48)),
    st.builds("github_pat_{}".format, words(20, 60)),
    words(64, 64, "0123456789abcdef").filter(lambda text: sum(map(str.isdigit, text)) > 8),
)
ipv4 = st.ip_addresses(v=4).filter(lambda a: str(a) not in ("0.0.0.0", "255.255.255.255")).map(str)
ipv6 = st.ip_addresses(v=6).filter(lambda a: int(a) >> 48).map(str)
macs = words(12, 12, "0123456789abcdef").map(
    lambda text: ":".join(text[i : i + 2] for i in range(0, 12, 2))
)
own = words(12, 40)
"""Secrets of this host that have no shape."""
hosts = st.sampled_from(("spark-head", "spark-worker"))
users = st.builds("u{}".format, words(5, 12, ALPHABET[:24])).map(lambda name: f"/home/{name}/x")


def escaped(text: str, how: str) -> str:
    """The same text as JSON or a URL may spell it, one character in two or all of them."""
    if how == "json":
        return "".join(f"\\u{ord(c):04x}" if i % 2 else c for i, c in enumerate(text))
    if how == "json dump":
        return json.dumps(text)[1:-1]
    if how == "url":
        return quote(text, safe="")
    if how == "url all":
        return "".join(f"%{ord(c):02X}" for c in text)
    return text


@st.composite
def printed(draw: st.DrawFn, secrets: st.SearchStrategy[str]) -> tuple[str, str]:
    """A secret, and a piece of text that has it: escaped, or wrapped, beside other words."""
    secret = draw(secrets)
    how = draw(st.sampled_from(("plain", "json", "json dump", "url", "url all", "wrap")))
    if how == "wrap":
        wraps = ("\n", "\n    ", "\\\n", "\r\n", "\\n")
        at = sorted(draw(st.sets(st.integers(1, len(secret) - 1), min_size=1, max_size=3)))
        cuts = [0, *at, len(secret)]
        parts = [secret[a:b] for a, b in pairwise(cuts)]
        written = draw(st.sampled_from(wraps)).join(parts)
    else:
        written = escaped(secret, how)
    before = draw(st.sampled_from(("", "key ", "(", '"', "'", "at ", "\n", "=")))
    after = draw(st.sampled_from(("", " and", ")", '"', "'", ",", "\nINFO next")))
    return secret, f"{before}{written}{after}"


def leaks(secret: str, text: str) -> bool:
    """Whether the secret can be read in a text, with all escapes decoded and all wraps undone."""
    decoded = re.sub(
        r"\\u00([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})", lambda m: chr(int(m[1] or m[2], 16)), text
    )
    flat = re.sub(r"\\*(\r?\n|\\r|\\n)[ \t]*", "", decoded)
    return any(secret.lower() in one.lower() for one in (text, decoded, flat))


def test_the_test_would_see_a_leak():
    for how in ("plain", "json", "json dump", "url", "url all"):
        assert leaks("sk-abc/:1", escaped("sk-abc/:1", how))
    assert leaks("hf_abc", "x hf_\\\n  abc y")


@drawn
@given(printed(tokens))
def test_tokens_of_known_shapes(case):
    secret, text = case
    assert not leaks(secret, Redactor().text(text))


@drawn
@given(printed(own))
def test_secrets_of_this_host(case):
    secret, text = case
    assert not leaks(secret, Redactor(secrets=(secret,)).text(text))


@drawn
@given(
    words(8, 40),
    st.sampled_from(
        (
            "Authorization: Bearer {}",
            "authorization: bearer {}",
            "{{'authorization': 'Bearer {}'}}",
            "x-api-key: {}",
            "--api-key {}",
            "--hf-token {}",
            "--hf-token\n{}",
            "['--password', '{}']",
            "API_KEYS={}",
            '{{"api_keys": ["{}"]}}',
            '{{"credentials": "{}"}}',
            "Invalid API key: {}",
            "Cookie: session={}",
            "nvapi-{}",
            "'api_key': ['{}']",
            "VLLM_API_KEY={}",
            'HF_TOKEN="{}"',
            '"password": "{}"',
            "?token={}&x=1",
            "Authorization%3A%20Bearer%20{}",
            "Authorization: Basic {}",
        )
    ),
)
def test_what_is_called_a_secret(secret, way):
    for redact in (Redactor().text, without_secrets):
        assert not leaks(secret, redact(way.format(secret)))


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("Namespace(api_key=['k1secret', 'k2secret'], x=1)", ("k1secret", "k2secret")),
        ('api_key=\'["k1secret","k2secret"]\'', ("k1secret", "k2secret")),
        ('"password": "correct horse battery staple"', ("correct", "horse", "battery", "staple")),
        ('{"a": "{\\"password\\": \\"correct horse\\"}"}', ("correct", "horse")),
        ('"password": "quoted\\" end"', ("quoted", "end")),
        ("api_key='my,secret;value'", ("my", "secret", "value")),
        ("api_key=b'my secret'", ("my", "secret")),
        ("API_KEY=p@ss)word1", ("p@ss", "word1")),
        ("--api-key p@ss)word1 --x", ("p@ss", "word1")),
        ("Authorization: Token deadbeefcafe1234", ("deadbeefcafe1234",)),
        ("GLM53_BENCH_KEY=zzzsecret", ("zzzsecret",)),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", ("wJalr", "K7MDENG")),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", ("wJalr", "K7MDENG")),
        ("passphrase: hunter2", ("hunter2",)),
        ("pass=hunter2", ("hunter2",)),
        ("pwd=hunter2", ("hunter2",)),
        ("SMTP_PASS=hunter2 db_pwd: hunter2", ("hunter2",)),
        ('{"pass": "hunter2"}', ("hunter2",)),
        ("http://user:hunter2@10.0.0.1:8888/v1", ("hunter2",)),
        ("redis://:p@hunter2@host/0", ("hunter2",)),
    ],
)
def test_nothing_of_a_secret_is_left(line, secrets):
    for before, after in (("", ""), ("INFO x ", " and more"), ("x\n", "\ny")):
        for redact in (Redactor().text, without_secrets):
            told = redact(f"{before}{line}{after}")
            assert not any(secret in told.replace(NOT_SHOWN, "") for secret in secrets), told


@pytest.mark.parametrize(
    "line",
    [
        "pass 1/3",
        "pass: 1/3, pass=2",
        "first pass: compiling the graph",
        "FusionPass: completed",
        "compass=north bypass: true",
        "PWD=/var/lib/glm53 OLDPWD=/root",
        "max_tokens=400 tokenizer=/opt/x cache_key=abc key: value",
        "--max-num-batched-tokens 1024 --tokenizer /opt/x --hf-token",
        "1200 tokens 3 cookies, the API key is missing",
        "http://127.0.0.1:8888/v1 and tcp://127.0.0.1:29500, mail to a@b",
        "Namespace(api_key=None, token='(not shown)')",
        "/opt/glm53/engine/lib/vllm/pass_manager.py:12",
    ],
)
def test_what_is_no_secret_stays(line):
    assert without_secrets(line) == line


@drawn
@given(
    st.dictionaries(
        st.sampled_from(("password", "text", "api_key")),
        st.text(st.sampled_from("ab1 ='\"\\\n,;)([:")) | st.sampled_from(("api_key='ab c", "pwd=")),
    )
)
def test_a_record_can_be_read_without_its_secrets(record):
    assert json.loads(without_secrets(json.dumps(record))).keys() == record.keys()
    nested = json.dumps({"text": json.dumps(record)})
    assert json.loads(without_secrets(nested)).keys() == {"text"}


@drawn
@given(printed(ipv4))
def test_ipv4_addresses(case):
    secret, text = case
    assert not leaks(secret, Redactor().text(text)) or secret == "127.0.0.1"


@drawn
@given(printed(ipv6))
def test_ipv6_addresses(case):
    secret, text = case
    assert not leaks(secret, Redactor().text(text))


@drawn
@given(
    ipv6, st.sampled_from(("np0:", "br-lan:", "peer:", "")), st.sampled_from((":51234", ":80", ""))
)
def test_ipv6_addresses_between_a_device_and_a_port(address, device, port):
    """As NCCL names a device's address, and as uvicorn names a client's, without brackets."""
    text = (
        f"Using {device}{IPv6Address(address).exploded}{port}<0>, or {device}{address}{port} - it"
    )
    shown = Redactor().text(text)
    assert not leaks(address, shown)
    assert not leaks(IPv6Address(address).exploded, shown)


@drawn
@given(printed(macs))
def test_mac_addresses(case):
    secret, text = case
    assert not leaks(secret, Redactor().text(text))


@drawn
@given(words(12, 12, "0123456789abcdef"))
def test_a_mac_address_in_other_forms_is_the_same(digits):
    pairs = [digits[i : i + 2] for i in range(0, 12, 2)]
    fours = [digits[i : i + 4] for i in range(0, 12, 4)]
    text = f"enx{digits} has {':'.join(pairs)} or {'-'.join(pairs)} or {'.'.join(fours)}"
    assert Redactor().text(text) == "enx(mac 1) has (mac 1) or (mac 1) or (mac 1)"


def test_domains_of_countries_are_names_and_those_of_files_are_none():
    text = "nas.smith.de x.example.io vllm.v1.engine.core torch.nn engine.py libnccl.so.2 run.sh"
    kept = "vllm.v1.engine.core torch.nn engine.py libnccl.so.2 run.sh"
    assert Redactor().text(text) == f"(host 1) (host 2) {kept}"


@drawn
@given(printed(hosts))
def test_names_of_hosts(case):
    secret, text = case
    assert not leaks(secret, redactor_of(CONFIG, {}).text(text))


@drawn
@given(printed(users))
def test_names_of_users_in_paths(case):
    secret, text = case
    assert not leaks(secret, Redactor().text(text))


# --- prompts -------------------------------------------------------------------------------------

prompts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=12
).filter(lambda text: not any(signature.main.search(text) for signature in SIGNATURES))
"""Not what `explain` knows, which is shown whoever said it."""
REQUESTS = (
    "INFO 11-30 00:45:31 [logger.py:41] Received request chatcmpl-1: prompt: {!r}, params: x",
    "(APIServer pid=7) INFO 11-30 00:45:31 [logger.py:41] Received request c: prompt: '{}', p",
    'ERROR 11-30 00:45:31 [serving.py:9] bad body {{"messages": [{{"content": "{}"}}]}}',
    'ERROR 11-30 00:45:31 [serving.py:9] bad body {{"\\u0070rompt": "{}"}}',
    "2026-11-30T00:45:31+0000 glm53ctl[12]: input_value='{}', input_type=str",
    "{}",
    "    {}",
)


@drawn
@given(
    prompts.map(str.strip).filter(lambda text: len(text) >= 12),
    st.sampled_from(REQUESTS),
    st.sampled_from(("\n", "\nINFORMATION ", "\n  File me\n")),
)
def test_prompts_in_request_logs(prompt, way, wrap):
    log = way.format(f"{prompt}{wrap}{prompt}") + "\nINFO 11-30 00:45:32 [x.py:1] going on"
    told = "\n".join(shown(log.split("\n")))
    assert prompt not in told
    assert told.endswith("going on")


def test_a_query_is_not_shown():
    line = 'INFO:     10.0.0.9:51234 - "GET /v1/models?ask=my+secret+plan HTTP/1.1" 200'
    (told,) = shown([line])
    assert "plan" not in told
    assert "/v1/models" in told


def test_what_helps_is_shown():
    log = [
        "(EngineCore pid=12) ERROR 11-30 00:45:31 [core.py:1] failed",
        "Traceback (most recent call last):",
        '  File "/opt/glm53/engine/lib/vllm/x.py", line 3, in load',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "spark-head:12:34 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE",
        "something that anybody may have printed",
    ]
    assert list(shown(log)) == [*log[:-1], "(1 lines not shown)"]


# --- ends that match ------------------------------------------------------------------------------


def test_the_same_thing_has_one_name_in_all_texts():
    redactor = Redactor()
    one = redactor.text("10.0.0.1 -> 10.0.0.2 (::ffff:10.0.0.1)")
    assert one == "(ip 1) -> (ip 2) ((ip 1))"
    assert redactor.text("back to 10.0.0.2") == "back to (ip 2)"
    assert redactor.text("host 127.0.0.1 and version 0.33.0, 00:45:31") == (
        "host 127.0.0.1 and version 0.33.0, 00:45:31"
    )


# --- structured data ----------------------------------------------------------------------------


@drawn
@given(words(12, 20), st.recursive(st.none(), lambda inner: st.dictionaries(words(1, 8), inner)))
def test_a_field_that_nobody_listed_is_not_there(secret, tree):
    value = {"code": "X", "evidence": [secret], "new_field": {"a": secret, "b": tree}, secret: 1}
    told = picked(value, LOSS)
    assert secret not in json.dumps(told)
    assert told == {"code": "X"}


def test_command_lines_and_texts_of_units_are_not_listed():
    assert {"texts", "units", "config"}.isdisjoint(FACTS)
    assert "command" not in FACTS["processes"]


def test_free_texts_of_the_configuration_are_shown_only_where_listed():
    told = shown_settings(CONFIG)
    assert told["canary.prompt"] == NOT_SHOWN
    assert told["engine.extra_env"] == NOT_SHOWN
    assert told["engine.extra_args"] == NOT_SHOWN
    assert told["api.key_file"] in (None, NOT_SHOWN)
    assert told["serve.max_model_len"] == CONFIG.serve.max_model_len
    assert told["kv.dtype"] == CONFIG.kv.dtype
    assert told.keys() >= CONFIG_TEXTS
    text = Bundle(redactor_of(CONFIG, {}))
    text.add_json("config.json", told)
    said = text.members["config.json"]
    for planted in ("owner", "10.11.0", "spark-head", "his answer"):
        assert planted not in said
    assert json.loads(said)["nodes"][0]["name"] == "(node 0)"


@pytest.mark.parametrize("value", ["x", ["x"], 1])
def test_a_value_where_fields_were_expected_is_not_shown(value):
    assert "x" not in json.dumps(picked({"cause": value}, LOSS))
