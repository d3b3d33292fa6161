"""Review: queued cases and people's acts in; votes, final labels and settled scores out.

- ledger: people's acts, and the SQLite file that keeps them
- settle: which acts count, and what they come to; tables `labels` and `votes`
- settled_scores: what people decided on scores, on the page and in the data; table `settled_scores`
- board, waiting: what the page shows, and what waits in a run
- reviews, view: what one reviewer may see and do, and that as plain values
- app: the page's server and who may use it
- sheet, label_studio: votes by spreadsheet and by Label Studio
- task: the stage entry points; annotators' levels, and which labels people are asked about; table `queue`
"""
