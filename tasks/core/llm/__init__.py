"""Asking a model: requests go in, checked replies come out, and every reply is kept before the next one is waited for.

Modules in reading order: `request` (what is asked and what comes back, its digest), `ask` (waves of requests, checks
and repairs), `reply_store` (replies in a SQLite file or a PostgreSQL database), `backend` (the interface of what
answers, and wrappers), `calls` (progress, and calls that outlast their batch), `budget` (token budgets), `ledger` (what
several processes spend and ask for together), `terms` (what the workers of one command share), `opening` (a backend by
its name, and warnings about processors), `backends` (one module each).
Not asked now: `mailbox` (requests noted for somebody to carry), `mailbox_folder` (their files, and what becomes of
answers), `brought` (answers in files), `plain` (the form for people and models that read files), `submit` (batches).
What is asked for: `schema` (contracts), `extract` and `tolerant` (the JSON object in a reply), `choices` (probabilities
of the values in it), `foreign` (tables of other judges' replies), `damage` (replies as weak models spoil them).
Other models: `encoder` (texts as vectors).
"""
