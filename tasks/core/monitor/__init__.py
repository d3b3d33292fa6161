"""What people see of a run while it works and afterwards in Prefect: its stages, its log, its artifacts and events."""
