"""Where a warehouse's bytes are: a folder of this machine, or a bucket that speaks S3. Four verbs are asked of it.

A key is a path below the warehouse with `/` between its parts. Whatever is put is there whole or not at all, and
everybody sees it from then on.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import md5
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.extras import install
from rubricflow.tasks.core.store.files import Content, write_atomically, write_new

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store


class Requests(NamedTuple):
    """Requests by what they ask."""

    reads: int = 0
    writes: int = 0
    listings: int = 0
    """Pages of listings: a store gives 1,000 names a page."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)

    def since(self, earlier: Requests) -> Requests:
        """Those that were sent after an earlier count."""
        return Requests(*(count - before for count, before in zip(self, earlier, strict=True)))

    def __str__(self) -> str:
        listings = f"{self.listings:,} listing{'' if self.listings == 1 else 's'}"
        return f"{self.total:,} requests to the store ({self.reads:,} to read, {self.writes:,} to write, {listings})"


_lock = threading.Lock()
_sent = Requests()


T = TypeVar("T")
_TIMEOUT = timedelta(seconds=60)
"""For one request; it is asked again then."""
_PATIENCE = timedelta(minutes=5)
"""How long a request is tried again: a link that is down or a store that says 503 comes back in that time."""
_BROKEN = "error sending request"
"""What the library says of a connection that broke."""
_PAUSE_S = 0.5
_ADVICE = "mend that and start again, what is finished stays"
_STRANGER = timedelta(seconds=20)
"""The same where no variable says who asks: a machine's own role answers at once, or there is none."""
_WHO = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_PAGE = 1000
"""Names that a store gives with one request."""
_NOTHING = "there is no such bucket, or no such object"
_STATUS = re.compile(r"status code: (\d+[ A-Za-z]*)")
_URL = re.compile(r"s3:/+([^/]+)/*(.*?)/*")


class Objects(Protocol):
    """What is under the keys of one warehouse. StoreError where it cannot be read or written."""

    def put(self, key: str, content: Content) -> None:
        """Store this content, in place of what was there."""

    def put_new(self, key: str, content: Content) -> bytes:
        """Store this content where there is none; the content that stands then: of several writers, the first one's."""

    def get(self, key: str) -> bytes | None:
        """The content; None where there is none."""

    def names(self, folder: str) -> list[str]:
        """The names right below a key, of contents and of further folders, in order; none where there is nothing."""

    def versions(self, folder: str) -> dict[str, str]:
        """All contents below a key, by their keys relative to it, in order; each with what differs as soon as it is
        another content."""


@dataclass(frozen=True)
class Folder:
    """A folder of this machine."""

    root: Path

    def put(self, key: str, content: Content) -> None:
        """As `Objects`."""
        write_atomically(self.root / key, content)

    def put_new(self, key: str, content: Content) -> bytes:
        """As `Objects`."""
        if write_new(self.root / key, content):
            return bytes(content)
        return (self.root / key).read_bytes()

    def get(self, key: str) -> bytes | None:
        """As `Objects`."""
        try:
            return (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self.root / key}: {error.strerror}; {_ADVICE}") from error

    def names(self, folder: str) -> list[str]:
        """As `Objects`; what is on its way to be written does not count."""
        return [path.name for path in self._sorted(folder, "*")]

    def versions(self, folder: str) -> dict[str, str]:
        """As `Objects`, as `names`."""
        files = [path for path in self._sorted(folder, "**/*") if path.is_file()]
        states = {path.relative_to(self.root / folder).as_posix(): path.stat() for path in files}
        return {name: f"{state.st_ino}-{state.st_mtime_ns}-{state.st_size}" for name, state in sorted(states.items())}

    def _sorted(self, folder: str, pattern: str) -> list[Path]:
        return sorted(path for path in (self.root / folder).glob(pattern) if path.suffix != ".tmp")


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket, `s3://bucket/prefix`; endpoint, region and credentials by the usual variables `AWS_…`."""

    url: str

    def put(self, key: str, content: Content) -> None:
        """As `Objects`."""
        count_requests(writes=1)
        with self._named("written", key):
            _persistent(lambda: self._store.put(key, _bytes(content), use_multipart=False))

    def put_new(self, key: str, content: Content) -> bytes:
        """As `Objects`. A request that is tried again may meet its own first try: then its own content stands."""
        from obstore.exceptions import AlreadyExistsError

        count_requests(writes=1)
        with self._named("written", key):
            try:
                _persistent(lambda: self._store.put(key, _bytes(content), mode="create", use_multipart=False))
            except AlreadyExistsError:
                count_requests(reads=1)
                return _persistent(lambda: bytes(self._store.get(key).bytes()))
        return bytes(content)

    def get(self, key: str) -> bytes | None:
        """As `Objects`."""
        count_requests(reads=1)
        with self._named("read", key):
            try:
                return _persistent(lambda: bytes(self._store.get(key).bytes()))
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        """As `Objects`."""
        count_requests(listings=1)
        with self._named("listed", folder):
            listed = _persistent(lambda: self._store.list_with_delimiter(folder or None))
        paths = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths)

    def versions(self, folder: str) -> dict[str, str]:
        """As `Objects`."""
        with self._named("listed", folder):
            pages = _persistent(lambda: list(self._store.list(folder, chunk_size=_PAGE)))
        metas = list(chain.from_iterable(pages))
        count_requests(listings=1 + len(metas) // _PAGE)
        versions = {meta["path"].removeprefix(f"{folder}/"): _version(meta) for meta in metas}
        return dict(sorted(versions.items()))

    @property
    def _store(self) -> S3Store:
        return _opened(self.url, os.getpid())

    @contextmanager
    def _named(self, verb: str, key: str) -> Iterator[None]:
        """The same refusal reads the same, whatever store it is."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            who = "" if _is_named() else " (no credentials are set: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            raise StoreError(f"{self.url}/{key} cannot be {verb}: {_reason(error)}{who}; {_ADVICE}") from error


def _persistent(request: Callable[[], T]) -> T:
    """What a request gives. The library tries most failures again, but gave up at once on a connection to a store that
    was being killed; every request may be made twice."""
    from obstore.exceptions import GenericError

    until = time.monotonic() + (_PATIENCE if _is_named() else _STRANGER).total_seconds()
    while True:
        try:
            return request()
        except GenericError as error:
            if _BROKEN not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def url_of(place: str | Path) -> str | None:
    """`s3://bucket/prefix` where a place is one (also as a path, in which `//` has become `/`); None for a folder."""
    parts = _URL.fullmatch(str(place))
    return f"s3://{'/'.join(filter(None, parts.groups()))}" if parts else None


def version_of(content: bytes) -> str:
    """The version of a content, as most stores name it: a store that encrypts by keys of its own names others, and what
    rests on this is then asked for once more."""
    return md5(content, usedforsecurity=False).hexdigest()


def _version(meta: ObjectMeta) -> str:
    """What a store calls this content; where it has no name for it, when it was written."""
    return str(meta["e_tag"] or meta["last_modified"]).strip('"')


def _bytes(content: Content) -> memoryview:
    """As plain bytes: Arrow's buffers say that theirs have a sign."""
    return memoryview(content).cast("B")


@cache
def _opened(url: str, process: int) -> S3Store:
    """One client for each process: what a fork would inherit is not safe to use."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise StoreError(f"{url} needs the extra: {install('s3')}") from error
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": endpoint.startswith("http://"), "timeout": _TIMEOUT},
        retry_config={"retry_timeout": _PATIENCE if _is_named() else _STRANGER, "max_retries": 30},
    )


def _is_named() -> bool:
    """Whether a variable says who asks."""
    return any(name in os.environ for name in _WHO)


def _reason(error: Exception) -> str:
    """What went wrong, in words: the kind of error is the same for every store, what a store adds is not."""
    from obstore import exceptions

    kinds = {
        exceptions.PermissionDeniedError: "these credentials may not do that",
        exceptions.UnauthenticatedError: "the store does not know these credentials",
        FileNotFoundError: _NOTHING,
    }
    for kind, words in kinds.items():
        if isinstance(error, kind):
            return words
    text = (str(error).splitlines() or [type(error).__name__])[0]
    status = _STATUS.search(text)
    if status:
        return _NOTHING if status[1].startswith("404") else f"the store answers {status[1]}"
    return text.rpartition(" - ")[2][:300]


# How many requests this process has sent to object stores. What a client tries again by itself is not counted.


def count_requests(reads: int = 0, writes: int = 0, listings: int = 0) -> None:
    """Adds requests to those of this process."""
    global _sent
    with _lock:
        _sent = Requests(_sent.reads + reads, _sent.writes + writes, _sent.listings + listings)


def requests_sent() -> Requests:
    """The requests of this process until now."""
    return _sent
