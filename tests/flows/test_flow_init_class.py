"""`init` on class sets as teachers have them: who a student is, what questions are called, and what they are worth."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from init_scene import guess, points_of, read

from rubricflow.flows.init import Started, init
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.ingest.draft.asking import MOST_QUESTIONS
from rubricflow.tasks.grading.lock.rubric import authored
from tests.builders.exports import HOW, WHY
from tests.builders.files import write_csv

ROLES = ("number", "first", "last", "mail", "question", "wording", "answer", "mark")
COLUMN_NAMES = """
Matrikelnr. | Mat.-Nr. | Matr.Nr. | MATRIKELNUMMER | Matrikel-Nr | MatNr; Vorname; Nachname | Familienname;
    E-Mail-Adresse | E-Mail; Frage | Aufgabe Nr.; Aufgabenstellung | Fragetext | Wortlaut; Antwort; Punkte |
    Bewertung | Punktzahl
Student No. | student_id | StudentID | Student number | Matriculation number; First name | Given name; Last name |
    Surname; Email address | e-mail; question | Question no. | item; wording | prompt | question text | Question
    wording; answer | Response | student_answer; mark | Score | points | Grade
numéro étudiant | N° étudiant | Numéro d'étudiant | Matricule; Prénom; Nom | Nom de famille; Courriel | Adresse de
    courriel; question | exercice; énoncé | Intitulé; Réponse; Note | points
nº de alumno | No. de estudiante | Matrícula | Número de alumno; Nombre; Apellidos | Apellido; Correo electrónico;
    pregunta; enunciado; respuesta; Calificación | puntos
numero di matricola | Matricola; Nome; Cognome; Indirizzo e-mail | Posta elettronica; domanda; Testo della domanda |
    traccia; risposta; Voto | Punteggio
N.º de aluno | número de matrícula | Número mecanográfico; Nome; Apelido | Sobrenome; Endereço de e-mail; questão |
    pergunta; enunciado; resposta; Pontuação | Nota
studentnummer | Leerlingnummer | Studentnr.; Voornaam; Achternaam; e-mail; vraag; Vraagtekst; antwoord; Cijfer |
    Punten
Studentnummer | Personnummer; Förnamn; Efternamn; E-post; Fråga | Uppgift; Uppgiftstext | prompt; Svar; Poäng |
    Betyg
opiskelijanumero | Opiskelijanro; Etunimi; Sukunimi; Sähköposti; Kysymys | Tehtävä; Tehtävänanto; Vastaus; Pisteet |
    Arvosana
Nr indeksu | Numer albumu; Imię; Nazwisko; e-mail; Pytanie | Zadanie; Treść pytania | prompt; Odpowiedź; Ocena |
    Punkty
"""
"""A language a paragraph (de en fr es it pt nl sv fi pl): what its tables call each role's column."""
LANGUAGES = [
    [[name.strip() for name in names.split("|")] for names in " ".join(language.split()).split(";")]
    for language in re.split(r"\n(?! )", COLUMN_NAMES.strip())
]
PEOPLE = [("Ada", "Böhm"), ("Can", "Özil"), ("Ada", "Böhm"), ("Eva", "Åberg")]
DIGEST = re.compile("#[0-9a-f]{8,}")


def ids_of(study: Path) -> list[tuple[str, str]]:
    return [(row["response_id"], row["item_id"]) for row in read(study).responses]


def drafted(folder: Path, header: list[str], rows: list[list[Any]], *answers: str) -> Started:
    """What `init` makes of a table; answers: what is said to its last questions."""
    write_csv(folder / "a.csv", header, rows)
    said = list(answers)
    return init([folder / "a.csv"], folder / "study.yaml", lambda _, default: said.pop(0) if said else default)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, str]:
    """Role → a column's name in one of ten languages, in the order in which the columns stand."""
    language = dict(zip(ROLES, draw(st.sampled_from(LANGUAGES)), strict=True))
    names = {role: draw(st.sampled_from(language[role])) for role in draw(st.permutations(ROLES))}
    cased = draw(st.sampled_from([str, str.upper, str.title, lambda name: f" {name} "]))
    return {role: cased(name) for role, name in names.items()}


@settings(max_examples=8)
@given(headers(), st.sampled_from(",;\t"), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_who_wrote_what_is_found_in_every_language_and_order(names: dict[str, str], sign: str, encoding: str) -> None:
    cells = {
        "number": lambda n, q: f"00{n + 1}7",
        "first": lambda n, q: PEOPLE[n][0],
        "last": lambda n, q: PEOPLE[n][1],
        "mail": lambda n, q: f"p{n}@school.example",
        "question": lambda n, q: str(q + 1),
        "wording": lambda n, q: (WHY, HOW)[q],
        "answer": lambda n, q: f"It is the answer {n} to {q}",
        "mark": lambda n, q: f"{n},5",
    }
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=sign)
    writer.writerow(names.values())
    writer.writerows([cells[role](n, q) for role in names] for n in range(4) for q in range(2))
    with TemporaryDirectory() as folder:
        path, study = Path(folder) / "a.csv", Path(folder) / "study.yaml"
        path.write_bytes(text.getvalue().encode(encoding))
        asked: list[str] = []
        init([path], study, lambda question, default: asked.append(question) or default)
        assert len(asked) <= MOST_QUESTIONS
        found = read(study).responses
        assert [row["author_id"] for row in found] == [f"00{n + 1}7" for n in range(4) for _ in range(2)]
        assert [row["author_name"] for row in found][::2] == [f"{first} {last}" for first, last in PEOPLE]
        assert [row["text"] for row in found] == [f"It is the answer {n} to {q}" for n in range(4) for q in range(2)]
        assert [row["response_id"] for row in found][:2] == ["0017-Q1", "0017-Q2"]
        assert list(read(study).scores.values()) == [n + 0.5 for n in range(4) for _ in range(2)]
        assert WHY in (Path(folder) / "rubrics.yaml").read_text()


WORDINGS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=16, max_size=90).filter(str.strip)


@settings(max_examples=4)
@example(["Why does it float?", "Why does it sink?", "Why does it float at all?"], 2, 2)
@given(
    st.lists(WORDINGS, min_size=1, max_size=4, unique_by=lambda text: " ".join(text.split())), *[st.integers(1, 3)] * 2
)
def test_ids_are_short_and_stay_when_rows_are_added(wordings: list[str], before: int, added: int) -> None:
    questions = [f"Say: {' '.join(text.split())}?" for text in wordings]
    rows = [[f"{n:04d}", question, f"so it is {n}"] for n in range(before + added) for question in questions]
    with TemporaryDirectory() as folder:
        path, study = Path(folder) / "a.csv", Path(folder) / "study.yaml"
        write_csv(path, ["Student No.", "question", "answer"], rows[: before * len(questions)])
        init([path], study, guess)
        first = ids_of(study)
        assert [item for _, item in first[: len(questions)]] == [f"Q{n + 1}" for n in range(len(questions))]
        assert all(re.fullmatch(r"\d{4}-Q\d", response) for response, _ in first)
        write_csv(path, ["Student No.", "question", "answer"], rows)
        assert ids_of(study)[: len(first)] == first
        init([path], study, guess, overwrite=True)
        assert ids_of(study)[: len(first)] == first
        assert not DIGEST.search(study.read_text() + (Path(folder) / "rubrics.yaml").read_text())


def test_answers_without_a_student_are_called_by_question_and_row(tmp_path: Path) -> None:
    drafted(tmp_path, ["question", "answer"], [[text, "so it is"] for text in (WHY, HOW, WHY)])
    assert [row["response_id"] for row in read(tmp_path / "study.yaml").responses] == ["Q1-001", "Q2-002", "Q1-003"]


def german_workbook(path: Path) -> None:
    """Four students, two of one name, numbers with leading zeros by their format, decimal commas in the headers."""
    book = openpyxl.Workbook()
    book.active.append(
        ["Matr.Nr.", "Nachname", "Vorname", "Frage 1 (4 P.)", "Punkte 1 / 4,00", "Frage 2 (6 P.)", "Punkte 2 / 6,00"]
    )
    for n, (first, last) in enumerate(PEOPLE):
        book.active.append([12345 + n, last, first, f"Größe {n} ist hohl.", n + 0.5, f"Weiß {n} wäscht.", "2,5"])
        book.active.cell(row=n + 2, column=1).number_format = ("0000000", "[$-407]0000000", "0000000;-0", "000-0000")[n]
    book.save(path)


def test_a_german_workbook_keeps_zeros_umlauts_and_points(tmp_path: Path) -> None:
    german_workbook(tmp_path / "Klasse.xlsx")
    started = init([tmp_path / "Klasse.xlsx"], tmp_path / "study.yaml", guess)
    found = read(tmp_path / "study.yaml").responses
    assert [row["author_id"] for row in found][::2] == ["0012345", "0012346", "0012347", "001-2348"]
    assert (found[0]["author_name"], found[0]["text"]) == ("Ada Böhm", "Größe 0 ist hohl.")
    assert read(tmp_path / "study.yaml").scores["0012346-Q1"] == 1.5
    assert points_of(tmp_path / "study.yaml") == {"Q1": 4, "Q2": 6}
    assert not any("namesake" in line or "taken for" in line for line in started.lines)


def test_a_moodle_quiz_takes_points_from_its_columns_and_checks_the_grades(tmp_path: Path) -> None:
    header = ["Nachname", "Vorname", "E-Mail-Adresse", "Status", "Bewertung/20,00", "F. 1 /4,00", "F. 2 /6,00"]
    students = [("9,50", "3,50", "6,00"), ("4,50", "2,00", "2,50"), ("8,00", "4,00", "1,00")]
    long_mail = "a-very-long-name.of-a-student@students.faculty.university.example"
    rows = [
        [last, first, f"{n}.{long_mail}", "Beendet", str(float(t.replace(",", ".")) * 2), one, two, "Es ist.", "Seife."]
        for n, ((first, last), (t, one, two)) in enumerate(zip(PEOPLE, students, strict=False))
    ]
    rows.append(["Gesamtdurchschnitt", "", "", "", "14", "", "", "", ""])
    started = drafted(tmp_path, [*header, "Antwort 1", "Antwort 2"], rows)
    assert points_of(tmp_path / "study.yaml") == {"Q1": 4, "Q2": 6}
    assert "the marks do not add up to 'Bewertung/20,00' in 3 of 3 rows: row 1: 9.5 and 19" in "\n".join(started.lines)
    ids = [row["response_id"] for row in read(tmp_path / "study.yaml").responses]
    assert ids[0] == f"0.{long_mail}-Q1"
    assert not any(map(DIGEST.search, ids))


@pytest.mark.parametrize(("wrong", "said"), [("13", ["row 2: 6 and 13"]), ("12", [])])
def test_a_total_that_is_scaled_agrees_and_a_row_that_does_not_add_up_is_named(
    tmp_path: Path, wrong: str, said: list[str]
) -> None:
    header = ["name", "answer 1", "points 1 /4", "answer 2", "points 2 /6", "Total /20"]
    rows = [["Ada", "so", "3", "no", "4", "14"], ["Can", "hm", "2", "eh", "4", wrong]]
    lines = drafted(tmp_path, header, rows).lines
    assert [part for line in lines for part in line.split(": ", 1)[1:] if part.startswith("row")] == (
        ["row 1: 7 and 14; row 2: 6 and 13"] if said else []
    )
    assert any("points add up to 10, and 'Total /20' says 20" in line for line in lines)


@pytest.mark.parametrize(
    ("header", "points"),
    [
        (["Frage 1 / 4,00", "Frage 2 / 6,50"], [4, 6.5]),
        (["Question 1 (6 pts)", "Question 2 [5 points]"], [6, 5]),
        (["Antwort 1 Punkte: 3", "Antwort 2 Punkte: 2"], [3, 2]),
        (["Aufgabe 1, 4 P.", "Aufgabe 2, 2 P."], [4, 2]),
        (["Vraag 1 [2,5 punten]", "Vraag 2 [3 punten]"], [2.5, 3]),
        (["Why does a boat float? (max. 3)", "How does soap help? (max. 5 marks)"], [3, 5]),
        (["Réponse 1 /5", "Réponse 2 /10"], [5, 10]),
    ],
)
def test_points_stand_in_headers(tmp_path: Path, header: list[str], points: list[float]) -> None:
    rows = [[f"00{n}", f"so it is {n}", f"it is so {n}"] for n in range(3)]
    started = drafted(tmp_path, ["Student No.", *header], rows)
    assert list(points_of(tmp_path / "study.yaml").values()) == points
    assert not any("do not stand in the file" in line for line in started.lines)
    assert [row["response_id"] for row in read(tmp_path / "study.yaml").responses][:2] == ["000-Q1", "000-Q2"]


def test_points_are_asked_for_each_question_and_stand_in_one_place(tmp_path: Path) -> None:
    rows = [["001", "so", "1,5", "no", "4"], ["002", "hm", "2", "eh", "1"]]
    write_csv(tmp_path / "a.csv", ["Student No.", "answer 1", "mark 1", "answer 2", "mark 2"], rows)
    asked: list[str] = []

    def said(question: str, default: str) -> str:
        asked.append(question)
        return "2,5; 6" if "points" in question else default

    init([tmp_path / "a.csv"], tmp_path / "study.yaml", said)
    assert sum("points" in question for question in asked) == 1
    assert len(asked) <= MOST_QUESTIONS
    assert points_of(tmp_path / "study.yaml") == {"Q1": 2.5, "Q2": 6}
    rubrics = (tmp_path / "rubrics.yaml").read_text()
    assert (rubrics.count("points: 2.5"), rubrics.count("2.5"), (tmp_path / "study.yaml").read_text().count("2.5")) == (
        1,
        1,
        0,
    )
    (tmp_path / "rubrics.yaml").write_text(rubrics.replace("points: 2.5", "points: 7"))
    (rubric, _) = authored(tmp_path / "rubrics.yaml").values()
    assert rubric.scale.max == rubric.traits[0].max == 7


@pytest.mark.parametrize("words", ["none", "1 2 3", "-1", "4 x"])
def test_points_that_are_none_are_refused(tmp_path: Path, words: str) -> None:
    write_csv(tmp_path / "a.csv", ["Student No.", "answer 1", "answer 2"], [["001", "so", "no"], ["002", "hm", "eh"]])
    with pytest.raises(InputError, match="neither a number of points above 0 nor 2 of them"):
        init([tmp_path / "a.csv"], tmp_path / "study.yaml", lambda q, guess: words if "points" in q else guess)
    assert not (tmp_path / "study.yaml").exists()


FORM = ["Name", WHY, HOW]


@pytest.mark.parametrize(
    ("header", "rows", "authors"),
    [
        (["Name", "Matr.Nr.", WHY, HOW], [["Ada", "01", "so", "no"], ["Ada", "02", "hm", "eh"]], ["01", "02"]),
        (["Name", "E-Mail", WHY, HOW], [["Ada", "a@x.de", "s", "n"], ["Ada", "b@x.de", "h", "e"]],
            ["a@x.de", "b@x.de"]),
        (["Name", "Klasse", WHY, HOW], [["Ada", "7a", "s", "n"], ["Ada", "7b", "h", "e"], *[["Bo", "7a", "s", "n"]],
            ["Cy", "7b", "s", "n"]], ["Ada-7a", "Ada-7b", "Bo-7a", "Cy-7b"]),
        (FORM, [["Ada", "so", "no"], ["Bo", "so", "no"], ["Ada", "hm", "eh"]], ["Ada", "Bo", "Ada-2"]),
    ],
    ids=["number", "e-mail", "class", "row"],
)  # fmt: skip
def test_two_namesakes_are_two_students(
    tmp_path: Path, header: list[str], rows: list[list[str]], authors: list[str]
) -> None:
    started = drafted(tmp_path, header, rows)
    found = read(tmp_path / "study.yaml").responses
    assert [row["author_id"] for row in found][::2] == authors
    assert len({row["response_id"] for row in found}) == 2 * len(rows)
    assert any("Ada stands in rows 1, 3: taken for 2 students" in line for line in started.lines) == (header == FORM)


@pytest.mark.parametrize(("answer", "authors"), [("two", ["Ada", "Ada-2"]), ("one", ["Ada", "Ada"])])
def test_a_person_says_whether_one_name_is_one_student(tmp_path: Path, answer: str, authors: list[str]) -> None:
    write_csv(tmp_path / "a.csv", FORM, [["Ada", "so", "no"], ["Ada", "hm", "eh"]])
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", lambda q, guess: answer if "one who answered" in q else guess)
    found = read(tmp_path / "study.yaml").responses
    assert [row["author_id"] for row in found][::2] == authors
    assert len({row["response_id"] for row in found}) == 4


def test_questions_beside_the_answers_are_found_by_their_wording(tmp_path: Path) -> None:
    write_csv(tmp_path / "q.csv", ["enunciado", "respuesta correcta", "puntos"], [[HOW, "Fat.", "3"], [WHY, "Air.", 5]])
    write_csv(tmp_path / "a.csv", FORM, [["Ada", "so", "no"], ["Bo", "hm", "eh"], ["Cy", "eh", "so"]])
    init([tmp_path / "a.csv", tmp_path / "q.csv"], tmp_path / "study.yaml", guess)
    assert points_of(tmp_path / "study.yaml") == {"Q1": 3, "Q2": 5}
    found = {row["response_id"]: (row["item_id"], row["text"]) for row in read(tmp_path / "study.yaml").responses}
    assert (found["Ada-Q1"], found["Ada-Q2"]) == (("Q1", "no"), ("Q2", "so"))


@pytest.mark.parametrize(("marks", "said"), [((0, 0, 3, 4), True), ((0, 2, 3, 4, 4), False)])
def test_many_marks_of_0_are_told_since_they_are_grades(marks: tuple[int, ...], said: bool, tmp_path: Path) -> None:
    rows = "".join(f"s{place},Because of the air in it {place}.,{mark}\n" for place, mark in enumerate(marks))
    (tmp_path / "class.csv").write_text(f"Student No.,answer,mark\n{rows}")
    started = init([tmp_path / "class.csv"], tmp_path / "study.yaml", lambda question, default: default)
    assert any("marks are 0" in line for line in started.lines) == said
