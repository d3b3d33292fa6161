"""The commands: study files, options and environment in; runs in a warehouse, pages, sheets and printed lines out.

`cli` lists the commands by name and imports one when it is used. A command is one file: its options, the flow or
function that does it, and what it prints; a Prefect flow's parameters are its options. What they share, in reading
order:

`command_line` (options, printed rows, errors, signals), `plan` (a study as a run), `stage` (a task, its checkpoint, its
line of the log), `finished_runs` (a run taken up again), `checks` (what a study's work needs). `grade` shows a flow.

Rewards for trainers, from a call to its rewards: `trainers` (TRL, verl), `rollouts` (a batch judged, put together,
recorded), `prepared_items` (items with rubric and graph), `batch` (what became of one), `recorder`. The server is
`serve` on `reward_service`.
"""
