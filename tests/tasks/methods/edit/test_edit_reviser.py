"""Another model as the reviser: noted for a mailbox, and taken from the reply store as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricflow.tasks.core.contracts.settings.methods import Edit, Revising
from rubricflow.tasks.core.llm.mailbox import Outbox, WaitingForReplies, collecting
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.methods.edit.rollout import GradingSamples
from rubricflow.tasks.methods.edit.workspace import Workspace

BY = {"backend": "openai", "engine": {"model": "large"}}


def workspace(folder: Path, **revising: object) -> Workspace:
    plan = Edit(policy="small", revising=Revising.model_validate(revising))
    return Workspace(Warehouse.open(folder).run("r"), plan, folder, GradingSamples((), (), {}, 0, {}))


def test_what_it_is_asked_waits_in_the_mailbox_for_its_replies(tmp_path: Path) -> None:
    mine, outbox = workspace(tmp_path, by=BY), Outbox()
    with collecting(outbox), mine.reviser() as write:
        assert write is not None
        with pytest.raises(WaitingForReplies):
            write(["One?", "Two?"], temperature=0.8, max_tokens=9, seed=1)
    prompts = {key: noted.request.messages[0].content for key, noted in outbox.noted.items()}
    assert list(prompts.values()) == ["One?", "Two?"]
    with open_replies(mine.run.warehouse.replies) as replies:
        replies.put_many([(key, "large", Reply(text=f" {prompt[:3]}.\n")) for key, prompt in prompts.items()])
    with collecting(Outbox()), mine.reviser() as write:
        assert write is not None
        assert write(["Two?", "One?"], seed=2) == [" Two.\n", " One.\n"]


def test_the_policy_revises_where_nobody_is_named_and_a_digest_of_such_a_plan_stays(tmp_path: Path) -> None:
    with workspace(tmp_path).reviser() as write:
        assert write is None
    assert "by" not in Revising().model_dump()
    with pytest.raises(ValueError, match="engine"):
        Revising.model_validate({"by": {"backend": "openai"}})
