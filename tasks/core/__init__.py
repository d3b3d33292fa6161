"""What everything stands on: tables and settings, text, statistics, the store, checkpoints, asking a model, pages."""
