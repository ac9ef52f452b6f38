"""The fields of requests and responses. The names are those of LibreTranslate's interface."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError


def _refuse_surrogates(text: str) -> str:
    """JSON can write halves of surrogate pairs, which no encoding can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogate", "input should be valid Unicode") from None
    return text


def _read_whole_number(value: object) -> object:
    """1.0 is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, AfterValidator(_refuse_surrogates)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_read_whole_number)]


class TranslateFields(BaseModel):
    """A request of `POST /translate`."""

    q: Text | list[Text]
    source: Text
    target: Text
    format: Literal["text", "html"] | None = None
    alternatives: Count | None = None
    api_key: Text | None = None

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q


class DetectFields(BaseModel):
    """A request of `POST /detect`."""

    q: Text
    api_key: Text | None = None


class PageFields(BaseModel):
    """A request of `POST /page/translate`."""

    text: Text
    source: Text
    target: Text
    alternatives: Count = 0
    api_key: Text | None = None


class _Response(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)


class ErrorResponse(_Response):
    """Why a request was refused."""

    error: str


class DetectedLanguage(_Response):
    """A language that a text may be in."""

    confidence: float = Field(ge=0, le=100)
    """From 0 to 100, among common languages."""
    language: str


class TranslateResponse(_Response):
    """Translations: one of each field if `q` was a text, a list of them if it was a list."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | SkipJsonSchema[None] = None
    """Only if they were asked for."""
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | SkipJsonSchema[None] = None  # noqa: N815
    """Only if the source was auto."""


class ServedLanguage(_Response):
    """A language, and those that it is translated to."""

    code: str
    name: str
    targets: list[str]


class HealthResponse(_Response):
    status: Literal["ok"]


class NamedLanguage(_Response):
    code: str
    name: str


class LanguageChoice(_Response):
    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(_Response):
    """What a client can know about this server before it asks for translations."""

    apiKeys: bool  # noqa: N815
    charLimit: int  # noqa: N815
    filesTranslation: bool  # noqa: N815
    frontendTimeout: int  # noqa: N815
    keyRequired: bool  # noqa: N815
    language: LanguageChoice
    suggestions: bool
    supportedFilesFormat: list[str]  # noqa: N815


class PageAlternative(_Response):
    text: str
    score: float
    """Log-probability divided by the length penalty."""


class PageWords(_Response):
    """The words of a sentence and its translation, and the links between them."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int, float]]
    """Place of the target word, place of the source word, weight from 0 to 1."""


class PageSentence(_Response):
    """A sentence, its translation, and what is copied before it."""

    before: str
    source: str
    translation: str
    score: float
    """Log-probability divided by the length penalty."""
    alternatives: list[PageAlternative]
    words: PageWords | None
    """Only if the model knows attention."""


class PageResponse(_Response):
    """All sentences of a text. `before` and `source` of all, then `after`, make up the text."""

    sentences: list[PageSentence]
    after: str
    milliseconds: float
    words: int
    """Target words; pieces if the language has no spaces."""
    pieces: int


class PageDirection(_Response):
    source: NamedLanguage
    target: NamedLanguage
    has_alignment: bool


class PageSettings(_Response):
    """What the page shows before the first translation."""

    version: str
    directions: list[PageDirection]
    characters: int
    alternatives: int
    is_key_required: bool
