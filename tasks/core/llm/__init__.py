"""Asking a model: requests go in, checked replies come out, and every reply is kept before the next one is waited for.

Modules in reading order: `request` (what is asked and what comes back, its digest), `ask` (waves of requests, checks
and repairs), `reply_store` (replies in a SQLite file; `postgres`: in a database), `backend` (the interface of what
answers, wrappers, and answers by a script), `calls` (counts, progress, and calls that outlast their batch), `ledger`
(what several processes spend and ask for together), `budget` (budgets, of several processes too), `opening` (a backend
by its name, and warnings about processors), `backends` (one module each).
Not asked now: `mailbox` (requests noted for somebody to carry), `mailbox_folder` (which files asked, and what
becomes of answers), `mailbox_files` (requests and answers in files), `submit` (batches, and what a mailbox may cost).
What is asked for: `schema` (contracts), `extract` and `tolerant` (the JSON object in a reply), `choices` (probabilities
of the values in it), `foreign` (tables of other judges' replies).
Other models: `encoder` (texts as vectors).
"""
