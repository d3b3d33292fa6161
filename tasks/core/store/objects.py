"""Where a warehouse's bytes are: in a folder of this machine, or in a bucket that speaks S3 and is mirrored in one.

`Home` opens either; `Folder` and `Bucket` store bytes under keys, which are paths below the warehouse with `/` between
their parts. Whatever is put is there whole or not at all, and every machine sees it from then on.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from hashlib import md5
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.store.files import Content, clear, write_atomically, write_new
from rubricflow.tasks.core.text.digest import text_digest

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

T = TypeVar("T")
FORMAT = 1
MARKER = ".rubricflow.json"
"""The file by which a place is a warehouse: its format and, in a mirror, the bucket."""
_TIMEOUT = timedelta(seconds=60)
"""Of one request, which is sent again then."""
_PATIENCE = timedelta(minutes=5)
"""How long a request is tried again: a link that is down or a store that answers 503 comes back in that time."""
_STRANGER = timedelta(seconds=20)
"""The same without credentials in the environment: a machine's own role answers at once, or there is none."""
_BROKEN = "error sending request"
"""The library's words for a connection that broke."""
_PAUSE_S = 0.5
_PAGE = 1000
"""Names that a store gives with one request."""
_TOGETHER = 16
"""Files fetched at once."""
_ADVICE = "mend that and start again, what is finished stays"
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_NOTHING = "there is no such bucket, or no such object"
_STATUS = re.compile(r"status code: (\d+[ A-Za-z]*)")
_URL = re.compile(r"s3:/+([^/]+)/*(.*?)/*")


Requests = Counter[Literal["reads", "writes", "listings"]]
"""Requests by what they ask; of listings the pages: a store gives 1,000 names a page."""
_lock = threading.Lock()
_sent = Requests()


def count_requests(reads: int = 0, writes: int = 0, listings: int = 0) -> None:
    """Adds requests to those of this process; what a client tries again by itself is not counted."""
    with _lock:
        _sent.update(reads=reads, writes=writes, listings=listings)


def requests_sent() -> Requests:
    """The requests of this process until now."""
    with _lock:
        return Requests(_sent)


def in_words(sent: Requests) -> str:
    """Requests for people."""
    reads, writes, listings = (f"{sent[kind]:,}" for kind in ("reads", "writes", "listings"))
    return f"{sent.total():,} requests to the store (to read: {reads}, to write: {writes}, listings: {listings})"


@dataclass(frozen=True)
class Home:
    """A warehouse's place: a folder, or a bucket with its mirror on this machine."""

    root: Path
    """The folder; a bucket's is its mirror."""
    objects: Folder | Bucket
    """Where its bytes are."""
    replies_named: str = field(default_factory=lambda: os.environ.get("RUBRICFLOW_REPLIES", ""), repr=False)
    """Where replies are kept, if not in the folder; it may hold a password, which nothing shows."""

    @classmethod
    def open(cls, place: Path | str) -> Self:
        """Open or create a folder or `s3://bucket/prefix`, and clear away what killed processes put aside in it.

        StoreError if it cannot be made or read, is foreign or is of another format.
        """
        url = url_of(place)
        bucket = Bucket(url) if url else mirrored_by(Path(place))
        root = mirrored_in(bucket.url) if bucket else Path(place)
        objects = bucket or Folder(root)
        try:
            _mark_warehouse(objects, bucket.url if bucket else str(root))
        except StoreError as error:
            if not isinstance(cause := error.__cause__, OSError):
                raise
            raise StoreError(f"warehouse {place} cannot be used: {cause.strerror or cause}") from error
        clear(root)
        return cls(root, objects)

    def __reduce__(self) -> str | tuple[object, ...]:
        # On another machine a bucket has another mirror.
        return (_reopen, (type(self), self.place, self.replies_named)) if self.mirrored else super().__reduce__()

    @property
    def mirrored(self) -> bool:
        """Whether its bytes are in a bucket, and the folder is a mirror of them."""
        return isinstance(self.objects, Bucket)

    @property
    def place(self) -> str:
        """Its address for people and commands: the folder, or the bucket's URL."""
        return self.objects.url if isinstance(self.objects, Bucket) else str(self.root)

    def shown(self, value: object) -> str:
        """A value for people; a file of the mirror as the bucket's."""
        return str(value).replace(str(self.root), self.place) if self.mirrored else str(value)

    def write(self, path: Path, content: Content) -> None:
        """Store a file of the folder, for every machine to see."""
        self.objects.put(self._key(path), content)
        if self.mirrored:
            write_atomically(path, content)

    def write_new(self, path: Path, content: Content) -> bool:
        """Store a file of the folder where there is none; whether this content, and no earlier one, is there then."""
        stored = self.objects.put_new(self._key(path), content)
        if self.mirrored:
            write_atomically(path, stored)
        return stored == content

    def share(self, path: Path) -> None:
        """Store what a library has written into the folder: a file, or all files below a folder."""
        if self.mirrored:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    self.objects.put(self._key(file), file.read_bytes())

    def delete(self, paths: Iterable[Path]) -> None:
        """Remove files of the folder, for every machine; one that is not there is passed over."""
        paths = list(paths)
        self.objects.delete([self._key(path) for path in paths])
        for path in paths:
            path.unlink(missing_ok=True)

    def names(self, folder: Path) -> list[str]:
        """The names right in a folder, in order."""
        return self.objects.names(self._key(folder))

    def versions(self, folder: Path) -> dict[str, str]:
        """The files below a folder by their paths relative to it, as `Folder.versions`."""
        return self.objects.versions(self._key(folder))

    def older(self, folder: Path, seconds: float) -> list[Path]:
        """The files below a folder that were written so long ago, or before."""
        return [folder / name for name in self.objects.older(self._key(folder), time.time() - seconds)]

    def stored(self, path: Path) -> bytes | None:
        """The stored content of a file of the folder; None where there is none."""
        return self.objects.get(self._key(path))

    def content(self, path: Path) -> bytes:
        """The stored content of a file of the folder; StoreError where there is none."""
        content = self.stored(path)
        if content is None:
            raise StoreError(f"{self.shown(path)} is lost")
        return content

    def fetch(self, path: Path) -> Path:
        """The file of the folder, brought up to date from the bucket; where nothing is stored, there is no file."""
        self.fetch_all([path])
        return path

    def fetch_all(self, paths: Iterable[Path]) -> None:
        """Bring several files up to date, as `fetch`."""
        if self.mirrored:
            with ThreadPoolExecutor(_TOGETHER) as pool:
                list(pool.map(self._fetch, paths))

    def _fetch(self, path: Path) -> None:
        content = self.stored(path)
        if content is None:
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)

    def fetch_missing(self, paths: Iterable[Path]) -> None:
        """Fetch those of the files that are not in the folder: files that never change."""
        if self.mirrored:
            self.fetch_all([path for path in paths if not path.is_file()])

    def fetch_folder(self, folder: Path) -> list[Path]:
        """All files below a folder, up to date and in order."""
        files = [folder / name for name in self.versions(folder)]
        self.fetch_all(files)
        return [file for file in files if file.is_file()]

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors name the bucket, not its mirror."""
        try:
            yield
        except StoreError as error:
            if not self.mirrored:
                raise
            raise StoreError(self.shown(error)) from error

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _reopen(kind: type[Home], place: str, replies: str) -> Home:
    return replace(kind.open(place), replies_named=replies)


def _mark_warehouse(objects: Folder | Bucket, place: str) -> None:
    """Mark the place as a warehouse; StoreError if it cannot be made or read, is foreign or is of another format."""
    content = objects.get(MARKER)
    if content is None:
        others = set(objects.names("")) - {MARKER}
        # Asked again: another process may have made the warehouse, and more in it, since the first look.
        if others and objects.get(MARKER) is None:
            better_place = "an empty or new folder" if isinstance(objects, Folder) else "an empty or new prefix"
            raise StoreError(f"{place} holds other things and is no rubricflow warehouse; name {better_place}")
        content = json.dumps({"format": FORMAT}).encode()  # whoever is first, it is the same
        objects.put(MARKER, content)
    try:
        form = json.loads(content).get("format")
    except (ValueError, AttributeError):
        form = None
    if form is None:
        raise StoreError(f"warehouse {place} cannot be used: {place}/{MARKER} does not say its format")
    if form != FORMAT:
        raise StoreError(
            f"warehouse {place} has format {form}; this version reads format {FORMAT}: use the version of "
            "rubricflow that made it, or name a new folder"
        )


def mirrored_in(url: str) -> Path:
    """The folder that mirrors a bucket's prefix on this machine, made where there is none, in the user's cache
    ($XDG_CACHE_HOME, ~/.cache), which nobody else may read: DuckDB, Arrow and libraries read files.

    It can stand for the bucket wherever a folder is asked for. StoreError where it cannot be made.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", url.removeprefix("s3://"))[:60]
    folder = caches / "rubricflow" / f"{name}-{text_digest(f'{_endpoint()} {url}')[:12]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        rule = f"{url} is read by way of {folder}, which cannot be made: {error.strerror}"
        raise StoreError(f"{rule}; XDG_CACHE_HOME names another folder") from error
    content = json.dumps({"format": FORMAT, "mirror_of": url}).encode()
    if not (folder / MARKER).is_file() or (folder / MARKER).read_bytes() != content:
        write_atomically(folder / MARKER, content)
    return folder


def mirrored_by(folder: Path) -> Bucket | None:
    """The bucket that a folder mirrors; None where it is no mirror."""
    try:
        url = json.loads((folder / MARKER).read_bytes()).get("mirror_of")
    except (OSError, ValueError, AttributeError):  # what else is wrong with it, `Home.open` finds
        return None
    return Bucket(url) if url else None


def url_of(place: str | Path) -> str | None:
    """`s3://bucket/prefix` where a place is one (also as a path, in which `//` has become `/`); None for a folder."""
    parts = _URL.fullmatch(str(place))
    return f"s3://{'/'.join(filter(None, parts.groups()))}" if parts else None


@dataclass(frozen=True)
class Folder:
    """A folder of this machine. StoreError where it cannot be read or written."""

    root: Path

    def put(self, key: str, content: Content) -> None:
        """Store this content, in place of what was there."""
        write_atomically(self.root / key, content)

    def put_new(self, key: str, content: Content) -> bytes:
        """Store this content where there is none; the content that is there then: of several writers, the first's."""
        return bytes(content) if write_new(self.root / key, content) else (self.root / key).read_bytes()

    def get(self, key: str) -> bytes | None:
        """The content; None where there is none."""
        try:
            return (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self.root / key}: {error.strerror}; {_ADVICE}") from error

    def delete(self, keys: Sequence[str]) -> None:
        """Remove contents; where there is none, nothing happens."""
        for key in keys:
            (self.root / key).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """The names right below a key, of contents and of further folders, in order; none where there is nothing, and
        not what is still being written."""
        return sorted(path.name for path in (self.root / folder).glob("*") if path.suffix != ".tmp")

    def versions(self, folder: str) -> dict[str, str]:
        """All contents below a key, by their keys relative to it, in order; each with what differs as soon as the
        content does."""
        versions = {}
        for path in (self.root / folder).glob("**/*"):
            if path.suffix != ".tmp" and path.is_file():
                state = path.stat()
                name = path.relative_to(self.root / folder).as_posix()
                versions[name] = f"{state.st_ino}-{state.st_mtime_ns}-{state.st_size}"
        return dict(sorted(versions.items()))

    def older(self, folder: str, than_s: float) -> list[str]:
        """The contents below a key, by their keys relative to it, that were stored before that time of the epoch."""
        below = self.root / folder
        return [name for name in self.versions(folder) if (below / name).stat().st_mtime <= than_s]


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket, `s3://bucket/prefix`, with the methods of `Folder`; endpoint, region and credentials by the
    usual variables `AWS_…`."""

    url: str

    def put(self, key: str, content: Content) -> None:
        """As `Folder.put`."""
        count_requests(writes=1)
        self._ask("written", key, lambda store: store.put(key, _bytes(content), use_multipart=False))

    def put_new(self, key: str, content: Content) -> bytes:
        """As `Folder.put_new`. A request that is tried again may meet its own first try: then its own content stays."""
        from obstore.exceptions import AlreadyExistsError

        def put(store: S3Store) -> bytes | None:
            try:
                store.put(key, _bytes(content), mode="create", use_multipart=False)
            except AlreadyExistsError:
                return None
            return bytes(content)

        count_requests(writes=1)
        stored = self._ask("written", key, put)
        if stored is None:
            count_requests(reads=1)
            stored = self._ask("written", key, lambda store: bytes(store.get(key).bytes()))
        return stored

    def get(self, key: str) -> bytes | None:
        """As `Folder.get`."""

        def get(store: S3Store) -> bytes | None:
            with suppress(FileNotFoundError):
                return bytes(store.get(key).bytes())
            return None

        count_requests(reads=1)
        return self._ask("read", key, get)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Folder.delete`."""
        if keys:
            count_requests(writes=1 + len(keys) // _PAGE)
            self._ask("removed", keys[0], lambda store: store.delete(list(keys)))

    def names(self, folder: str) -> list[str]:
        """As `Folder.names`."""
        count_requests(listings=1)
        listed = self._ask("listed", folder, lambda store: store.list_with_delimiter(folder or None))
        paths = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths)

    def versions(self, folder: str) -> dict[str, str]:
        """As `Folder.versions`: the store's name of each content, or else the time when it was written."""
        tags = {name: meta["e_tag"] or meta["last_modified"] for name, meta in self._metas(folder).items()}
        return {name: str(tags[name]).strip('"') for name in sorted(tags)}

    def older(self, folder: str, than_s: float) -> list[str]:
        """As `Folder.older`, by the store's clock."""
        return [name for name, meta in self._metas(folder).items() if meta["last_modified"].timestamp() <= than_s]

    def _metas(self, folder: str) -> dict[str, ObjectMeta]:
        pages = self._ask("listed", folder, lambda store: list(store.list(folder, chunk_size=_PAGE)))
        metas = list(chain.from_iterable(pages))
        count_requests(listings=1 + len(metas) // _PAGE)
        return {meta["path"].removeprefix(f"{folder}/"): meta for meta in metas}

    def _ask(self, verb: str, key: str, request: Callable[[S3Store], T]) -> T:
        """Send a request, which may be made twice; a refusal reads the same, whatever store it comes from.

        The library tries most failures again, but gave up at once on a connection to a store that was being killed.
        """
        from obstore.exceptions import BaseError, GenericError

        until = time.monotonic() + _patience().total_seconds()
        while True:
            try:
                return request(_client(self.url, os.getpid()))
            except (BaseError, OSError) as error:
                is_broken = isinstance(error, GenericError) and _BROKEN in str(error)
                if not is_broken or time.monotonic() > until:
                    hint = " (no credentials are set: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
                    hint = "" if _has_credentials() else hint
                    raise StoreError(f"{self.url}/{key} cannot be {verb}: {_reason(error)}{hint}; {_ADVICE}") from error
            time.sleep(_PAUSE_S)


def version_of(content: bytes) -> str:
    """The version of a content, as most stores name it. A store that encrypts by keys of its own names others; what
    rests on this is then asked for once more."""
    return md5(content, usedforsecurity=False).hexdigest()


def _bytes(content: Content) -> memoryview:
    """As plain bytes: those of Arrow's buffers are signed."""
    return memoryview(content).cast("B")


@cache
def _client(url: str, process: int) -> S3Store:
    """One client for each process: what a fork would inherit is not safe to use."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise StoreError(f"{url} needs the extra: {install('s3')}") from error
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": _endpoint().startswith("http://"), "timeout": _TIMEOUT},
        retry_config={"retry_timeout": _patience(), "max_retries": 30},
    )


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")


def _patience() -> timedelta:
    return _PATIENCE if _has_credentials() else _STRANGER


def _has_credentials() -> bool:
    return any(name in os.environ for name in _CREDENTIALS)


def _reason(error: Exception) -> str:
    """What went wrong, in words: the kind of error is the same for every store, what a store adds is not."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError):
        return "these credentials may not do that"
    if isinstance(error, UnauthenticatedError):
        return "the store does not know these credentials"
    text = first_line(error)
    status = _STATUS.search(text)
    if isinstance(error, FileNotFoundError) or (status and status[1].startswith("404")):
        return _NOTHING
    return f"the store answers {status[1]}" if status else text.rpartition(" - ")[2][:300]
