"""Who answers: one module per backend, all behind `tasks.llm.backend.Backend`."""
