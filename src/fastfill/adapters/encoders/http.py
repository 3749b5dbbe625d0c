"""An encoder behind the OpenAI-compatible protocol: `http(s)://HOST/v1/embeddings#MODEL`.

The key comes from the environment (FASTFILL_API_KEY, else OPENAI_API_KEY); it is sent to that host
and appears nowhere else: redirects are not followed, because a request that follows one takes the
key along. The server's refusals (429, 503) are passed on with its Retry-After, so that the job
waits in one place and can say why.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import EncoderBusyError, EncoderError

KEYS = ("FASTFILL_API_KEY", "OPENAI_API_KEY")
AT_ONCE = 128  # items of one request
TIMEOUT = 60.0  # seconds
TRIES = 4  # of a request that times out or that the server fails on
BUSY = (429, 503)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other error."""

    def redirect_request(self, *_: Any) -> None:
        """Make no request to another address."""


_OPENER = urllib.request.build_opener(_NoRedirects)


class HttpEncoder:
    """Batches of texts to a server; an item that the server refuses is a row of NaN."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        at_once: int = AT_ONCE,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        address, _, fragment = url.partition("#")
        if not address.startswith(("http://", "https://")):
            raise EncoderError(f"Encoder {url!r} is not an http or https address.")
        if "@" in address.partition("://")[2].partition("/")[0]:
            raise EncoderError(f"Keep the key out of the address: put it into {KEYS[0]}.")
        self._url = address
        self._model = model or fragment or None
        self._at_once = at_once
        self._timeout = timeout
        self._sleep = sleep

    def __call__(self, items: Sequence[Any]) -> ArrayLike:
        """Embed texts in requests of bounded size."""
        vectors: list[NDArray[np.float32] | None] = []
        for start in range(0, len(items), self._at_once):
            vectors += self._batch([str(item) for item in items[start : start + self._at_once]])
        dim = next((len(vector) for vector in vectors if vector is not None), 1)
        empty = np.full(dim, np.nan, dtype=np.float32)
        return np.stack([empty if vector is None else vector for vector in vectors])

    def _batch(self, texts: list[str]) -> list[NDArray[np.float32] | None]:
        answer = self._request({"input": texts, **({"model": self._model} if self._model else {})})
        vectors: list[NDArray[np.float32] | None] = [None] * len(texts)
        for entry in answer.get("data", []):
            position = entry.get("index")
            embedding = entry.get("embedding")
            if isinstance(position, int) and 0 <= position < len(texts) and embedding:
                vectors[position] = np.asarray(embedding, dtype=np.float32)
        return vectors

    def _request(self, body: dict[str, Any]) -> dict[str, Any]:
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

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        # http and https alone: checked when the encoder is made.
        request = urllib.request.Request(  # noqa: S310
            self._url, data=json.dumps(body).encode(), headers=self._headers(), method="POST"
        )
        with _OPENER.open(request, timeout=self._timeout) as response:
            answer = json.load(response)
        return answer if isinstance(answer, dict) else {}

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
            raise EncoderError(f"{self._url} refuses: {error.code} {error.reason}.{hint}") from None

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


def open_encoder(spec: str) -> Callable[[Sequence[Any]], ArrayLike]:
    """The encoder at an address."""
    return HttpEncoder(spec)
