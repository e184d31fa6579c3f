"""`/openapi.json` describes the app as it is, and `/docs` shows it with nothing from outside."""

import json
import re
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.routing import Route, WebSocketRoute

from mosslive.server.api_docs import FOLDER
from mosslive.server.app import make_app
from mosslive.server.openapi import document
from mosslive.server.server_state import ServerState
from mosslive.server.web_page import POLICY
from tests.server.browser import Chrome
from tests.server.rig import Parts, run, serving, settings, wav
from tests.server.test_http import client


async def _never() -> Any:
    raise AssertionError("nothing is loaded")


def test_every_route_is_described() -> None:
    """Every route of the app is in the document and vice versa, with its methods."""
    app = make_app(ServerState(settings(), _never))
    routes: set[tuple[str, str]] = set()
    for route in app.routes:
        if isinstance(route, WebSocketRoute):
            routes.add((route.path, "get"))
        elif isinstance(route, Route) and route.path != "/v1/{rest:path}":  # refuses the others
            path = re.sub(r":\w+}", "}", route.path)
            routes |= {(path, method.lower()) for method in (route.methods or set()) - {"HEAD"}}
    described = {
        (path, method)
        for path, operations in document(False)["paths"].items()
        for method in operations
    }
    assert described == routes


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_document_is_valid(needs_key: bool) -> None:
    """It is OpenAPI 3.1, each operation has an id of its own, and only paths that need a key say
    so."""
    made = document(needs_key)
    validate(made)
    operations = [
        (path, one) for path, methods in made["paths"].items() for one in methods.values()
    ]
    assert len({one["operationId"] for _, one in operations}) == len(operations)
    for path, one in operations:
        assert bool(one["security"]) == (needs_key and path.startswith("/v1/"))


def check(made: dict[str, Any], path: str, method: str, answer: httpx.Response) -> None:
    """The answer has a status, a media type and JSON that the document knows."""
    answers = made["paths"][path][method]["responses"]
    known = answers.get(str(answer.status_code)) or made["components"]["responses"]["Error"]
    kind = answer.headers.get("content-type", "").partition(";")[0]
    assert kind in known.get("content", {"": {}}), (path, answer.status_code, kind)
    if kind == "application/json":
        schema = known["content"][kind]["schema"] | {"components": made["components"]}
        Draft202012Validator(schema).validate(answer.json())


def test_answers_are_as_described(parts: Parts) -> None:
    """What a running server answers, right and wrong, validates against the document that it
    serves; the examples of the document are accepted."""

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            answer = await http.get("/openapi.json")
            made = answer.json()
            assert made == json.loads(json.dumps(document(False)))
            for path, operations in made["paths"].items():
                for method, operation in operations.items():
                    url = re.sub(r"{\w+}", "some", path)
                    answer = await http.request(method, url)  # mostly without what is needed
                    check(made, path, method, answer)
                    body = operation.get("requestBody", {}).get("content", {})
                    name = body.get("application/json", {}).get("schema", {}).get("$ref", "")
                    schema = made["components"]["schemas"].get(name.split("/")[-1], {})
                    for example in schema.get("examples", []):
                        Draft202012Validator(schema | {"components": made["components"]}).validate(
                            example
                        )
                        answer = await http.request(method, url, json=example)
                        assert answer.status_code == 200, answer.text
                        check(made, path, method, answer)
            path = "/v1/audio/transcriptions"
            for form in ({}, {"response_format": "verbose_json"}, {"stream": "true"}):
                answer = await http.post(path, files={"file": ("x", wav())}, data=form)
                assert answer.status_code == 200
                check(made, path, "post", answer)

    run(test())


def test_the_page_needs_nothing_else(parts: Parts) -> None:
    """The page and its files come from this server under the strict policy, and name no address."""
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert not re.search(r"https?://|//\w+\.\w|innerHTML|\beval\b|style=|onclick", text), file

    async def test() -> None:
        async with serving(parts) as served, client(served) as http:
            page = await http.get("/docs")
            assert page.status_code == 200
            files = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
            assert len(files) == 2
            for answer in (page, *[await http.get(f"/{name}") for name in files]):
                assert answer.status_code == 200
                assert answer.headers["content-security-policy"] == POLICY
            slash = await http.get("/docs/")
            assert (slash.status_code, slash.headers["location"]) == (307, "../docs")
            for name in ("docs/x", "docs/../app.py", "docs/%2e%2e/app.py"):
                assert (await http.get(f"/{name}")).status_code == 404

    run(test())


@pytest.mark.clients
def test_the_page_in_a_browser(parts: Parts, chrome: Chrome) -> None:
    """In Chromium the page lists every endpoint, sends requests, shows errors in words and plays
    sound, without an error of the policy."""

    async def test() -> None:
        async with serving(parts) as served, chrome.page() as page:
            wrong: list[str] = []
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else 0)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            await page.goto(f"{served.http}/docs")
            await page.wait_for_selector("details.endpoint")
            count = await page.locator("details.endpoint").count()
            assert count == sum(len(one) for one in document(False)["paths"].values())
            for name, expected in (
                ("get_version", "Status 200"),
                ("post_v1_chat_completions", "Status 200"),
                ("delete_v1_voices_name", "Status 404"),
            ):
                place = page.locator(f"#{name}")
                await place.locator("summary").first.click()
                if name.endswith("_name"):
                    await place.locator("input").fill("nobody")
                    wrong.clear()
                await place.locator("button").click()
                await place.get_by_text(expected).wait_for()
                await place.locator("pre").wait_for()
            assert not [text for text in wrong if "404" not in text]
            place = page.locator("#post_v1_audio_speech")
            await place.locator("summary").first.click()
            await place.locator("button").click()
            await place.locator("audio").wait_for()
            length = "audio => new Promise(done => audio.duration ? done(audio.duration) : "
            length += "audio.addEventListener('durationchange', () => done(audio.duration)))"
            assert await place.locator("audio").evaluate(length) > 0.5
            assert not [text for text in wrong if "404" not in text]

    chrome.run(test())
