"""Dependencies that criteria state themselves: what is certain of a graph that nobody made.

A criterion that names another one as its condition depends on it: "if criterion 2 is met, …", "where C2 holds, …",
"falls das vorige Kriterium erfüllt ist, …". Another one is named by its id, where that holds a digit or stands in
quotes, by its number in the rubric after a word for criterion, or as the one before. An id alone counts only as
something that is met, or it may be a substance. What denies the condition ("unless", "if C2 is not met") licenses
nothing. Nothing else is read into the wording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricflow.tasks.rewards.graph.project import EdgeProposal
from rubricflow.tasks.rewards.graph.subject import GraphSubject

_CLAUSE = re.compile(
    r"(?<!\w)(?:if|when|whenever|where|once|provided(?: that)?|given(?: that)?|assuming|depends on|"
    r"wenn|falls|sofern|sobald|vorausgesetzt|se|quando|caso|desde que)(?!\w)([^.;:。；]{1,160})|"
    r"(?:如果|若|假如|当)([^.;:，。；]{1,80})",
    re.IGNORECASE,
)
"""A condition and what follows it, up to the end of the sentence; in Chinese, of the clause."""
_DENIED = re.compile(
    r"(?<!\w)(?:not|n't|no|unless|fails?|failed|missing|lacks?|without|nicht|kein\w*|fehlt|ohne|não|nao|sem|falta)(?!\w)"
    r"|n't(?!\w)|[不没未缺]",
    re.IGNORECASE,
)
_WORD = r"(?:criterion|criteria|requirements?|kriterium|critério|requisito)"
_MET = re.compile(
    r"(?<!\w)(?:met|holds?|satisfied|fulfilled|true|applies|passed|credited|awarded|earned|erfüllt|gilt|zutrifft|"
    r"atendido|cumprido|satisfeito)(?!\w)|满足|成立",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    rf"(?<!\w){_WORD}\s+(?:no\.?\s*|nr\.?\s*|#)?(\d+)(?!\w)|(?:标准|要求)\s*(\d+)",
    re.IGNORECASE,
)
_COMMA = re.compile(rf",\s(?!(?:(?:and|or|und|oder|e|ou)\s+)?(?:{_WORD}\s+)?[A-Za-z]{{0,3}}\d)", re.IGNORECASE)
"""Where a condition ends: at a comma that no further name follows."""
_BEFORE = re.compile(
    rf"(?<!\w)(?:(?:previous|preceding|above|vorige|vorhergehende|obige) {_WORD}|"
    rf"{_WORD} (?:above|before|anterior|acima)|the above (?:is met|holds|applies))(?!\w)|(?:上一|前一)(?:条|项)",
    re.IGNORECASE,
)


def stated_dependencies(subject: GraphSubject) -> list[EdgeProposal]:
    """An activation by each criterion that another one names as its condition, in the rubric's order of children."""
    proposals = []
    for place, child in enumerate(subject.criteria):
        for parent in dict.fromkeys(_conditions(subject, place)):
            proposals.append(EdgeProposal(parent, child.id, "activation", source="stated", detail="named as condition"))
    return proposals


def _conditions(subject: GraphSubject, place: int) -> Iterator[str]:
    """The criteria that the one at a place names as its conditions."""
    for clause in _CLAUSE.finditer(subject.criteria[place].text):
        said = clause[1] or clause[2]
        condition = _COMMA.split(said, maxsplit=1)[0]
        if _DENIED.search(condition):
            continue
        numbers = {int(one or other) for one, other in _NUMBERED.findall(condition)}
        for at, name in enumerate(subject.ids):
            if at == place:
                continue
            bare = re.escape(name)
            patterns = [rf"[\"'“‘«„]{bare}[\"'”’»“]"]
            if any(sign.isdigit() for sign in name) and not name.isdigit():
                after = "" if _MET.search(condition) else rf"(?i:{_WORD})\s+"
                patterns.append(rf"(?<!\w){after}{bare}(?![\w.]*\w)")
            is_numbered = (int(name) if name.isdigit() else at + 1) in numbers
            is_before = at == place - 1 and _BEFORE.search(condition)
            if is_numbered or is_before or any(re.search(pattern, condition) for pattern in patterns):
                yield name
