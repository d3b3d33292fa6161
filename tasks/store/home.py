"""A folder whose bytes are in it, or in a bucket of which it is the mirror: how either is opened, written and read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from tasks.contracts.errors import StoreError
from tasks.store.aside import clear
from tasks.store.files import Content, write_atomically
from tasks.store.marker import make_warehouse, mark_mirror, mirrored_by
from tasks.store.mirror import fetch, mirror_of
from tasks.store.objects import Bucket, Folder, Objects, url_of


@dataclass(frozen=True)
class Home:
    """Where a warehouse is."""

    root: Path
    """The folder; a bucket's is its mirror on this machine."""
    objects: Objects
    """Where its bytes are."""
    replies_named: str = field(default_factory=lambda: os.environ.get("RUBRICFLOW_REPLIES", ""), repr=False)
    """Where replies are kept, if not in the folder; it may hold a password, which nothing shows."""

    @classmethod
    def open(cls, place: Path | str) -> Self:
        """Open or create a folder or `s3://bucket/prefix`; StoreError if it cannot be made or read, is foreign or is of
        another format.

        What killed processes put aside in it is cleared away.
        """
        url = url_of(place)
        bucket = Bucket(url) if url else mirrored_by(Path(place))
        root = mirrored_in(bucket.url) if bucket else Path(place)
        try:
            make_warehouse(bucket or Folder(root), bucket.url if bucket else root)
        except StoreError as error:
            if not isinstance(cause := error.__cause__, OSError):
                raise
            raise StoreError(f"warehouse {place} cannot be used: {cause.strerror or cause}") from error
        clear(root)
        return cls(root, bucket or Folder(root))

    def __reduce__(self) -> str | tuple[object, ...]:
        # On another machine a bucket has another mirror.
        return (_reopened, (type(self), self.place, self.replies_named)) if self.mirrored else super().__reduce__()

    @property
    def mirrored(self) -> bool:
        """Whether its bytes are elsewhere, and the folder is a mirror of them."""
        return isinstance(self.objects, Bucket)

    @property
    def place(self) -> str:
        """Where it is, for people and for commands: the folder, or the bucket's address."""
        return self.objects.url if isinstance(self.objects, Bucket) else str(self.root)

    def shown(self, value: object) -> str:
        """A value for people; a file of the mirror as the bucket's."""
        return str(value).replace(str(self.root), self.place) if self.mirrored else str(value)

    def write(self, path: Path, content: Content) -> None:
        """Store a file of the folder, for every machine to see."""
        self.objects.put(self._key(path), content)
        if self.mirrored:
            write_atomically(path, content)

    def share(self, path: Path) -> None:
        """Store what a library has written into the folder: a file, or all files below a folder."""
        if self.mirrored:
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                if file.is_file():
                    self.objects.put(self._key(file), file.read_bytes())

    def write_new(self, path: Path, content: Content) -> bool:
        """Store a file of the folder where there is none; whether this content stands then, and no earlier one."""
        standing = self.objects.put_new(self._key(path), content)
        if self.mirrored:
            write_atomically(path, standing)
        return standing == content

    def names(self, folder: Path) -> list[str]:
        """The names right in a folder, in order."""
        return self.objects.names(self._key(folder))

    def versions(self, folder: Path) -> dict[str, str]:
        """The files below a folder by their paths relative to it, as `Objects.versions`."""
        return self.objects.versions(self._key(folder))

    def stored(self, path: Path) -> bytes | None:
        """What is stored as a file of the folder; None where nothing is."""
        return self.objects.get(self._key(path))

    def content(self, path: Path) -> bytes:
        """What is stored as a file of the folder; StoreError where nothing is."""
        content = self.stored(path)
        if content is None:
            raise StoreError(f"{self.shown(path)} is lost")
        return content

    def fetch(self, path: Path) -> Path:
        """The file of the folder, after it was brought from where the bytes are; where there is none, there is no
        file."""
        self.fetch_all([path])
        return path

    def fetch_all(self, paths: Iterable[Path]) -> None:
        """Bring several files, as `fetch`."""
        if self.mirrored:
            fetch(self.objects, self.root, paths)

    def fetch_missing(self, paths: Iterable[Path]) -> None:
        """Bring those of the files that are not in the folder: such as never change."""
        if self.mirrored:
            self.fetch_all([path for path in paths if not path.is_file()])

    def fetch_folder(self, folder: Path) -> list[Path]:
        """All files below a folder, brought from where the bytes are; in order."""
        files = [folder / name for name in self.versions(folder)]
        self.fetch_all(files)
        return [file for file in files if file.is_file()]

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors speak of the bucket, not of its mirror."""
        try:
            yield
        except StoreError as error:
            if not self.mirrored:
                raise
            raise StoreError(self.shown(error)) from error

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _reopened(kind: type[Home], place: str, replies: str) -> Home:
    return replace(kind.open(place), replies_named=replies)


def mirrored_in(url: str) -> Path:
    """The folder that mirrors a bucket's prefix on this machine: it can stand for it wherever a folder is asked for."""
    folder = mirror_of(url)
    mark_mirror(folder, url)
    return folder
