"""Who answers: one module per backend, all behind `tasks.core.llm.backend.Backend`."""
