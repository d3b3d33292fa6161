"""The rooms of the pipeline, one per stage, on the shared floors contracts, text, stats, store, check and llm."""
