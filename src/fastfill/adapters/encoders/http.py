"""An encoder behind a service: `http(s)://HOST/v1/embeddings#MODEL?OPTIONS`.

It speaks the protocols of `services.py`: OpenAI's and vLLM's, Voyage's, Cohere's, Ollama's, TEI's.
Options: api, dim, input_type and query_input_type, prompt and query_prompt (put before texts),
batch (texts of one request), tokens (of one request).

The key comes from the environment (FASTFILL_API_KEY, else OPENAI_API_KEY); it is sent to that host
and appears nowhere else: redirects are not followed, because a request that follows one takes the
key along. The server's refusals (429, 503) are passed on with its Retry-After, so that the job
waits in one place and can say why.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import numpy as np
from numpy.typing import ArrayLike

from fastfill.adapters.encoders.options import split_options, whole_number
from fastfill.adapters.encoders.services import (
    SERVICES,
    Embeddings,
    Service,
    field_at,
    service_at,
)
from fastfill.errors import EncoderBusyError, EncoderError, unknown_choice
from fastfill.features import rough_tokens

KEYS = ("FASTFILL_API_KEY", "OPENAI_API_KEY")
OPTIONS = (
    "api", "dim", "input_type", "query_input_type", "prompt", "query_prompt", "batch", "tokens",
)  # fmt: skip
TIMEOUT = 60.0  # seconds
TRIES = 4  # of a request that times out or that the server fails on
BUSY = (429, 503)
REFUSED = (400, 415, 422)  # what was asked is at fault


class EncoderRefusedError(EncoderError):
    """The service does not take what it was asked."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other error."""

    def redirect_request(self, *_: Any) -> None:
        """Make no request to another address."""


_OPENER = urllib.request.build_opener(_NoRedirects)


@dataclass(frozen=True)
class EmbeddingRequest:
    """What is asked of a service, beside the texts; from the options in the encoder's name."""

    service: Service
    model: str | None
    dim: int | None
    types: tuple[str | None, str | None]  # of items and of queries
    prompts: tuple[str, str]  # put before items and before queries
    at_once: int
    most_tokens: int

    @classmethod
    def of(cls, spec: str, address: str, named: str) -> EmbeddingRequest:
        """Read from an address and the model with its options."""
        model, options = split_options(spec, named, OPTIONS)
        api = options.get("api") or service_at(address)
        if api not in SERVICES:
            raise EncoderError(f"{spec}: {unknown_choice('api', api, list(SERVICES))}")
        service = SERVICES[api]
        items, queries = service.types
        return cls(
            service,
            model or None,
            whole_number(spec, options, "dim"),
            (options.get("input_type", items), options.get("query_input_type", queries)),
            (options.get("prompt", ""), options.get("query_prompt", "")),
            whole_number(spec, options, "batch") or service.at_once,
            whole_number(spec, options, "tokens") or service.most_tokens,
        )

    @property
    def settings(self) -> dict[str, str]:
        """What changes vectors, by the names of the options, whoever has said it."""
        values = {
            "api": next(name for name, service in SERVICES.items() if service == self.service),
            "dim": self.dim,
            "input_type": self.types[0],
            "query_input_type": self.types[1],
            "prompt": self.prompts[0],
            "query_prompt": self.prompts[1],
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    def body(self, texts: list[str], side: int, in_base64: bool) -> dict[str, Any]:
        """The JSON of a request, of items (0) or queries (1)."""
        fields = {
            "model": self.model,
            self.service.dimensions: self.dim,
            self.service.input_type: self.types[side],
            "encoding_format": "base64" if in_base64 else None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return {self.service.texts: texts, **given, **dict(self.service.always)}

    def batches(self, texts: list[str]) -> Iterator[list[str]]:
        """Texts of one request each: not too many, not too long together."""
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = int(rough_tokens(text)) + 1
            if batch and (len(batch) == self.at_once or tokens + size > self.most_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += size
        if batch:
            yield batch


class HttpEncoder:
    """Batches of texts to a server; an item that the server refuses is a row of NaN."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        at_once: int | None = None,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        address, _, named = url.partition("#")
        if not address.startswith(("http://", "https://")):
            raise EncoderError(f"Encoder {url!r} is not an http or https address.")
        if "@" in address.partition("://")[2].partition("/")[0]:
            raise EncoderError(f"Keep the key out of the address: put it into {KEYS[0]}.")
        request = EmbeddingRequest.of(url, address, named)
        self._asked = replace(
            request, model=model or request.model, at_once=at_once or request.at_once
        )
        self._url = address
        self._base64 = request.service.base64
        self._answered = False  # has a request been answered in this format?
        self._timeout = timeout
        self._sleep = sleep
        self._used = threading.local()

    @property
    def identity(self) -> dict[str, str]:
        """Every setting that changes vectors, as it really is."""
        return self._asked.settings

    @property
    def tokens_used(self) -> int:
        """Tokens that the service has counted for this thread so far; 0 where it counts none."""
        return getattr(self._used, "tokens", 0)

    def __call__(self, items: Sequence[Any]) -> ArrayLike:
        """Embed texts in requests of bounded size."""
        return self._embed(items, side=0)

    def encode_query(self, queries: Sequence[Any]) -> ArrayLike:
        """Embed queries, with their own input type and prompt."""
        return self._embed(queries, side=1)

    def _embed(self, items: Sequence[Any], side: int) -> ArrayLike:
        prompt = self._asked.prompts[side]
        vectors: Embeddings = []
        for texts in self._asked.batches([f"{prompt}{item}" for item in items]):
            answer = self._answer(texts, side)
            vectors += self._asked.service.embeddings(answer, len(texts))
        dim = next((len(vector) for vector in vectors if vector is not None), 1)
        empty = np.full(dim, np.nan, dtype=np.float32)
        return np.stack([empty if vector is None else vector for vector in vectors])

    def _answer(self, texts: list[str], side: int) -> Any:
        """In base64, which is shorter than numbers, unless the service refuses that."""
        try:
            answer = self._request(self._asked.body(texts, side, self._base64))
        except EncoderRefusedError:
            if not self._base64 or self._answered:
                raise
            answer = self._request(self._asked.body(texts, side, in_base64=False))
            self._base64 = False
        self._answered = True
        return answer

    def _count(self, answer: Any, headers: Message) -> None:
        """Add the tokens that an answer, or its header, tells."""
        service = self._asked.service
        tokens = field_at(answer, service.tokens) if service.tokens else None
        told = headers.get(service.tokens_header, "") if service.tokens_header else ""
        if told.isdecimal():
            tokens = int(told)
        self._used.tokens = self.tokens_used + (tokens if isinstance(tokens, int) else 0)

    def _request(self, body: dict[str, Any]) -> Any:
        for attempt in range(1, TRIES + 1):
            try:
                return self._post(body)
            except urllib.error.HTTPError as error:
                with error:
                    self._refused(error)
                reason = f"{error.code} {error.reason}"
            except (urllib.error.URLError, TimeoutError, OSError, json.JSONDecodeError) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt < TRIES:
                self._sleep(min(0.5 * 2**attempt, 20) * random.uniform(0.5, 1.5))
        raise EncoderError(f"{self._url} failed {TRIES} times, last with: {reason}")

    def _post(self, body: dict[str, Any]) -> Any:
        # http and https alone: checked when the encoder is made.
        request = urllib.request.Request(  # noqa: S310
            self._url, data=json.dumps(body).encode(), headers=self._headers(), method="POST"
        )
        with _OPENER.open(request, timeout=self._timeout) as response:
            answer = json.load(response)
            self._count(answer, response.headers)
            return answer

    def _refused(self, error: urllib.error.HTTPError) -> None:
        """Raise what another try cannot mend."""
        if error.code in BUSY:
            raise EncoderBusyError(
                f"{self._url} answers {error.code}", retry_after(error.headers.get("Retry-After"))
            ) from None
        if 300 <= error.code < 400:
            place = _place(urljoin(self._url, error.headers.get("Location") or ""))
            raise EncoderError(
                f"{self._url} redirects ({error.code}) to {place}. The key goes to the host that "
                "is named and to no other: if that is the right address, give it."
            ) from None
        if error.code < 500:
            hint = f" Set {KEYS[0]}." if error.code in (401, 403) else ""
            kind = EncoderRefusedError if error.code in REFUSED else EncoderError
            raise kind(f"{self._url} refuses: {error.code} {error.reason}.{hint}") from None

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
        return headers if key is None else {**headers, "Authorization": f"Bearer {key}"}


def _place(url: str) -> str:
    """An address without what may be secret in it.

    >>> _place("https://me:secret@example.org:8443/v1/embeddings?token=secret")
    'https://example.org:8443/v1/embeddings'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date.

    >>> retry_after("7")
    7.0
    """
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def open_encoder(spec: str) -> HttpEncoder:
    """The encoder at an address."""
    return HttpEncoder(spec)
