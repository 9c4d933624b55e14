"""What a client of the pair sees and sends; the server is a fake."""

import socket
import threading

import pytest
from fake_openai import FakeServer, event, stream

from glm53ctl.api import Piece, Question, stream_answer
from glm53ctl.errors import EXIT_BAD_INPUT, EXIT_NOT_READY, UserError

QUESTION = Question("Who are you?", 32)


def ask(server: FakeServer, question: Question = QUESTION, **headers: str) -> list[Piece]:
    return list(stream_answer(server.url, "glm", headers, question))


def refusal(server: FakeServer, question: Question = QUESTION, **headers: str) -> UserError:
    with pytest.raises(UserError) as caught:
        ask(server, question, **headers)
    return caught.value


# --- the answer ----------------------------------------------------------------------------------


def test_pieces_come_in_order_and_thinking_is_told_from_the_answer(server):
    server.body = [
        stream(
            event(role="assistant", content=""),
            event(reasoning="Let me "),
            event(reasoning_content="see."),
            event(content="I am "),
            event(content="a fake.\n\tReally."),
        )
    ]
    assert ask(server) == [
        Piece("Let me ", thinking=True),
        Piece("see.", thinking=True),
        Piece("I am ", thinking=False),
        Piece("a fake.\n\tReally.", thinking=False),
    ]


def test_a_piece_is_there_before_the_answer_ends(server):
    server.body = [stream(event(content="first"), end="")]
    server.promised = 1000
    pieces = stream_answer(server.url, "glm", {}, QUESTION)
    assert next(pieces) == Piece("first", thinking=False)
    pieces.close()


def test_events_may_be_cut_anywhere_on_the_wire(server):
    whole = stream(event(content="grün"), event(content=" und blau"))
    server.body = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    assert "".join(piece.text for piece in ask(server)) == "grün und blau"


def test_comments_usage_and_empty_deltas_are_no_pieces(server):
    server.body = [
        stream(
            ": ping\n\n",
            {"choices": [], "usage": {"total_tokens": 3}},
            {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]},
            {"choices": [{"index": 0, "delta": {"content": None}}]},
            "data:" + '{"choices": [{"delta": {"content": "x"}}]}\n\n',
        )
    ]
    assert ask(server) == [Piece("x", thinking=False)]


# --- the question --------------------------------------------------------------------------------


def test_the_question_names_model_length_and_thinking(server):
    ask(server, Question("Why?", 7, temperature=0.0, think=False))
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [
        {
            "model": "glm",
            "messages": [{"role": "user", "content": "Why?"}],
            "max_tokens": 7,
            "stream": True,
            "temperature": 0.0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_a_temperature_that_was_not_named_is_left_to_the_server(server):
    ask(server)
    assert "temperature" not in server.bodies[0]
    assert server.bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}


def test_the_key_is_sent(server):
    ask(server, Authorization="Bearer opensesame")
    assert server.headers[0]["authorization"] == "Bearer opensesame"


def test_without_a_key_none_is_sent(server):
    ask(server)
    assert "authorization" not in server.headers[0]


def test_proxies_of_the_environment_are_ignored(server, closed_port, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.body = [stream(event(content="direct"))]
    assert ask(server) == [Piece("direct", thinking=False)]


# --- refusals ------------------------------------------------------------------------------------


def test_a_refusal_carries_the_server_s_own_sentence(server):
    server.status = 400
    server.body = [b'{"error": {"message": "max_tokens is too large: 9", "code": 400}}']
    error = refusal(server)
    assert (error.code, error.exit_code) == ("API_REFUSED", EXIT_BAD_INPUT)
    assert str(error) == "API_REFUSED: the server answers 400: max_tokens is too large: 9"


@pytest.mark.parametrize("body", [b"Not Found", b'{"detail": "Not Found"}', b"[1]", b"\xff\xfe"])
def test_a_refusal_in_another_form_is_shown_as_it_is(server, body):
    server.status, server.body = 404, [body]
    error = refusal(server)
    assert error.code == "API_REFUSED"
    assert "404" in error.message


def test_a_refusal_is_one_line_whatever_the_server_says(server):
    server.status, server.body = 422, [b'{"error": {"message": "first\\n\\n  second"}}']
    assert refusal(server).message == "the server answers 422: first second"


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_fails_is_not_the_caller_s_mistake(server, status):
    server.status, server.body = status, [b'{"error": {"message": "EngineCore is dead"}}']
    error = refusal(server)
    assert error.exit_code == EXIT_NOT_READY
    assert "EngineCore is dead" in error.message


# --- answers that break --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_", "sentence"),
    [
        ({"error": {"message": "the engine died", "code": 500}}, "the engine died"),
        ({"error": {"type": "x"}}, "{'type': 'x'}"),
        ({"error": "in one word"}, "in one word"),
    ],
)
def test_an_error_in_the_stream_ends_it_after_what_was_said(server, event_, sentence):
    server.body = [stream(event(content="so far"), event_)]
    pieces = stream_answer(server.url, "glm", {}, QUESTION)
    assert next(pieces).text == "so far"
    with pytest.raises(UserError) as caught:
        next(pieces)
    assert (caught.value.code, caught.value.exit_code) == ("API_ERROR", EXIT_NOT_READY)
    assert caught.value.message == sentence


@pytest.mark.parametrize("line", ["data: {half\n\n", "data: 5\n\n", 'data: "x"\n\n'])
def test_an_event_that_is_none_is_an_error_and_no_traceback(server, line):
    server.body = [stream(event(content="so far"), line)]
    assert refusal(server).code == "API_ERROR"


def test_an_answer_without_its_end_is_not_passed_off_as_whole(server):
    server.body = [stream(event(content="so far"), end="")]
    error = refusal(server)
    assert (error.code, error.exit_code) == ("API_ERROR", EXIT_NOT_READY)


def test_some_other_server_on_the_port_is_an_error(server):
    server.body = [b"<html><h1>It works!</h1></html>"]
    assert refusal(server).code == "API_ERROR"


def test_a_connection_that_breaks_is_the_pair_not_ready(server):
    server.body, server.promised = [stream(event(content="so far"), end="")], 1000
    error = refusal(server)
    assert (error.code, error.exit_code) == ("API_UNREACHABLE", EXIT_NOT_READY)


def test_nobody_listening_is_the_pair_not_ready(closed_port):
    with pytest.raises(UserError) as caught:
        list(stream_answer(f"http://127.0.0.1:{closed_port}", "glm", {}, QUESTION))
    assert (caught.value.code, caught.value.exit_code) == ("API_UNREACHABLE", EXIT_NOT_READY)
    assert f"127.0.0.1:{closed_port}" in caught.value.message
    assert caught.value.fix


def test_somebody_who_speaks_no_http_is_the_pair_not_ready():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = stream_answer(url, "glm", {}, QUESTION)

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 mail ready\r\n")
                connection.recv(1 << 16)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(UserError) as caught:
            next(client)
        thread.join()
    assert caught.value.exit_code == EXIT_NOT_READY


@pytest.mark.parametrize("host", ["[::1", "a\x7fb"])
def test_an_address_that_is_none_is_no_traceback(host):
    with pytest.raises(UserError):
        list(stream_answer(f"http://{host}:8888", "glm", {}, QUESTION))


def test_a_question_that_is_no_text_is_refused_before_it_is_sent(server):
    error = refusal(server, Question("\udcff", 1))
    assert error.exit_code == EXIT_BAD_INPUT
    assert "question" in error.message
    assert server.bodies == []


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(server):
    error = refusal(server, Authorization="Bearer schlüssel")
    assert "key" in error.message
    assert "schl" not in str(error)
