"""Puts the application together: operations, page, errors and limits."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lockstep import __version__
from lockstep.serve.api_error import ApiError
from lockstep.serve.api_keys import ApiKeys
from lockstep.serve.batcher import QueueFull
from lockstep.serve.limits import Limits
from lockstep.serve.page_api import PageApi
from lockstep.serve.request_guard import AccessLog, RequestGuard
from lockstep.serve.served_models import ServedModels
from lockstep.serve.translation_api import TranslationApi

RETRY_SECONDS = "1"


def make_app(
    models: ServedModels,
    limits: Limits,
    keys: ApiKeys,
    *,
    origins: Sequence[str] = (),
    log: Callable[[str], None] | None = None,
) -> FastAPI:
    """Returns the application. Pages of `origins` may use it from a browser; `log` takes a line for every request. The
    decoding threads end with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        models.close()

    app = FastAPI(
        title="Lockstep",
        version=__version__,
        description="Translates text. The operations outside of /page are LibreTranslate's interface.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    TranslationApi(models, limits, keys).add_routes(app)
    PageApi(models, limits, keys).add_routes(app)
    app.add_exception_handler(ApiError, _answer_refused)
    app.add_exception_handler(QueueFull, _answer_busy)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_failure)
    app.add_middleware(RequestGuard, limits=limits)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    if log is not None:
        app.add_middleware(AccessLog, write=log)
    return app


async def _answer_refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.to_response()


async def _answer_busy(request: Request, error: Exception) -> JSONResponse:
    sentence = "The server is busy. Try again in a moment."
    return ApiError(429, sentence, {"Retry-After": RETRY_SECONDS}).to_response()


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, f"{error.detail}.", error.headers).to_response()


async def _answer_failure(request: Request, error: Exception) -> JSONResponse:
    return ApiError(500, "The server failed to answer.").to_response()
