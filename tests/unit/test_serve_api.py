"""LibreTranslate's interface: what a client sends, what it gets back, and what is refused."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from test_serve_batcher import WordByWord

from lockstep.errors import LockstepError
from lockstep.serve.api_keys import ApiKeys
from lockstep.serve.app import make_app
from lockstep.serve.limits import Limits
from lockstep.serve.page_api import PAGES
from lockstep.serve.served_models import ServedModels

LIMITS = Limits(characters=200, texts=3, alternatives=2)
ENGLISH = "A man is riding a bicycle through the park."
GERMAN = "Ein Mann fährt mit dem Fahrrad durch den Park."
JSON = {"Content-Type": "application/json"}


class Client:
    """Asks an application directly, without a network."""

    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://server") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


@contextmanager
def serving(*directions: str, keys: tuple[str, ...] = (), **options: Any) -> Iterator[Client]:
    models = ServedModels(LIMITS.queue)
    for direction in directions:
        source, target = direction.split("-")
        models.add(WordByWord(source, target), direction)
    yield Client(make_app(models, LIMITS, ApiKeys(list(keys)), **options))
    models.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving("en-de", "de-en") as client:
        yield client


def translate(client: Client, q: object, **fields: object) -> Any:
    response = client.post("/translate", json={"q": q, "source": "en", "target": "de"} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def refuse(client: Client, status: int, path: str = "/translate", **options: Any) -> str:
    """Posts a request that must be refused, and returns the sentence."""
    response = client.post(path, **options)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


def test_a_text_gives_a_text_and_a_list_gives_a_list(client: Client) -> None:
    assert translate(client, "a dog") == {"translatedText": "A DOG"}
    assert translate(client, ["a dog", "", "b"]) == {"translatedText": ["A DOG", "", "B"]}
    assert translate(client, []) == {"translatedText": []}
    assert translate(client, " ") == {"translatedText": " "}


@pytest.mark.parametrize("kind", ["data", "files"])
def test_forms_of_both_encodings_are_read(client: Client, kind: str) -> None:
    fields = {"q": "ein größerer Hund & +1", "source": "de", "target": "en", "alternatives": "1", "format": "text"}
    options: dict[str, Any] = {
        kind: fields if kind == "data" else {name: (None, text) for name, text in fields.items()}
    }
    response = client.post("/translate", **options)
    assert response.json() == {
        "translatedText": "EIN GRÖSSERER HUND & +1",
        "alternatives": ["EIN GRÖSSERER HUND & +1!"],
    }


def test_a_repeated_field_of_a_form_is_a_list(client: Client) -> None:
    response = client.post("/translate", data={"q": ["a", "b"], "source": "en", "target": "de"})
    assert response.json() == {"translatedText": ["A", "B"]}


def test_alternatives_are_listed_when_they_are_asked_for(client: Client) -> None:
    assert translate(client, "a", alternatives=2)["alternatives"] == ["A!", "A!!"]
    assert translate(client, ["a", "One. Two."], alternatives=1)["alternatives"] == [["A!"], ["ONE.! TWO.!"]]
    assert translate(client, "***", alternatives=1) == {"translatedText": "***", "alternatives": []}
    assert "alternatives" not in translate(client, "a", alternatives=0)


def test_html_is_translated_between_its_tags(client: Client) -> None:
    html = '<p>a <a href="/x">dog</a> &amp; a cat</p>\n<code>x</code>'
    expected = '<p>A <a href="/x">DOG</a> &amp; A CAT</p>\n<code>x</code>'
    assert translate(client, [html], format="html") == {"translatedText": [expected]}


def test_fields_may_be_null_as_mastodon_sends_them(client: Client) -> None:
    assert translate(client, ["a"], api_key=None, format=None, alternatives=None) == {"translatedText": ["A"]}


def test_the_source_language_is_guessed(client: Client) -> None:
    answer = translate(client, ENGLISH, source="auto")
    assert answer["translatedText"] == ENGLISH.upper()
    assert answer["detectedLanguage"]["language"] == "en"
    assert 90 < answer["detectedLanguage"]["confidence"] <= 100


def test_each_text_of_a_list_has_its_own_language(client: Client) -> None:
    answer = translate(client, [ENGLISH, GERMAN, "dog"], source="auto")
    assert answer["translatedText"][:2] == [ENGLISH.upper(), GERMAN]
    assert [guess["language"] for guess in answer["detectedLanguage"][:2]] == ["en", "de"]


def test_a_text_in_the_target_language_stays_as_it_is(client: Client) -> None:
    assert translate(client, "a  dog", source="de") == {"translatedText": "a  dog"}


@pytest.mark.parametrize("code", ["EN", "en-US", "en_GB"])
def test_variants_of_a_language_code_are_understood(client: Client, code: str) -> None:
    assert translate(client, "a", source=code) == {"translatedText": "A"}


def test_languages_are_detected(client: Client) -> None:
    first, second = client.post("/detect", data={"q": GERMAN}).json()
    assert (first["language"], second["language"]) == ("de", "en")
    assert first["confidence"] > 90 > second["confidence"]


def test_every_language_lists_its_targets() -> None:
    with serving("en-de", "en-fr") as client:
        assert client.get("/languages").json() == [
            {"code": "en", "name": "English", "targets": ["fr", "de"]},
            {"code": "fr", "name": "French", "targets": []},
            {"code": "de", "name": "German", "targets": []},
        ]


def test_health_and_settings_are_told(client: Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 200
    assert settings["keyRequired"] is False
    assert settings["language"]["source"] == {"code": "en", "name": "English"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"source": "en", "target": "de"}, "The field q is missing."),
        ({"q": "a", "source": "en"}, "The field target is missing."),
        ({"q": 1, "source": "en", "target": "de"}, "The field q is wrong: input should be a valid string."),
        ({"q": ["a", None], "source": "en", "target": "de"}, "The field q is wrong"),
        ({"q": "\ud800", "source": "en", "target": "de"}, "The field q is wrong"),
        ({"q": "a", "source": "\ud800", "target": "de"}, "The field source is wrong"),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, "The field format is wrong"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": -1}, "The field alternatives is wrong"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": "1"}, "The field alternatives is wrong"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 3}, "At most 2 alternatives are allowed."),
        ({"q": "a", "source": "fr", "target": "de"}, "This server does not know the language 'fr': see /languages."),
        ({"q": "a", "source": "en", "target": "auto"}, "This server does not know the language 'auto'"),
        ({"q": "a" * 201, "source": "en", "target": "de"}, "The request has 201 characters; at most 200 are allowed."),
        ({"q": ["a"] * 4, "source": "en", "target": "de"}, "The request has 4 texts; at most 3 are allowed."),
        ([], "The body must be a JSON object."),
    ],
)
def test_a_wrong_field_is_named(client: Client, fields: object, sentence: str) -> None:
    assert refuse(client, 400, content=json.dumps(fields), headers=JSON).startswith(sentence)


def test_a_direction_that_is_not_served_is_refused() -> None:
    with serving("en-de") as client:
        sentence = "This server does not translate from de to en: see /languages."
        assert refuse(client, 400, json={"q": "a", "source": "de", "target": "en"}) == sentence
        sentence = "This server does not translate to en: see /languages."
        assert refuse(client, 400, json={"q": "a", "source": "auto", "target": "en"}) == sentence


@pytest.mark.parametrize(
    ("body", "media_type", "status", "sentence"),
    [
        (b"{", "application/json", 400, "The body is not JSON."),
        (b"[" * 30_000, "application/json", 400, "The body is not JSON."),
        (b'{"q": "\xff"}', "application/json", 400, "The request is not UTF-8."),
        (b"q=%FF&source=en&target=de", "application/x-www-form-urlencoded", 400, "The request is not UTF-8."),
        (b"q=\xff&source=en&target=de", "application/x-www-form-urlencoded", 400, "The request is not UTF-8."),
        (b"a&" * 2000, "application/x-www-form-urlencoded", 400, "The form has more than 1000 fields."),
        (b"--x", "multipart/form-data", 400, "The body is not a form."),
        (b"nonsense", "multipart/form-data; boundary=x", 400, "The body is not a form."),
        (b"a", "text/plain", 415, "Send JSON or a form."),
    ],
)
def test_a_malformed_body_is_refused(client: Client, body: bytes, media_type: str, status: int, sentence: str) -> None:
    assert refuse(client, status, content=body, headers={"Content-Type": media_type}) == sentence


def test_a_file_in_a_form_is_refused(client: Client) -> None:
    files = {"q": ("a.txt", b"text"), "source": (None, "en"), "target": (None, "de")}
    assert refuse(client, 400, files=files) == "The form has a file. Send text as a field."


def test_a_body_over_the_limit_is_refused_before_it_is_parsed(client: Client) -> None:
    assert LIMITS.body_bytes == 67_936
    assert refuse(client, 413, content=b"{" * 67_937, headers=JSON) == "The body has more than 67,936 bytes."


def test_a_body_of_unknown_length_is_refused_when_it_is_over_the_limit(client: Client) -> None:
    async def make_chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"{" * 1000

    assert refuse(client, 413, content=make_chunks(), headers=JSON) == "The body has more than 67,936 bytes."


def test_unknown_paths_and_methods_are_answered_in_json(client: Client) -> None:
    assert (client.get("/../etc/passwd").status_code, client.get("/nowhere").json()) == (404, {"error": "Not Found."})
    response = client.get("/translate")
    assert (response.status_code, response.json()) == (405, {"error": "Method Not Allowed."})
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/translate", "/detect", "/page/translate"])
def test_a_key_is_required_where_there_are_keys(path: str) -> None:
    with serving("en-de", keys=("first", "sécond")) as client:
        fields = {"q": "a", "text": "a", "source": "en", "target": "de"}
        assert refuse(client, 403, path, json=fields).startswith("This server needs an API key")
        for wrong in ("", "third", "firs", "first "):
            assert "third" not in refuse(client, 403, path, json=fields | {"api_key": wrong})
        assert refuse(client, 403, path, json=fields, headers={"Authorization": "Basic first"})
        assert client.post(path, json=fields | {"api_key": "sécond"}).status_code == 200
        assert client.post(path, json=fields, headers={"Authorization": "bearer first"}).status_code == 200
        assert client.get("/languages").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_a_request_that_takes_too_long_ends() -> None:
    models, translator = ServedModels(10), WordByWord()
    models.add(translator, "en-de")
    translator.go.clear()
    client = Client(make_app(models, Limits(seconds=0.05), ApiKeys([])))
    sentence = refuse(client, 504, json={"q": "a", "source": "en", "target": "de"})
    translator.go.set()
    models.close()
    assert sentence == "The translation was not done within 0.05 seconds."


def test_a_full_queue_tells_clients_to_retry() -> None:
    models, translator = ServedModels(most_waiting=1), WordByWord()
    models.add(translator, "en-de")
    translator.go.clear()
    client = Client(make_app(models, LIMITS, ApiKeys([])))
    fields = {"q": "a", "source": "en", "target": "de"}
    with ThreadPoolExecutor() as threads:
        first = threads.submit(client.post, "/translate", json=fields)
        translator.begun.wait()
        second = threads.submit(client.post, "/translate", json=fields)
        while not models.batchers["en", "de"].waiting:
            time.sleep(0.001)
        refused = client.post("/translate", json=fields)
        translator.go.set()
    models.close()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert [answer.result().status_code for answer in (first, second)] == [200, 200]


def test_a_failed_translation_is_an_error_without_details(client: Client) -> None:
    assert refuse(client, 500, json={"q": "fail", "source": "en", "target": "de"}) == "The server failed to answer."
    assert translate(client, "a") == {"translatedText": "A"}


def test_pages_of_other_sites_are_allowed_by_name() -> None:
    def ask(client: Client, origin: str) -> str | None:
        header = client.get("/languages", headers={"Origin": origin}).headers.get("access-control-allow-origin")
        return None if header is None else str(header)

    with serving("en-de") as client:
        assert ask(client, "https://a.example") is None
    with serving("en-de", origins=["https://a.example"]) as client:
        assert ask(client, "https://a.example") == "https://a.example"
        assert ask(client, "https://b.example") is None
        wish = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        assert client.request("OPTIONS", "/translate", headers=wish).status_code == 200
    with serving("en-de", origins=["*"]) as client:
        assert ask(client, "https://b.example") == "*"


def test_the_log_has_no_text_and_no_key() -> None:
    lines: list[str] = []
    with serving("en-de", keys=("secret",), log=lines.append) as client:
        client.post("/translate?q=hidden", json={"q": "hidden", "source": "en", "target": "de", "api_key": "secret"})
        client.get("/nowhere?api_key=secret")
    assert [line.rsplit(" ", 2)[0] for line in lines] == ["POST /translate 200", "GET /nowhere 404"]


def test_a_direction_is_served_once() -> None:
    models = ServedModels(10)
    models.add(WordByWord(), "first")
    with pytest.raises(LockstepError, match="first and second both translate en-de"):
        models.add(WordByWord(), "second")
    with pytest.raises(LockstepError, match="third does not say its languages"):
        models.add(WordByWord("", ""), "third")
    models.close()


def test_the_page_gets_sentences_with_alternatives_and_aligned_words(client: Client) -> None:
    fields = {"text": " One dog. Two!\n", "source": "en", "target": "de", "alternatives": 1}
    answer = client.post("/page/translate", json=fields).json()
    first, second = answer["sentences"]
    assert "".join(one["before"] + one["source"] for one in answer["sentences"]) + answer["after"] == fields["text"]
    assert (first["translation"], second["translation"]) == ("ONE DOG.", "TWO!")
    assert first["score"] == 0.0
    assert first["alternatives"] == [{"text": "ONE DOG.!", "score": -1.0}]
    words = {"source": ["One", "dog."], "target": ["ONE", "DOG."], "links": [[0, 0, 1.0], [1, 1, 1.0]]}
    assert first["words"] == words
    assert (answer["words"], answer["pieces"]) == (3, 5)


def test_the_page_knows_directions_and_limits(client: Client) -> None:
    settings = client.get("/page/settings").json()
    assert [one["source"]["code"] for one in settings["directions"]] == ["en", "de"]
    assert settings["directions"][0]["has_alignment"] is True
    assert (settings["characters"], settings["alternatives"], settings["is_key_required"]) == (200, 2, False)


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_from_outside(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert re.findall(r"""(?:https?:|["'(])//[^"'\s]*""", response.text.replace("http://www.w3.org/2000/svg", "")) == []
