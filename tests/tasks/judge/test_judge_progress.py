"""What a run says while it judges, and that saying it changes nothing."""

from operator import length_hint

from tasks.judge.progress import Progress
from tasks.judge.rows import Rater
from tasks.llm.backends.offline import Offline
from tasks.llm.backends.scripted import Scripted
from tasks.llm.request import Message, Reply, Request

REQUESTS = [Request(messages=(Message("user", str(n)),), role="grade", subject=str(n)) for n in range(3)]


def watched(backend):
    return Progress(3, lambda line, share: None).watch(Rater("r", "llm", backend)).backend


def test_a_watched_backend_gives_the_same_replies():
    backend = Scripted(lambda request: request.subject)
    assert list(watched(backend).answer(REQUESTS)) == [(n, Reply(text=str(n))) for n in range(3)]


def test_a_watched_backend_knows_how_many_replies_are_there():
    at_once = watched(Offline("m", lambda data: [Reply(text="1") for _ in data])).answer(REQUESTS)
    left = [length_hint(at_once) for _ in at_once]
    assert left == [2, 1, 0]
    one_by_one = watched(Scripted(["1", "2", "3"])).answer(REQUESTS)
    assert [length_hint(one_by_one) for _ in one_by_one] == [0, 0, 0]
