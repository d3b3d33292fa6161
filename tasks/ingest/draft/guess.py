"""What the columns of a file of no known platform may be for, by their names in several languages and their cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    "name": "(first |last |full |family |given )?name|vorname|nachname|nom|prenom|nombre|apellidos?|cognome|nome|"
    "sobrenome|naam|namn|имя|фамилия|姓名|氏名",
    "student": "student|pupil|learner|user|username|e ?mail|mail|author|candidate|participant|schuler|schulerin|"
    "matrikel|matrikelnummer|etudiant|eleve|alumno|estudiante|studente|aluno|leerling|elev|uczen|ученик|学生|学号|生徒",
    "response": "id|response id|answer id|submission id|nr|no|key|schlussel",
    "group": "class|section|group|course|klasse|kurs|gruppe|classe|groupe|clase|grupo|turma|klas|班",
}
"""Role → names of its columns, without accents; the more telling ones come first."""
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
    def distinct(self) -> float:
        """Share of the rows that have a cell of their own."""
        return len(set(self.cells)) / self.count if self.count else 0.0


def number(cell: str) -> float | None:
    """A cell as a number, with a decimal comma, too; None where it is none."""
    text = cell.strip()
    return number_of(text) if "," not in text or "." in text else number_of(text.replace(",", ".", 1))


def guessed(columns: Sequence[Column]) -> Roles:
    """The roles of the columns, each for one thing at most. Without a column of texts there is no answer."""
    free = {column.name: column for column in columns}
    wide = _wide_answers(columns)
    reference = _take(free, "reference", lambda column: column.length >= 1 and not column.numeric)
    points = _take(free, "points", lambda column: column.numeric)
    scores = _every(free, "score", lambda column: column.numeric)
    answer: Pattern | None = wide
    for name in [name for name in free if wide and _template(name) == wide]:
        del free[name]
    if wide is None:
        answer = _take(free, "answer", lambda column: not column.numeric) or _longest(free)
    wording = _take(free, "question", _is_wording)
    item = _take(free, "question", lambda column: not _is_wording(column) and bool(column.cells))
    student = _take(free, "student", lambda column: bool(column.cells))
    names = _every(free, "name", lambda column: not column.numeric and bool(column.cells))
    response = _take(free, "response", lambda column: column.distinct == 1)
    groups = _every(free, "group", lambda column: 0 < column.distinct <= 0.5)
    texts = next((column.cells for column in columns if column.name == answer), ())
    marked_up = [is_markup(cell) for cell in texts]
    return Roles(
        answer=answer,
        question=wording,
        item=item,
        reference=reference,
        scores=scores,
        points=points,
        response=response,
        student=(student,) if student else names,
        names=names,
        groups=groups,
        html=bool(marked_up) and fmean(marked_up) >= _MARKED_UP,
    )


def _is_wording(column: Column) -> bool:
    """Whether the cells are questions rather than their ids."""
    return column.length > _TEXT and any(" " in cell for cell in column.cells)


def _named(column: Column, role: str) -> bool:
    """Whether a column is named for a role: its words are one of the names, or hold it."""
    words = _words(column.name)
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


def _wide_answers(columns: Sequence[Column]) -> str | None:
    """The pattern of several columns of texts whose names differ by a number; None where there are none."""
    templates: dict[str, list[Column]] = {}
    for column in columns:
        if (template := _template(column.name)) and not column.numeric and column.length:
            templates.setdefault(template, []).append(column)
    several = {template: group for template, group in templates.items() if len(group) > 1}
    told = [t for t, group in several.items() if _named(group[0], "answer") and not _named(group[0], "reference")]
    long = [t for t, group in several.items() if fmean(column.length for column in group) >= _TEXT]
    return next(iter([*told, *long]), None)


def _template(name: str) -> str | None:
    """The name with {n} in place of its last number; None without a number."""
    if "{" in name or not (numbers := list(re.finditer(r"\d+", name))):
        return None
    return f"{name[: numbers[-1].start()]}{{n}}{name[numbers[-1].end() :]}".strip()
