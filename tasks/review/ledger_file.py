"""The file of the ledger: its schema, which refuses every change."""

from __future__ import annotations

from tasks.store.sqlite_file import Format

FORMAT = Format(
    name="ledger of votes",
    mark=0x564F5445,
    table="acts",
    schema=(
        """CREATE TABLE IF NOT EXISTS acts(
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, act_id TEXT NOT NULL UNIQUE, study TEXT NOT NULL,
    kind TEXT NOT NULL, subject_kind TEXT NOT NULL, response_id TEXT NOT NULL, criterion_id TEXT, value TEXT,
    rater_id TEXT NOT NULL, comment TEXT, blind INTEGER, undoes TEXT, digest TEXT NOT NULL,
    seal TEXT)""",
        "CREATE INDEX IF NOT EXISTS acts_of_study ON acts(study, number)",
        *(
            f"CREATE TRIGGER IF NOT EXISTS no_{verb} BEFORE {verb} ON acts "
            "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END"
            for verb in ("update", "delete")
        ),
        # INSERT OR REPLACE would take the old row out without asking the trigger on deletion.
        "CREATE TRIGGER IF NOT EXISTS no_replace BEFORE INSERT ON acts "
        "WHEN EXISTS (SELECT 1 FROM acts WHERE act_id = NEW.act_id OR number = NEW.number) "
        "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END",
    ),
    synchronous="FULL",
    row="act",
    spoilt="bring back a copy of the file",
)
