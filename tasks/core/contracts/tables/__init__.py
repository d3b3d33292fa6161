"""The tables: one frozen pydantic model each, documented column by column."""
