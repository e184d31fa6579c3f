"""`/openapi.json`, and `/docs`: a page to read and try the HTTP endpoints.

The page is plain files in `docs_page/`, with the headers of the web page: nothing comes from
another host. Both are public, as the web page is. Runs on the event loop; Starlette reads the files
on a worker thread. Does not know the endpoints (`openapi/`).
"""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from mosslive.server.openapi import document
from mosslive.server.requests import state_of
from mosslive.server.web_page import HEADERS, WebPage

FOLDER = Path(__file__).parent / "docs_page"


async def openapi(request: Request) -> Response:
    server_state = state_of(request)
    made = document(server_state.keys.needed, server_state.settings.metrics_key)
    return JSONResponse(made)


async def docs(request: Request) -> Response:
    return FileResponse(FOLDER / "index.html", headers=HEADERS)


class DocsFiles(WebPage):
    """The files that the page loads."""

    def __init__(self) -> None:
        StaticFiles.__init__(self, directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path in ("", "."):  # the page's own links are relative to /docs
            return RedirectResponse("../docs", headers=HEADERS)
        return await super().get_response(path, scope)
