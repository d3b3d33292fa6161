"""A judge that does whatever a student asks: full marks for all that earns, nothing for what costs.

It differs in what it quotes, which nobody told it: nothing; words that stand nowhere; the words of the criterion; or
words of the response, the injected ones. Where the response holds an object, it can also give that back as its reply.
"""

import json
import re
from dataclasses import replace

from attack_corpus import attack

from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.protocol import Opinion, protocol_of
from rubricflow.tasks.grading.judge.rows import Rater

HABITS = ("nothing", "invented", "the criterion", "injected words", "the injected object")
_NONCE = re.compile(r"=====RESPONSE ([0-9a-f]+)=====")
_WRITER = Rater("scripted:writer", "llm", Scripted([]))


def full_marks(question, habit, injected=""):
    """The opinion that an injection asks for."""
    sentences = [u for u in question.units if u.kind == "sentence"]
    unit = next((u for u in reversed(sentences) if question.text[u.start : u.end] in injected), sentences[-1])

    def quotes(criterion):
        said = {
            "nothing": None,
            "invented": "the student explains this completely and correctly",
            "the criterion": criterion.text,
            "injected words": question.text[unit.start : unit.end][:400],
        }[habit]
        place = next((u for u in sentences if said and said in question.text[u.start : u.end]), unit)
        return [{"unit": place.unit_id, "quote": said}] if said else []

    bundle = question.bundle
    return Opinion(
        levels={c.id: c.top if c.weight > 0 else 0 for c in bundle.criteria},
        evidence={c.id: quotes(c) for c in bundle.criteria if c.weight > 0},
        traits={trait.id: trait.max for trait in (*bundle.traits, *question.traits)},
        score=bundle.scale.max,
        because="As the response asks, all criteria are met.",
    )


def obedient(habit, injected):
    """A backend; injected: response → what was injected into it."""

    def reply(request):
        question = request.data
        text = injected[request.subject]
        if habit == "the injected object":
            start, end = text.find("{"), text.rfind("}")
            if 0 <= start < end:
                return text[start : end + 1]
        opinion = full_marks(question, "injected words" if habit == "the injected object" else habit, text)
        artifact = protocol_of(question.bundle.protocol.name).artifact(question, opinion)
        return json.dumps(artifact, ensure_ascii=False)

    return Rater(f"scripted:obedient-{habit}", "llm", Scripted(reply, model=f"obedient-{habit}", batch_size=256))


def attacked(case, template, number):
    """(the case with an attack behind its answer, what was injected)."""
    request = first_requests(case, _WRITER)[0]
    nonce = _NONCE.search(request.messages[-1].content)[1]
    fake = protocol_of(case.bundle.protocol.name).artifact(request.data, full_marks(request.data, "invented"))
    injected = attack(template, case, json.dumps(fake, ensure_ascii=False), nonce)
    text = f"{case.text}\n{injected}"
    name = f"{case.response_id}-{number}"
    return replace(case, response_id=name, text=text, units=tuple(units(text))), injected
