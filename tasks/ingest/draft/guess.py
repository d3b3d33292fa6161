"""What the columns of a file of no known platform may be for, by their names in several languages and their cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from tasks.contracts.settings.reshaping import Pattern
from tasks.ingest.draft.roles import Roles
from tasks.text.markup import is_markup
from tasks.text.numbers import number_of

WORDS: Mapping[str, str] = {
    "reference": "reference|model answer|sample (answer|solution)|answer key|(right|correct|expected) answer|muster|"
    "corrige|bonne reponse|respuesta (correcta|modelo)|gabarito|soluzione|oplossing|正解|参考答案",
    "points": "max|maximum|possible points|points possible|out of|hochst|maximal|bareme|满分|配点",
    "score": "score|mark|marks|grade|points?|punkte?|note|bewertung|notas?|puntaje|puntuacion|calificacion|punteggio|"
    "voto|valutazione|pontos|cijfer|poang|betyg|ocena|балл|баллы|оценка|得分|分数|点数",
    "answer": "answer|response|reply|text|essay|submission|student answer|antwort|aufsatz|reponse|respuesta|texto|"
    "risposta|testo|resposta|antwoord|svar|odpowiedz|ответ|回答|答案|解答",
    "question": "question|prompt|item|task|exercise|frage|aufgabe|consigne|pregunta|domanda|quesito|pergunta|questao|"
    "vraag|fraga|pytanie|вопрос|задание|問題|题目|设问",
    "name": "(student |first |last |full |family |given |user )?name|vorname|nachname|nom|prenom|nombre|apellidos?|"
    "cognome|nome|sobrenome|naam|namn|имя|фамилия|姓名|氏名",
    "student": "student|pupil|learner|user|username|e ?mail|mail|author|candidate|participant|schuler|schulerin|"
    "matrikel|matrikelnummer|etudiant|eleve|alumno|estudiante|studente|aluno|leerling|elev|uczen|ученик|学生|学号|生徒",
    "response": "id|response id|answer id|submission id|nr|no|key|schlussel",
    "group": "class|section|group|course|klasse|kurs|gruppe|classe|groupe|clase|grupo|turma|klas|班",
}
"""Role → names of its columns, without accents; the more telling ones come first."""
_WHOLE = frozenset({"name", "response", "group"})
"""Roles whose names stand within those of many other columns."""
_TEXT = 15
"""Characters of an average cell from which a column may hold answers."""
_MARKED_UP = 0.5
"""Share of the answers from which a column is one of HTML."""


@dataclass(frozen=True)
class Column:
    """What a column's cells look like, empty ones aside."""

    name: str
    cells: tuple[str, ...]
    count: int
    """Rows, empty cells included."""

    @property
    def length(self) -> float:
        """Characters of a cell on average; 0 without one."""
        return fmean(map(len, self.cells)) if self.cells else 0.0

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers alone, of which not all are 0."""
        numbers = [number(cell) for cell in self.cells]
        return any(numbers) and None not in numbers

    @property
    def same(self) -> bool:
        """Whether all of several rows say the same, as of the class and not of an answer."""
        return self.count == len(self.cells) > 1 == len(set(self.cells))

    @property
    def distinct(self) -> float:
        """Share of the rows that have a cell of their own."""
        return len(set(self.cells)) / self.count if self.count else 0.0


def number(cell: str) -> float | None:
    """A cell as a number, with a decimal comma, too; None where it is none."""
    text = cell.strip()
    return number_of(text) if "," not in text or "." in text else number_of(text.replace(",", ".", 1))


def guessed(columns: Sequence[Column]) -> Roles:
    """The roles of the columns, each for one thing at most. Without a column of texts there is no answer."""
    numbered = _numbered(columns)
    answer = _wide_answers(numbered)
    return _of_wide(answer, numbered, columns) if answer else _of_rows(columns)


def _of_wide(answer: str, numbered: Mapping[str, list[Column]], columns: Sequence[Column]) -> Roles:
    """The roles of a file of several columns a question."""

    def pattern(role: str, numeric: bool) -> str | None:
        for name, group in numbered.items():
            if name not in used and _named(group[0], role) and group[0].numeric == numeric:
                return name
        return None

    used = {answer}
    patterns: dict[str, str | None] = {}
    for role, numeric in (("reference", False), ("points", True), ("score", True), ("question", False)):
        patterns[role] = pattern(role, numeric)
        used |= {patterns[role] or answer}
    used_columns = {column.name for name in used for column in numbered[name]}
    people = _people({column.name: column for column in columns if column.name not in used_columns})
    return replace(
        people,
        answer=answer,
        question=patterns["question"],
        reference=patterns["reference"],
        points=patterns["points"],
        scores=(patterns["score"],) if patterns["score"] else (),
        html=_marked_up(numbered[answer]),
    )


def _of_rows(columns: Sequence[Column]) -> Roles:
    """The roles of a file of a row an answer or, where several columns of texts are named by questions, of a row a
    student."""
    free = {column.name: column for column in columns}
    reference = _take(free, "reference", lambda column: column.length >= 1 and not column.numeric)
    points = _take(free, "points", lambda column: column.numeric)
    scores = _every(free, "score", lambda column: column.numeric and not column.same)
    answer: Pattern | None = _take(free, "answer", lambda column: not column.numeric) or _named_by_questions(free)
    wording = _take(free, "question", _is_wording)
    item = _take(free, "question", lambda column: bool(column.cells))
    answer = answer or _longest(free)
    return replace(
        _people(free),
        answer=answer,
        question=wording,
        item=item,
        reference=reference,
        scores=scores if isinstance(answer, str) else (),
        points=points,
        html=_marked_up([column for column in columns if column.name in _names(answer)]),
    )


def _people(free: dict[str, Column]) -> Roles:
    """The roles of what is left: who wrote an answer, and ids."""
    names = _every(free, "name", lambda column: not column.numeric and bool(column.cells))
    student = _take(free, "student", lambda column: bool(column.cells))
    response = _take(free, "response", lambda column: column.distinct == 1)
    groups = _every(free, "group", lambda column: 0 < column.distinct <= 0.5)
    return Roles(response=response, student=(student,) if student else names, names=names, groups=groups)


def _names(pattern: Pattern | None) -> tuple[str, ...]:
    if isinstance(pattern, str):
        return (pattern,)
    return pattern if isinstance(pattern, tuple) else ()


def _marked_up(columns: Sequence[Column]) -> bool:
    """Whether most cells are HTML."""
    marks = list(map(is_markup, chain.from_iterable(column.cells for column in columns)))
    return bool(marks) and fmean(marks) >= _MARKED_UP


def _named_by_questions(free: dict[str, Column]) -> tuple[str, ...] | None:
    """The free columns of texts that are named by the question that they answer, as forms write them: two at least."""
    texts = [column for column in free.values() if column.length >= _TEXT and not column.numeric]
    questions = tuple(column.name for column in texts if column.name.rstrip().endswith(("?", "？")))
    if len(questions) < 2:
        return None
    for name in questions:
        del free[name]
    return questions


def _is_wording(column: Column) -> bool:
    """Whether the cells are questions rather than their ids."""
    return column.length > _TEXT and any(" " in cell for cell in column.cells)


def _named(column: Column, role: str) -> bool:
    """Whether a column is named for a role: its words hold one of the names or, of short ones, are it."""
    words = _words(column.name)
    if role in _WHOLE:
        return bool(re.fullmatch(WORDS[role], words))
    return bool(re.search(rf"(?:^| )(?:{WORDS[role]})(?: |$)", words))


def _words(name: str) -> str:
    """The words of a column's name in lower case without accents, signs, digits: studentAnswer_1 is student answer."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    plain = "".join(c for c in unicodedata.normalize("NFKD", apart) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W\d_]+", plain.casefold()))


def _take(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> str | None:
    """The first free column of a role, which is free no longer."""
    name = next((column.name for column in free.values() if _named(column, role) and fits(column)), None)
    if name is not None:
        del free[name]
    return name


def _every(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> tuple[str, ...]:
    """All free columns of a role, which are free no longer."""
    names = tuple(column.name for column in free.values() if _named(column, role) and fits(column))
    for name in names:
        del free[name]
    return names


def _longest(free: dict[str, Column]) -> str | None:
    """The free column of the longest texts."""
    texts = [column for column in free.values() if column.length >= _TEXT and not column.numeric]
    if not texts:
        return None
    longest = max(texts, key=lambda column: column.length)
    del free[longest.name]
    return longest.name


def _numbered(columns: Sequence[Column]) -> dict[str, list[Column]]:
    """Pattern → the columns whose names differ by a number alone, where there are several."""
    templates: dict[str, list[Column]] = {}
    for column in columns:
        if template := _template(column.name):
            templates.setdefault(template, []).append(column)
    return {template: group for template, group in templates.items() if len(group) > 1}


def _wide_answers(numbered: Mapping[str, list[Column]]) -> str | None:
    """The pattern of the columns of answers; None where there are none."""
    unnamed = None
    for template, group in numbered.items():
        first = group[0]
        if any(column.numeric for column in group) or _named(first, "reference"):
            continue
        if _named(first, "answer"):
            return template
        long = fmean(column.length for column in group) >= _TEXT
        if unnamed is None and long and not _named(first, "question"):
            unnamed = template
    return unnamed


def _template(name: str) -> str | None:
    """The name with {n} in place of its last number; None without a number."""
    numbers = list(re.finditer(r"\d+", name))
    if not numbers or "{" in name:
        return None
    return f"{name[: numbers[-1].start()]}{{n}}{name[numbers[-1].end() :]}".strip()
